"""CIFAR-100, SVHN and CINIC-10: small files in the real formats, whole and damaged."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import cifar, svhn
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.sources import load_source
from tests.conftest import made_up_images
from tests.data.test_sources import planes, write_archive, write_folder

X, _ = made_up_images(240)
FINE = np.arange(240) % 100


@pytest.fixture(autouse=True)
def _nothing_to_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDMATCH_DATA", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "no-keras"))


def cifar_100(binary: bool) -> dict[str, bytes]:
    """Two files of CIFAR-100's layout: 200 training images, 40 test images; coarse labels that must not be taken."""
    result = {}
    for name, rows in (("train", slice(0, 200)), ("test", slice(200, 240))):
        data, labels = planes(X[rows]), FINE[rows].tolist()
        coarse = [(label + 7) % 20 for label in labels]
        if binary:
            records = [bytes((c, fine)) + row.tobytes() for c, fine, row in zip(coarse, labels, data)]
            result[f"{name}.bin"] = b"".join(records)
        else:
            content = {"data": data, "fine_labels": labels, "coarse_labels": coarse, "filenames": ["a.png"] * len(data)}
            result[name] = pickle.dumps(content, protocol=2)
    return result


FORMS: dict[str, Callable[[Path], Path]] = {
    "python folder": lambda p: write_folder(p / "cifar-100-python", {**cifar_100(False), "meta": b"not looked at"}),
    "its parent": lambda p: write_folder(p / "up" / "cifar-100-python", cifar_100(False)).parent,
    "binary folder": lambda p: write_folder(p / "binary", cifar_100(True)),
    "python tar.gz": lambda p: write_archive(p / "c.tar.gz", "cifar-100-python", cifar_100(False)),
    "binary tar.gz": lambda p: write_archive(p / "c.tar.gz", "cifar-100-binary", cifar_100(True)),
}


@pytest.mark.parametrize("form", FORMS)
def test_cifar_100_is_read_from_every_form_with_its_fine_labels(form: str, tmp_path: Path) -> None:
    source = load_source("c100", str(FORMS[form](tmp_path)))
    np.testing.assert_array_equal(source.x, X)
    assert source.y.tolist() == FINE.tolist()
    assert (source.class_names[0], source.class_names[99], len(source.class_names)) == ("apple", "worm", 100)
    assert source.official is (None if "binary" in form else False), "made up, so it isn't the published one"


def test_class_names_of_cifar_100_are_a_hundred_in_order() -> None:
    names = DATASETS["c100"].class_names
    assert len(set(names)) == 100
    assert list(names) == sorted(names)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda files: files.pop("test"), "missing test"),
        (lambda files: files.update(train=files["train"][:100]), "train: "),
        (lambda files: files.update(train=pickle.dumps({"data": planes(X[:2]), "labels": [1, 2]})), "`fine_labels`"),
        (
            lambda files: files.update(train=pickle.dumps({"data": planes(X[:2]), "fine_labels": [1, 100]})),
            "numbers 0 to 99",
        ),
    ],
)
def test_damaged_cifar_100_is_refused(damage: Callable[[dict[str, bytes]], Any], message: str, tmp_path: Path) -> None:
    files = cifar_100(binary=False)
    damage(files)
    with pytest.raises(DataError, match=message):
        load_source("c100", str(write_folder(tmp_path / "cifar-100-python", files)))


def test_a_truncated_binary_file_is_refused(tmp_path: Path) -> None:
    files = cifar_100(binary=True)
    files["test.bin"] = files["test.bin"][:-5]
    with pytest.raises(DataError, match="records of 3074 bytes"):
        load_source("c100", str(write_folder(tmp_path / "b", files)))


def matlab(rows: slice, **change: Any) -> bytes:
    """A file as SVHN's are: images last, digits 1 to 10, where 10 is the digit 0."""
    digits = np.arange(240)[rows] % 10
    y = np.where(digits == 0, 10, digits)[:, np.newaxis].astype(np.uint8)
    content = {"X": X[rows].transpose(1, 2, 3, 0), "y": y}
    buffer = io.BytesIO()
    savemat(buffer, {**content, **change})
    return buffer.getvalue()


