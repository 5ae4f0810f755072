"""Folders of images on a host become partition files, which say nothing that the host does not know."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.data.loader import load_client, load_eval, load_server, open_folder
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "deploy" / "flower"))

from fedmatch_flower.own_data import OwnData, open_own, pack


def write_images(folder: Path, number: int, colour: int) -> None:
    folder.mkdir(parents=True)
    for each in range(number):
        Image.fromarray(np.full((40, 20), colour + each, np.uint8)).save(folder / f"{each}.png")


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A client's images: three and two labelled, four unlabelled, one of a class to validate on."""
    write_images(tmp_path / "host" / "labeled" / "ill", 3, 10)
    write_images(tmp_path / "host" / "labeled" / "well", 2, 20)
    write_images(tmp_path / "host" / "unlabeled", 4, 100)
    write_images(tmp_path / "host" / "valid" / "well", 1, 30)
    return tmp_path / "host"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config(scenario: str = "lc", **given: object) -> Config:
    return make_config(f"{scenario}-biid-own", source="x", num_clients=3, **given)


def opened(host: Path, scenario: str = "lc", classes: tuple[str, ...] = (), **given: object) -> OwnData:
    return open_own({"folder": str(host), "client": 1}, config(scenario, **given), classes)


def test_a_clients_folders_are_what_it_trains_and_validates_on(host: Path) -> None:
    own = opened(host)
    assert (own.client, own.num_examples, own.class_names, own.knows_truth) == (1, 9, ("ill", "well"), False)
    data = load_client(own.partitions, 1)
    assert data.labeled is not None
    assert data.labeled.x[:, 0, 0, 0].tolist() == [10, 11, 12, 20, 21]
    assert data.labeled.y.argmax(axis=1).tolist() == [0, 0, 0, 1, 1]
    assert data.unlabeled.x.shape == (4, 32, 32, 3)
    evals = load_eval(own.partitions)
    assert evals.test is None
    assert evals.valid is not None
    assert evals.valid.y.tolist() == [[0.0, 1.0]]


def test_with_the_federations_classes_a_host_may_lack_one(host: Path) -> None:
    assert opened(host, classes=("cold", "ill", "well")).class_names == ("cold", "ill", "well")
    with pytest.raises(DataError, match="expected folders of the classes cold, ill; found well"):
        opened(host, classes=("cold", "ill"))


def test_with_labels_at_the_server_a_client_has_none(host: Path) -> None:
    own = opened(host, "ls", ("ill", "well"), lr_signal="server")
    assert (own.num_examples, load_client(own.partitions, 1).labeled) == (4, None)


@pytest.mark.parametrize("given", [{"lr_signal": "server"}, {"lr_schedule": "cosine"}, {"lr_schedule": "constant"}])
def test_a_client_that_does_not_decide_on_its_learning_rate_needs_no_validation_images(
    host: Path, given: dict[str, Any]
) -> None:
    shutil.rmtree(host / "valid")
    assert opened(host, **given).num_examples == 9


def test_images_are_packed_again_when_they_change_and_only_then(host: Path) -> None:
    first = opened(host).partitions.folder
    assert opened(host).partitions.folder == first
    shutil.copy(host / "unlabeled" / "0.png", host / "unlabeled" / "new.png")
    second = opened(host)
    assert second.num_examples == 10
    assert not first.exists()  # no copies of what is no more


@pytest.mark.parametrize(
    ("gone", "message"),
    [
        ("unlabeled", "unlabeled: expected images, found none"),
        ("labeled", "expected images of two classes at least, found well"),
        ("valid", "expected images in valid/, as they decide on this client's learning rate"),
    ],
)
def test_what_is_missing_is_named(host: Path, gone: str, message: str) -> None:
    shutil.rmtree(host / gone)
    with pytest.raises(DataError, match=message):
        opened(host)


def test_a_node_must_say_where_its_data_are() -> None:
    with pytest.raises(DataError, match="node config: expected partition"):
        open_own({"client": 1}, config(), ())


def test_the_server_packs_its_labels_and_test_images(host: Path, tmp_path: Path) -> None:
    write_images(host / "test" / "ill", 2, 50)
    for scenario, roles in (("ls", 3), ("lc", 2)):
        to = tmp_path / scenario
        to.mkdir()
        pack(host, to, None, config(scenario), ())
        partitions = open_folder(to, f"{scenario}-biid-own")
        assert len(partitions.files or ()) == roles
        assert len(load_eval(partitions).test or ()) == 2
        if scenario == "ls":
            assert len(load_server(partitions)) == 5
