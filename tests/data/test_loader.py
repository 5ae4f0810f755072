"""Reading partitions: the right file for each client, ours or the original's, and its own message for each damage."""

from __future__ import annotations

import io
import os
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import files
from fedmatch_tf.data.generator import generate
from fedmatch_tf.data.loader import Partitions, load_client, load_eval, load_server, open_partitions
from fedmatch_tf.data.sources import load_source
from tests.conftest import made_up_images, save_npz
from tests.data.test_generator import SPEC


@pytest.fixture(scope="module")
def made(small_npz: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("datasets")
    source = load_source("c10", str(small_npz))
    generate(SPEC, source, path)
    generate(replace(SPEC, scenario="ls"), source, path)
    generate(replace(SPEC, kind="simb", num_clients=12, labels_per_class=1, num_steps=2), source, path)
    return path


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    shutil.copytree(made / "lc-biid-c10", tmp_path / "lc-biid-c10")
    return tmp_path


def stored(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = np.load(path, allow_pickle=True).item()
    return content


def test_clients_get_what_their_own_files_hold_in_any_order(made: Path) -> None:
    partitions = open_partitions(made, "lc-biid-c10")
    assert (partitions.num_clients, partitions.num_steps, partitions.num_classes) == (4, 1, 10)
    assert partitions.image_shape == (32, 32, 3)
    for client in (3, 0, 2, 1, 3):
        data = load_client(partitions, client)
        assert data.client == client
        assert data.labeled is not None
        np.testing.assert_array_equal(data.labeled.x, stored(partitions.folder / f"s_cifar_10_{client}.npy")["x"])
        np.testing.assert_array_equal(data.unlabeled.y, stored(partitions.folder / f"u_cifar_10_{client}.npy")["y"])
    evaluation = load_eval(partitions)
    assert (len(evaluation.test or ()), len(evaluation.valid or ())) == (40, 30)


def test_the_server_has_the_labels_in_labels_at_server_and_only_there(made: Path) -> None:
    partitions = open_partitions(made, "ls-biid-c10")
    assert load_server(partitions).y.sum(axis=0).tolist() == [2] * 10
    assert load_client(partitions, 0).labeled is None
    with pytest.raises(DataError, match="clients hold the labels"):
        load_server(open_partitions(made, "lc-biid-c10"))


@pytest.mark.parametrize("with_manifest", [True, False])
def test_client_1_never_picks_up_the_files_of_client_10_or_11(with_manifest: bool, made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "lc-simb-c10", tmp_path / "lc-simb-c10")
    if not with_manifest:
        (tmp_path / "lc-simb-c10" / "manifest.json").unlink()
    partitions = open_partitions(tmp_path, "lc-simb-c10")
    assert (partitions.num_clients, partitions.num_steps) == (12, 2)
    for client in (1, 10, 11, 0):
        for step in (0, 1):
            data = load_client(partitions, client, step)
            expected = stored(partitions.folder / f"u_cifar_10_{client}_{step}.npy")["x"]
            np.testing.assert_array_equal(data.unlabeled.x, expected)


def test_a_folder_made_by_the_original_loads_without_a_manifest(folder: Path) -> None:
    ours = load_client(open_partitions(folder, "lc-biid-c10"), 2)
    (folder / "lc-biid-c10" / "manifest.json").unlink()
    (folder / "lc-biid-c10" / "partition.png").unlink()
    partitions = open_partitions(folder, "lc-biid-c10")
    assert (partitions.num_clients, partitions.num_classes, partitions.files) == (4, 10, None)
    np.testing.assert_array_equal(load_client(partitions, 2).unlabeled.x, ours.unlabeled.x)
    (folder / "lc-biid-c10" / "u_cifar_10_1.npy").unlink()
    with pytest.raises(DataError, match="4 clients x 1 steps = 4, found 3"):
        open_partitions(folder, "lc-biid-c10")


def test_clients_and_steps_that_are_not_there_are_refused(made: Path) -> None:
    partitions = open_partitions(made, "lc-biid-c10")
    for client, step in ((4, 0), (-1, 0), (0, 1)):
        with pytest.raises(DataError, match=f"received client {client}, step {step}"):
            load_client(partitions, client, step)


def test_a_missing_folder_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="--work-type gen_data"):
        open_partitions(tmp_path, "lc-biid-c10")
    (tmp_path / "lc-biid-c10").mkdir()
    with pytest.raises(DataError, match=r"such as u_cifar_10_0\.npy, found none"):
        open_partitions(tmp_path, "lc-biid-c10")


def test_partitions_of_another_task_are_refused(folder: Path) -> None:
    (folder / "lc-biid-c10").rename(folder / "lc-bimb-c10")
    with pytest.raises(DataError, match="expected partitions of lc-bimb-c10, its manifest says lc-biid-c10"):
        open_partitions(folder, "lc-bimb-c10")


def save(path: Path, content: Any) -> None:
    np.save(path, content, allow_pickle=True)


GOOD_X, GOOD_Y = made_up_images(50)
ONE_HOT = np.eye(10, dtype=np.float32)[GOOD_Y]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"x": GOOD_X / 255, "y": ONE_HOT}, r"wrong images: expected uint8 \[n,h,w,c\], received float64"),
        ({"x": GOOD_X[:, :16], "y": ONE_HOT}, r"wrong images: expected \[32, 32, 3\], received \[16, 32, 3\]"),
        ({"x": GOOD_X[..., 0], "y": ONE_HOT}, "wrong images"),
        ({"x": np.full((50, 3), np.inf, np.float32), "y": ONE_HOT}, "wrong vectors: expected finite numbers"),
        ({"x": GOOD_X, "y": ONE_HOT[:, :9]}, "wrong labels: expected one-hot"),
        ({"x": GOOD_X, "y": np.eye(12, dtype=np.float32)[GOOD_Y]}, "wrong classes: expected 10, received 12"),
        ({"x": GOOD_X, "y": ONE_HOT * 2}, "wrong labels: expected one-hot rows"),
        ({"x": GOOD_X, "y": ONE_HOT * np.nan}, "wrong labels: expected one-hot rows"),
        ({"x": GOOD_X, "y": GOOD_Y}, "wrong labels: expected float32 one-hot"),
        ({"x": GOOD_X[:9], "y": ONE_HOT}, "wrong number"),
        ({"x": GOOD_X[:0], "y": ONE_HOT[:0]}, "wrong number"),
        ({"x": GOOD_X[:9], "y": ONE_HOT[:9]}, "wrong number: expected .* examples, received 9"),
        ({"x": GOOD_X}, "missing y"),
        ([1, 2], r"expected one pickled dict, received ndarray of int64 \[2\]"),
        (np.array([{}, {}]), "expected one pickled dict"),
    ],
)
def test_wrong_contents_get_their_own_message(content: Any, message: str, folder: Path) -> None:
    path = folder / "lc-biid-c10" / "u_cifar_10_1.npy"
    save(path, content)
    with pytest.raises(DataError, match=message) as error:
        load_client(open_partitions(folder, "lc-biid-c10"), 1)
    assert str(path) in str(error.value)
    load_client(open_partitions(folder, "lc-biid-c10"), 0)