def test_svhn_is_read_with_and_without_its_extra_images(tmp_path: Path) -> None:
    files = {"train_32x32.mat": matlab(slice(0, 100)), "test_32x32.mat": matlab(slice(100, 140))}
    folder = write_folder(tmp_path / "svhn", files)
    source = load_source("svhn", str(folder))
    np.testing.assert_array_equal(source.x, X[:140])
    assert source.y.tolist() == (np.arange(140) % 10).tolist()
    assert source.class_names == tuple("0123456789")
    assert source.official is False
    (folder / "extra_32x32.mat").write_bytes(matlab(slice(140, 240)))
    more = load_source("svhn", str(folder))
    np.testing.assert_array_equal(more.x, X[[*range(100), *range(140, 240), *range(100, 140)]])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"no matlab file", "expected a MATLAB file"),
        (matlab(slice(0, 100))[:-3000], "train_32x32.mat: "),
        (matlab(slice(0, 100), X=np.zeros((5, 5), np.uint8)), r"X uint8 \[32,32,3,n\], received uint8 \[5, 5\]"),
        (matlab(slice(0, 100), y=np.zeros((7, 1), np.uint8)), r"whole numbers \[100,1\], received uint8 \[7, 1\]"),
        (matlab(slice(0, 100), y=np.full((100, 1), 11, np.uint8)), "labels 1 to 10, received 11 to 11"),
    ],
    ids=["no matlab file", "truncated", "images", "number of labels", "labels"],  # a file has the time in it
)
def test_damaged_svhn_is_refused(content: bytes, message: str, tmp_path: Path) -> None:
    files = {"train_32x32.mat": content, "test_32x32.mat": matlab(slice(100, 140))}
    with pytest.raises(DataError, match=message):
        load_source("svhn", str(write_folder(tmp_path / "svhn", files)))
    with pytest.raises(DataError, match="side by side"):
        load_source("svhn", str(write_folder(tmp_path / "half", {"train_32x32.mat": b""})))


def cinic(folder: Path, splits: tuple[str, ...] = ("train", "valid", "test")) -> Path:
    """Two images per class and split, each of one grey."""
    for place, split in enumerate(splits):
        for label, name in enumerate(DATASETS["c10"].class_names):
            (folder / split / name).mkdir(parents=True)
            for number in range(2):
                grey = np.full((32, 32, 3), 100 * number + 10 * label + place, np.uint8)
                Image.fromarray(grey).save(folder / split / name / f"{number}.png")
    return folder


def test_cinic_10_is_read_split_after_split_and_found_in_the_data_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cinic(tmp_path / "CINIC-10")
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path))
    source = load_source("cinic10")
    assert source.class_names == DATASETS["c10"].class_names
    assert source.y.tolist() == np.tile(np.repeat(np.arange(10), 2), 3).tolist()
    assert (source.x[:, 0, 0, 0] % 10).tolist() == np.repeat([0, 1, 2], 20).tolist()
    assert source.x[7, 5, 5].tolist() == [130] * 3  # the second cat of the training images


def test_splits_of_other_classes_are_refused(tmp_path: Path) -> None:
    folder = cinic(tmp_path / "cinic10", ("train", "test"))
    (folder / "test" / "dog").rename(folder / "test" / "wolf")
    with pytest.raises(DataError, match="the same class folders in train, valid and test"):
        load_source("cinic10", str(folder))


@pytest.mark.parametrize("damage", ["truncated", "empty", "text"])
def test_a_damaged_image_of_cinic_10_is_refused_by_its_name(damage: str, tmp_path: Path) -> None:
    folder = cinic(tmp_path / "cinic10")
    image = folder / "valid" / "frog" / "1.png"
    whole = image.read_bytes()
    image.write_bytes({"truncated": whole[: len(whole) // 2], "empty": b"", "text": b"no image"}[damage])
    with pytest.raises(DataError, match=r"frog/1\.png"):
        load_source("cinic10", str(folder))
    image.write_bytes(whole)
    (folder / "test" / "dog" / "0.png").write_bytes(b"")
    source = load_source("cinic10", str(folder), skip_broken=True)
    assert (len(source.y), source.num_test, source.skipped) == (59, 19, ("dog/0.png",))


@pytest.mark.parametrize("dataset", ["c100", "svhn", "cinic10"])
def test_a_dataset_that_is_nowhere_says_what_to_put_where(dataset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, dataset, replace(DATASETS[dataset], download=None))  # no attempt
    with pytest.raises(DataError, match="set FEDMATCH_DATA to a folder with"):
        load_source(dataset)


def test_the_published_files_are_known_by_their_checksums() -> None:
    assert {*cifar.MD5} == {"train", "test"}
    assert {*svhn.MD5} == {*svhn.FILES}
    assert all(len(md5) == 32 for md5 in (*cifar.MD5.values(), *svhn.MD5.values()))
