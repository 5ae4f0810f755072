"""Every source on small made-up data: the same images and labels in, whatever the file; bad files by name."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Callable

import numpy as np
import pytest
from PIL import Image

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import cifar, readers, sources
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.datasets.fmnist import FMNIST
from fedmatch_tf.data.sources import load_source
from tests.base.test_safe_pickle import python_2_batch
from tests.conftest import SHARED, made_up_images, needs_shared, save_npz

X, Y = made_up_images(60)


@pytest.fixture(autouse=True)
def _nothing_to_find(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("FEDMATCH_DATA", raising=False)
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "no-keras"))
    _put_debians_images_at(tmp_path / "no-debian", monkeypatch)


def _put_debians_images_at(folder: Path, monkeypatch: pytest.MonkeyPatch, checksum: str | None = None) -> None:
    record = replace(FMNIST, elsewhere=((folder, "Debian"),), checksum=checksum or FMNIST.checksum)
    monkeypatch.setitem(DATASETS, "fmnist", record)


def planes(x: np.ndarray) -> np.ndarray:
    """[n, 3072]: all red, then green, then blue, as CIFAR-10's batches store an image."""
    return np.stack([np.concatenate([image[:, :, c].ravel() for c in range(3)]) for image in x])


def batches(x: np.ndarray, y: np.ndarray, binary: bool) -> dict[str, bytes]:
    """Six files of CIFAR-10's layout, ten examples each."""
    names = [f"{name}.bin" if binary else name for name in cifar.BATCHES]
    result = {}
    for i, name in enumerate(names):
        rows = slice(10 * i, 10 * i + 10)
        data, labels = planes(x[rows]), y[rows].tolist()
        if binary:
            result[name] = b"".join(bytes((label,)) + row.tobytes() for label, row in zip(labels, data))
        else:
            result[name] = python_2_batch(data, labels)
    return result


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def write_archive(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


CIFAR_FORMS: dict[str, Callable[[Path], Path]] = {
    "npz": lambda p: save_npz(p / "c.npz", X, Y, num_test=10),
    "python folder": lambda p: write_folder(p / "py", batches(X, Y, binary=False)),
    "python folder's parent": lambda p: write_folder(p / "up" / "cifar-10-batches-py", batches(X, Y, False)).parent,
    "binary folder": lambda p: write_folder(p / "bin", batches(X, Y, binary=True)),
    "python tar.gz": lambda p: write_archive(p / "py.tar.gz", "cifar-10-batches-py", batches(X, Y, False)),
    "binary tar.gz": lambda p: write_archive(p / "bin.tar.gz", "cifar-10-batches-bin", batches(X, Y, True)),
}


@pytest.mark.parametrize("form", CIFAR_FORMS)
def test_cifar10_is_the_same_from_every_kind_of_file(form: str, tmp_path: Path) -> None:
    source = load_source("c10", str(CIFAR_FORMS[form](tmp_path)))
    np.testing.assert_array_equal(source.x, X)
    np.testing.assert_array_equal(source.y, Y)
    assert (source.x.dtype, source.y.dtype) == (np.uint8, np.int64)
    assert source.checksum == sources.content_checksum(X, Y)
    assert source.class_names[3] == "cat"
    assert source.official is False
    assert source.groups is None


def idx(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.mark.parametrize("zipped", [True, False])
def test_fashion_mnist_is_framed_to_32_and_made_grey_rgb(zipped: bool, tmp_path: Path) -> None:
    grey = X[:, :28, :28, 0]
    contents = (grey[:50], Y[:50].astype(np.uint8), grey[50:], Y[50:].astype(np.uint8))
    names = [name for pair in readers.IDX_PAIRS for name in pair]
    files = {
        f"{name}.gz" if zipped else name: gzip.compress(idx(array)) if zipped else idx(array)
        for name, array in zip(names, contents)
    }
    source = load_source("fmnist", str(write_folder(tmp_path / "idx", files)))
    assert source.x.shape == (60, 32, 32, 3)
    for channel in range(3):
        np.testing.assert_array_equal(source.x[:, 2:30, 2:30, channel], grey)
    assert source.x[:, :2].max() == source.x[:, 30:].max() == source.x[:, :, :2].max() == source.x[:, :, 30:].max() == 0
    np.testing.assert_array_equal(source.y, Y)


def image_folder(root: Path, per_class: dict[str, list[np.ndarray]]) -> Path:
    for name, images in per_class.items():
        (root / name).mkdir(parents=True)
        for i, image in enumerate(images):
            Image.fromarray(image).save(root / name / f"{i:03}.png")
    return root


def test_an_image_folder_has_a_class_a_subfolder_and_knows_its_copies(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "f", {"b": [X[0], X[1], X[0]], "a": [X[2]], "c": [X[3][:, :, 0], X[4]]})
    (folder / "readme.txt").write_text("not a class")
    source = load_source("own", str(folder))
    assert source.class_names == ("a", "b", "c")
    assert source.y.tolist() == [0, 1, 1, 1, 2, 2]
    np.testing.assert_array_equal(source.x[0], X[2])
    np.testing.assert_array_equal(source.x[4], X[3][:, :, :1].repeat(3, axis=2))  # grey
    assert source.groups is not None
    assert source.groups[1] == source.groups[3]
    assert len(set(source.groups.tolist())) == 5


def test_images_are_averaged_when_they_shrink(tmp_path: Path) -> None:
    image = np.zeros((64, 64, 3), np.uint8)
    image[:, 32:] = 200
    folder = image_folder(tmp_path / "f", {"a": [image], "b": [image]})
    x = load_source("covid", str(folder)).x[0]
    assert x.shape == (32, 32, 3)
    assert x[5, 10].tolist() == [0, 0, 0]
    assert x[5, 20].tolist() == [200, 200, 200]
    assert load_source("covid", str(folder), image_size=48).x.shape == (2, 48, 48, 3)


def test_sixteen_bit_grey_is_scaled_and_class_images_may_lie_one_deeper(tmp_path: Path) -> None:
    deep = np.full((32, 32), 51200, np.uint16)  # 200 * 256
    for name in ("a", "b"):
        (tmp_path / name / "images").mkdir(parents=True)
        Image.fromarray(deep).save(tmp_path / name / "images" / "x.png")
    assert load_source("own", str(tmp_path)).x[0, 0, 0].tolist() == [200, 200, 200]


def test_digits_come_with_scikit_learn_and_are_enlarged() -> None:
    source = load_source("digits")
    assert source.x.shape == (1797, 32, 32, 3)
    assert np.bincount(source.y).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (source.x.min(), source.x.max()) == (0, 255)
    corner = source.x[:, :4, 8:12, :].reshape(1797, -1)  # one pixel of the 8x8 image
    assert (corner == corner[:, :1]).all()


def test_an_npz_of_any_classes_and_shape_is_read(tmp_path: Path) -> None:
    x, y = made_up_images(14, num_classes=7, size=20)
    np.savez(tmp_path / "own.npz", x_train=x[..., 0], y_train=y.reshape(-1, 1).astype(np.uint8))
    source = load_source("own", str(tmp_path / "own.npz"))
    assert source.x.shape == (14, 32, 32, 3)
    assert source.class_names == tuple("0123456")


def test_vectors_are_taken_as_they_are(tmp_path: Path) -> None:
    x = np.array([[-1.5, 300.0], [0.25, 2.0], [7.0, 0.0]])
    np.savez(tmp_path / "own.npz", x_train=x[:2], y_train=[0, 1], x_test=x[2:], y_test=[1])
    source = load_source("own", str(tmp_path / "own.npz"))
    assert (source.x.dtype, source.x.tolist(), source.num_test) == (np.float32, x.tolist(), 1)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x_train": X}, "missing y_train"),
        ({"x_train": X, "y_train": Y, "x_test": X}, "missing y_test"),
        ({"x_train": X / 255, "y_train": Y}, "expected uint8"),
        ({"x_train": X.reshape(60, -1) * 1j, "y_train": Y}, "expected uint8 [n,h,w]"),
        ({"x_train": X.reshape(60, -1)[:, :0], "y_train": Y}, "expected uint8 [n,h,w]"),
        ({"x_train": np.full((60, 2), np.nan), "y_train": Y}, "x_train: expected finite vectors"),
        ({"x_train": np.full((60, 2), 1e300), "y_train": Y}, "x_train: expected finite vectors"),
        ({"x_train": X, "y_train": np.eye(10)[Y]}, "Turn one-hot labels into class numbers"),
        ({"x_train": X, "y_train": Y[:-1]}, "received 60 in x_train, 59 in y_train"),
        ({"x_train": X, "y_train": Y, "x_test": X[:, :16], "y_test": Y}, "of one shape"),
        ({"x_train": X, "y_train": Y + 1}, "expected labels 0 .. C-1 with at least one image each"),
        ({"x_train": X, "y_train": Y - 1}, "expected labels 0 .. C-1"),
        ({"x_train": X, "y_train": Y * 0}, "at least two classes"),
        ({"x_train": X[:0], "y_train": Y[:0]}, "received none"),
        ({"x_train": X[..., :2], "y_train": Y}, "1 or 3 channels"),
        ({"x_train": np.array([{}]), "y_train": Y}, "plain arrays"),
    ],
)
def test_a_bad_npz_is_refused_with_the_reason(arrays: dict[str, np.ndarray], message: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DataError) as error:
        load_source("own", str(tmp_path / "bad.npz"))
    assert message in str(error.value)