def test_a_truncated_file_is_called_truncated_wherever_it_was_cut(folder: Path) -> None:
    path = folder / "lc-biid-c10" / "u_cifar_10_1.npy"
    whole = path.read_bytes()
    partitions = open_partitions(folder, "lc-biid-c10")
    for size in (0, 3, 60, 200, 1000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError, match="truncated"):
            load_client(partitions, 1)


def test_a_changed_pixel_is_found_by_the_checksum(folder: Path) -> None:
    path = folder / "lc-biid-c10" / "u_cifar_10_1.npy"
    content = stored(path)
    content["x"] = content["x"].copy()
    content["x"][0, 0, 0, 0] ^= 1
    save(path, content)
    with pytest.raises(DataError, match="altered or damaged: its sha256 is not the manifest's"):
        load_client(open_partitions(folder, "lc-biid-c10"), 1)


class _Hostile:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return open, (str(self.marker), "w")


@pytest.mark.parametrize("with_manifest", [True, False])
def test_a_hostile_file_raises_and_runs_nothing(with_manifest: bool, folder: Path) -> None:
    marker = folder / "ran"
    if not with_manifest:
        (folder / "lc-biid-c10" / "manifest.json").unlink()
    partitions = open_partitions(folder, "lc-biid-c10")
    for name in ("u_cifar_10_1.npy", "s_cifar_10_1.npy"):
        save(folder / "lc-biid-c10" / name, {"x": GOOD_X, "y": ONE_HOT, "name": _Hostile(marker)})
    with pytest.raises(DataError, match=r"refused: the file asks for _?io\.open"):
        load_client(partitions, 1)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"version": 1', '"version": 99'),
        ('"seed": 1', '"seed": "one"'),
        ('"num_clients": 4', '"num_clients": null'),
        ('"num_clients": 4', '"clients": 4'),
        ('"files": {', '"files": 3, "more": {'),
        ('"image_shape": [', '"image_shape": ["x",'),
        ("{", "["),
    ],
)
def test_a_damaged_manifest_is_refused_with_what_to_do(old: str, new: str, folder: Path) -> None:
    path = folder / "lc-biid-c10" / "manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=r"manifest\.json: .*--force"):
        open_partitions(folder, "lc-biid-c10")


