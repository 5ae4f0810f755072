"""What a worker reads is what the run began with, however late it is started; no network is needed for that."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.data import loader
from fedmatch_tf.data.loader import Partitions, load_client, open_partitions
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.inputs import WithInputs, checksums
from fedmatch_tf.runs.partition_folder import ensure_partitions
from tests.runs.stand_in_run import call, content, only_run, run

NETWORK = "def net(x, n, conv, dense):\n    return dense(n)(x)\n"


def just_data(config: Config, partitions: Partitions) -> Partitions:
    """Instead of a worker."""
    return partitions


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions of seed 1 and, in another folder, of seed 2."""
    folder = tmp_path_factory.mktemp("partitions")
    for seed in (1, 2):
        given: Any = {"dataset_path": str(folder / str(seed)), "num_clients": 3, "seed": seed}
        ensure_partitions(make_config("lc-biid-digits", **given), progress_for(True))
    return folder


@pytest.fixture
def config(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    """A run with partitions, a probe image and a network of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("net_of_inputs.py").write_text(NETWORK)
    np.save("probe.npy", np.zeros((1, 32, 32, 3), np.float32))
    shutil.copytree(made / "1", "d")
    given: Any = {"probe_image": "probe.npy", "arch": "net_of_inputs:net", "dataset_path": "d", "num_clients": 3}
    return make_config("lc-biid-digits", **given)


def worker(config: Config) -> WithInputs:
    partitions = open_partitions(Path(config.dataset_path), config.task)
    return WithInputs(just_data, partitions.fingerprint, checksums(config))


def test_a_worker_that_reads_the_same_is_made(config: Config) -> None:
    make = worker(config)
    found = make(config)
    assert (found.num_clients, found.folder) == (3, config.partition_folder)
    assert make(config, partitions=found) is found, "those that come with the worker"


def test_a_probe_image_that_was_replaced_makes_no_worker(config: Config) -> None:
    make = worker(config)
    np.save("probe.npy", np.ones((1, 32, 32, 3), np.float32))
    with pytest.raises(DataError, match=r"--probe-image: expected on .* the file that the run began with"):
        make(config)


def test_a_networks_code_that_was_edited_makes_no_worker(config: Config) -> None:
    make = worker(config)
    Path("net_of_inputs.py").write_text(NETWORK.replace("dense(n)", "dense(n, activation='relu')"))
    with pytest.raises(DataError, match=r"--arch: expected on .* the file that the run began with"):
        make(config)


def test_partitions_that_are_replaced_while_a_worker_starts_are_told_from_the_runs(
    config: Config, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, whole = worker(config), open_partitions

    def replaced(dataset_path: Path, task: str) -> Partitions:
        """At the last moment before they are opened."""
        shutil.rmtree(config.partition_folder)
        shutil.copytree(made / "2" / task, config.partition_folder)
        return whole(dataset_path, task)

    monkeypatch.setattr("fedmatch_tf.runs.inputs.open_partitions", replaced)
    with pytest.raises(DataError, match=r"expected the partitions of this run on .*, found others"):
        make(config)


@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_file_that_is_replaced_after_its_folder_was_opened_is_found(with_manifest: bool, config: Config) -> None:
    folder = config.partition_folder
    if not with_manifest:
        (folder / "manifest.json").unlink()
    partitions = worker(config)(config)
    before = load_client(partitions, 1).unlabeled.x
    assert len(before)
    whole = np.load(folder / "u_digits_1.npy", allow_pickle=True).item()
    whole["x"][0, 0, 0] ^= 1
    np.save(folder / "u_digits_1.npy", whole, allow_pickle=True)
    with pytest.raises(DataError, match=r"u_digits_1\.npy: altered"):
        load_client(partitions, 1)
    assert len(loader.load_client(partitions, 0).unlabeled)
    if not with_manifest:
        with pytest.raises(DataError, match=r"expected the partitions of this run"):
            WithInputs(just_data, partitions.fingerprint, {})(config)


def test_a_run_goes_on_with_another_probe_image_but_says_so(tmp_path: Path) -> None:
    probe = tmp_path / "probe.npy"
    np.save(probe, np.zeros((1, 32, 32, 3), np.float32))
    settings = ("task=lc-biid-digits", "num_clients=4", f"probe_image={probe}", "num_rounds=2", "backend=inline")
    folder = run(tmp_path, *settings)
    unchanged = content(folder)
    code, _, errors = call(tmp_path, f"resume={folder}", "num_rounds=3")
    assert (code, "began with" in errors) == (0, False), errors
    np.save(probe, np.ones((1, 32, 32, 3), np.float32))
    code, _, errors = call(tmp_path, f"resume={only_run(tmp_path)}", "num_rounds=4")
    assert code == 0, errors
    assert "note: --probe-image: not the content that the run began with, so results may differ" in errors
    assert content(folder)["rounds"][:2] == unchanged["rounds"]