def damaged(files: dict[str, bytes], name: str, content: bytes | None) -> dict[str, bytes]:
    kept = {key: value for key, value in files.items() if key != name}
    return kept if content is None else {**kept, name: content}


@pytest.mark.parametrize(
    ("binary", "name", "content", "message"),
    [
        (True, "data_batch_2.bin", None, "missing data_batch_2.bin"),
        (True, "data_batch_2.bin", b"\0" * 3072, "truncated: expected records of 3073 bytes, has 3072"),
        (True, "data_batch_2.bin", b"\x0b" + b"\0" * 3072, "expected labels 0 to 9"),
        (False, "test_batch", None, "missing test_batch"),
        (False, "test_batch", b"cos\nsystem\n(S'true'\ntR.", "asks for os.system"),
        (False, "test_batch", b"\x80\x02}q\x01", "truncated"),
        (False, "test_batch", python_2_batch(planes(X[:2]), [1]), "a list of 2 numbers 0 to 9"),
        (False, "test_batch", python_2_batch(planes(X[:2])[:, :-1], [1, 2]), "uint8 [n,3072]"),
    ],
)
def test_damaged_cifar_batches_are_refused_by_name(
    binary: bool, name: str, content: bytes | None, message: str, tmp_path: Path
) -> None:
    folder = write_folder(tmp_path / "cifar", damaged(batches(X, Y, binary), name, content))
    with pytest.raises(DataError) as error:
        load_source("c10", str(folder))
    assert message in str(error.value)
    assert str(folder) in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.npz", b"not a zip", "damaged or unreadable"),
        ("x.npz", b"", "damaged or unreadable"),
        ("x.tar.gz", b"not a tar", "damaged or unreadable"),
        ("x.csv", b"1,2", "expected .npz, .tar.gz, .mat or a folder"),
    ],
)
def test_files_that_are_not_what_they_are_called_are_refused(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError) as error:
        load_source("c10", str(tmp_path / name))
    assert message in str(error.value)