def test_a_file_that_the_manifest_does_not_know_is_refused(folder: Path) -> None:
    partitions = open_partitions(folder, "lc-biid-c10")
    assert partitions.files is not None
    known = {name: record for name, record in partitions.files.items() if name != "u_cifar_10_1.npy"}
    with pytest.raises(DataError, match="expected an entry in manifest"):
        load_client(replace(partitions, files=known), 1)


def test_decode_reads_what_numpy_2_and_older_protocols_write() -> None:
    content = np.empty((), object)
    content[()] = {"x": GOOD_X, "y": ONE_HOT}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|O", "fortran_order": False, "shape": ()})
    for protocol in (2, 3, 4):
        payload = header.getvalue() + pickle.dumps(content, protocol)
        np.testing.assert_array_equal(files.decode(payload).x, GOOD_X)
    modern = pickle.dumps(content, 3).replace(b"cnumpy.core.multiarray\n", b"cnumpy._core.multiarray\n")
    np.testing.assert_array_equal(files.decode(header.getvalue() + modern).x, GOOD_X)


def test_own_data_of_three_classes_goes_all_the_way(tmp_path: Path) -> None:
    x, y = made_up_images(300, num_classes=3, size=40)
    source = load_source("own", str(save_npz(tmp_path / "own.npz", x, y)), image_size=36)
    spec = replace(SPEC, dataset="own", kind="bimb", image_size=36)
    generate(spec, source, tmp_path)
    partitions: Partitions = open_partitions(tmp_path, "lc-bimb-own")
    assert (partitions.num_classes, partitions.image_shape) == (3, (36, 36, 3))
    assert load_client(partitions, 3).unlabeled.y.shape[1] == 3


@pytest.mark.timeout(20)
def test_a_pipe_in_a_folder_without_manifest_keeps_nobody_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "lc-biid-c10"
    folder.mkdir()
    (folder / "u_cifar_10_0.npy").write_bytes(b"")
    os.mkfifo(folder / "test_cifar_10.npy")
    with pytest.raises(DataError, match="expected a regular file, found a pipe"):
        open_partitions(tmp_path, "lc-biid-c10")