def test_an_archive_cut_short_is_refused(tmp_path: Path) -> None:
    path = CIFAR_FORMS["python tar.gz"](tmp_path)
    path.write_bytes(path.read_bytes()[:-20000])
    with pytest.raises(DataError, match="damaged or unreadable"):
        load_source("c10", str(path))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("train-images-idx3-ubyte", lambda b: b[:-5], "bytes for shape"),
        ("train-images-idx3-ubyte", lambda b: b"\0\0\x08\x01" + b[4:], "3 dimensions"),
        ("train-labels-idx1-ubyte", lambda b: b"", "1 dimensions"),
        ("t10k-labels-idx1-ubyte", lambda b: idx(np.zeros(3, np.uint8)), "one label per image"),
    ],
)
def test_damaged_idx_files_are_refused_by_name(
    name: str, change: Callable[[bytes], bytes], message: str, tmp_path: Path
) -> None:
    folder = idx_folder(tmp_path / "idx", X[:, :28, :28, 0])
    (folder / name).write_bytes(change((folder / name).read_bytes()))
    with pytest.raises(DataError, match=message):
        load_source("fmnist", str(folder))


def test_a_broken_image_or_an_empty_class_is_refused_by_name(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "f", {"a": [X[0]], "b": [X[1]]})
    (folder / "a" / "zzz.png").write_bytes(b"\x89PNG broken")
    with pytest.raises(DataError, match=r"a/zzz\.png: expected an image, PNG, JPEG"):
        load_source("own", str(folder))
    (folder / "a" / "zzz.png").unlink()
    (folder / "c").mkdir()
    (folder / "c" / "notes.txt").write_text("x")
    with pytest.raises(DataError, match="class folder c"):
        load_source("own", str(folder))


def with_broken_images(folder: Path, broken: int) -> Path:
    image_folder(folder, {"a": [X[0], X[2]], "b": [X[1]]})
    for number in range(broken):
        (folder / "a" / f"broken{number:02}.png").write_bytes(b"no image")
    return folder


@pytest.mark.parametrize(("broken", "more"), [(20, ""), (23, "and 3 more")])
def test_up_to_twenty_broken_images_are_named(broken: int, more: str, tmp_path: Path) -> None:
    with pytest.raises(DataError) as error:
        load_source("own", str(with_broken_images(tmp_path / "f", broken)))
    head, *named = str(error.value).splitlines()
    assert f"{broken} of {broken + 3} images can't be read" in head
    assert "--skip-broken" in head
    assert [line.split(":")[0].strip() for line in named[:20]] == [f"a/broken{number:02}.png" for number in range(20)]
    assert [line.strip() for line in named[20:]] == [more] * bool(more)


def test_broken_images_are_left_out_and_named_where_that_is_asked_for(tmp_path: Path) -> None:
    whole = load_source("own", str(image_folder(tmp_path / "whole", {"a": [X[0], X[2]], "b": [X[1]]})))
    source = load_source("own", str(with_broken_images(tmp_path / "f", 2)), skip_broken=True)
    assert source.skipped == ("a/broken00.png", "a/broken01.png")
    assert (source.checksum, source.y.tolist()) == (whole.checksum, [0, 0, 1])
    assert whole.skipped == ()


def test_a_class_without_a_readable_image_is_refused(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "f", {"a": [], "b": [X[1]], "c": [X[0]]})
    (folder / "a" / "only.png").write_bytes(b"no image")
    with pytest.raises(DataError, match="with at least one image each"):
        load_source("own", str(folder), skip_broken=True)


def test_lookup_order_is_source_then_fedmatch_data_then_keras_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = tmp_path / "keras"
    write_folder(keras / "datasets" / "cifar-10-batches-py", batches(X, Y, False))
    monkeypatch.setenv("KERAS_HOME", str(keras))
    with pytest.raises(DataError, match="CIFAR-10 python batches are damaged"):
        load_source("c10")  # Keras' cache must hold the published data, these are made up, and there is no network
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path / "mine"))
    (tmp_path / "mine").mkdir()
    save_npz(tmp_path / "mine" / "cifar10.npz", X[::-1], Y[::-1])
    np.testing.assert_array_equal(load_source("c10").x, X[::-1])  # a user's own folder may hold anything
    other = save_npz(tmp_path / "other.npz", X[:30], Y[:30])
    assert len(load_source("c10", str(other)).x) == 30


def test_a_missing_dataset_says_where_we_looked_and_what_to_put_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path / "mine"))
    with pytest.raises(DataError, match="Looked at:") as error:
        load_source("covid")
    assert str(tmp_path / "mine" / "covid") in str(error.value)
    assert "class folders COVID-19, NORMAL and Viral Pneumonia" in str(error.value)


def test_a_looked_up_covid_folder_must_have_three_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image_folder(tmp_path / "covid", {"a": [X[0]], "b": [X[1]]})
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path))
    with pytest.raises(DataError, match="expected 3 class folders"):
        load_source("covid")


@needs_shared
def test_the_real_cifar10_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMATCH_DATA", str(SHARED / "data"))
    source = load_source("c10")
    assert source.official is True
    assert np.bincount(source.y).tolist() == [6000] * 10
    assert source.x.shape == (60000, 32, 32, 3)


@needs_shared
def test_the_real_xrays_are_read_and_their_copies_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDMATCH_DATA", str(SHARED / "data"))
    source = load_source("covid")
    assert source.class_names == ("COVID-19", "NORMAL", "Viral Pneumonia")
    assert np.bincount(source.y).tolist() == [219, 1341, 1345]
    assert source.groups is not None
    copies = [(source.y == c).sum() - len(np.unique(source.groups[source.y == c])) for c in range(3)]
    assert copies == [23, 1, 7]


@pytest.mark.skipif(
    not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="Debian's dataset-fashion-mnist is not installed"
)
def test_the_real_fashion_mnist_is_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(DATASETS, "fmnist", FMNIST)
    source = load_source("fmnist")
    assert source.official is True
    assert np.bincount(source.y).tolist() == [7000] * 10
    assert source.x.shape == (70000, 32, 32, 3)


def idx_folder(folder: Path, grey: np.ndarray) -> Path:
    files = {}
    for images, labels in readers.IDX_PAIRS:
        files[images], files[labels] = idx(grey), idx(Y.astype(np.uint8))
    return write_folder(folder, files)


@pytest.mark.parametrize("place", ["fashion_mnist", ""])
def test_fashion_mnist_is_looked_up_in_its_folder_and_as_loose_idx_files(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idx_folder(tmp_path / "mine" / place if place else tmp_path / "mine", X[:, :28, :28, 0])
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path / "mine"))
    assert len(load_source("fmnist").y) == 120


def test_a_damaged_copy_of_somebody_else_is_passed_over_and_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keras = idx_folder(tmp_path / "keras" / "datasets" / "fashion-mnist", X[:, :28, :28, 0])
    (keras / "t10k-labels-idx1-ubyte").unlink()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    debian = idx_folder(tmp_path / "debian", X[:, :28, :28, 1])
    known = sources.content_checksum(np.concatenate([X[:, :28, :28, 1]] * 2), np.concatenate([Y, Y]))
    _put_debians_images_at(debian, monkeypatch, known)
    np.testing.assert_array_equal(load_source("fmnist").x[:60, 2:30, 2:30, 0], X[:, :28, :28, 1])
    _put_debians_images_at(debian, monkeypatch, "something else")
    with pytest.raises(DataError) as error:
        load_source("fmnist")
    assert "expected t10k-labels-idx1-ubyte" in str(error.value)
    assert "IDX files are damaged" in str(error.value)


def test_an_archive_member_that_claims_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "ROOM", 0)
    monkeypatch.setattr(readers, "most_bytes", lambda *_: 30_000)
    with pytest.raises(DataError, match=r"data_batch_1.bin inside it: expected at most 15.0 kB, received 30.7 kB"):
        load_source("c10", str(CIFAR_FORMS["binary tar.gz"](tmp_path)))


def test_images_that_would_be_left_out_or_clipped_are_refused(tmp_path: Path) -> None:
    folder = image_folder(tmp_path / "f", {"a": [X[0]], "b": [X[1]]})
    image_folder(folder / "a", {"more": [X[2]]})
    with pytest.raises(DataError, match="images of class a in one folder, found others in its more/"):
        load_source("own", str(folder))
    deep = tmp_path / "deep"
    for name in ("a", "b"):
        (deep / name).mkdir(parents=True)
        Image.fromarray(np.full((32, 32), 70000, np.int32)).save(deep / name / "x.tif")
    with pytest.raises(DataError, match="expected 8 or 16 bits a channel, received mode I"):
        load_source("own", str(deep))
    (tmp_path / "g" / "empty").mkdir(parents=True)
    with pytest.raises(DataError, match="class folder empty, found none"):
        load_source("own", str(tmp_path / "g"))


@pytest.mark.parametrize("damage", ["no array", "huge header", "broken header", "no pixels"])
def test_an_odd_npz_is_refused_without_a_traceback(damage: str, tmp_path: Path) -> None:
    import zipfile

    path = tmp_path / "odd.npz"
    good = io.BytesIO()
    np.save(good, np.zeros((3, 0, 0, 3) if damage == "no pixels" else (3, 4, 4, 3), np.uint8))
    content = good.getvalue()
    if damage == "huge header":
        content = content.replace(b"(3, 4, 4, 3), ", b"(9" + b"9" * 10 + b",)")
    if damage == "broken header":
        content = content.replace(b"}", b"(")
    labels = io.BytesIO()
    np.save(labels, np.arange(3))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x_train.npy", b"only text" if damage == "no array" else content)
        archive.writestr("y_train.npy", labels.getvalue())
    with pytest.raises(DataError, match=r"odd\.npz: "):
        load_source("own", str(path))


def saved_as(kind: str) -> bytes:
    content = io.BytesIO()
    Image.new("P" if kind == "BLP" else "RGB", (4, 4)).save(content, kind)
    return content.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"P6 2 2 255 " + bytes(12),
        b"\0\0\0\x20ftypavif" + bytes(40),
        b"qoif" + bytes(9),
        saved_as("DDS"),
        saved_as("BLP"),
        saved_as("PCX"),
        b"FTEX" + bytes(40),
        b"SIMPLE  =                    T".ljust(2880),
    ],
    ids=["ppm", "avif", "qoi", "dds", "blp", "pcx", "ftex", "fits"],
)
def test_only_the_formats_that_are_named_are_decoded_whatever_a_file_is_called(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "image.png").write_bytes(content)
    with pytest.raises(DataError, match=r"image.png: expected an image, PNG, JPEG, BMP, GIF, WEBP, TIFF"):
        readers.read_image(tmp_path / "image.png", 32)
