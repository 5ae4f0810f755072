"""Files that are not what they look like: pipes, devices, and archives that stand for gigabytes."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError, printable, short
from fedmatch_tf.config import make_config
from fedmatch_tf.data import cifar, readers
from fedmatch_tf.data.raw import silent
from fedmatch_tf.data.readers import _read_images, read_image_folder
from fedmatch_tf.data.sources import load_source
from fedmatch_tf.results import results
from tests.conftest import run

MB = 10**6
LIMIT = 153_600_000  # bytes that are unpacked at most
IMAGES = np.random.default_rng(0).integers(0, 256, (6000, 32, 32, 3), np.uint8)


def pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def device(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize(("make", "kind"), [(pipe, "a pipe"), (device, "a device")])
@pytest.mark.timeout(20)
def test_only_regular_files_are_read(make: Callable[[Path], Path], kind: str, tmp_path: Path) -> None:
    path = make(tmp_path / "file")
    for read in (untrusted.read_bytes, untrusted.read_text, lambda one: list(untrusted.lines(one, 10, 10))):
        with pytest.raises(DataError, match=f"file: expected a regular file, found {kind}"):
            read(path)
    with pytest.raises(DataError, match="found a folder"):
        untrusted.read_bytes(tmp_path)


def test_links_to_files_are_read_and_sizes_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert untrusted.read_bytes(tmp_path / "link", 5) == b"12345"
    with pytest.raises(DataError, match="link: expected at most 4 bytes, received 5 bytes"):
        untrusted.read_bytes(tmp_path / "link", 4)
    assert [untrusted.in_words(size) for size in (999, 2500, 13_000_000, 5_800_000_000)] == [
        *("999 bytes", "2.5 kB", "13.0 MB", "5.8 GB")
    ]


def npz_bomb(folder: Path, images: int = 65_000) -> Path:
    """200 MB of zeros in 200 kB."""
    path = folder / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x_train.npy", "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(
                member, {"descr": "|u1", "fortran_order": False, "shape": (images, 32, 32, 3)}
            )
            for _ in range(images // 1000):
                member.write(bytes(1000 * 3072))
        labels = io.BytesIO()
        np.save(labels, np.arange(images) % 10)
        archive.writestr("y_train.npy", labels.getvalue())
    return path


def idx_bomb(folder: Path) -> Path:
    for pair, images in zip(readers.IDX_PAIRS, (200_000, 10)):
        for name, shape in zip(pair, ((images, 32, 32), (images,))):
            with gzip.open(folder / f"{name}.gz", "wb", compresslevel=1) as file:
                file.write(bytes((0, 0, 8, len(shape))) + struct.pack(f">{len(shape)}I", *shape))
                for _ in range(images // 1000):
                    file.write(bytes(1000 * int(np.prod(shape[1:]))))
    return folder


def tar_bomb(folder: Path) -> Path:
    path = folder / "cifar-10-python.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        info = tarfile.TarInfo("data_batch_1")
        info.size = 200 * MB
        file.write(info.tobuf())
        for _ in range(200):
            file.write(bytes(MB))
    return path


def long_name(folder: Path) -> Path:
    """A name of 100 MB, which tarfile would read in one go."""
    path = folder / "cifar-10-python.tar.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        info = tarfile.TarInfo("././@LongLink")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, 100 * MB
        file.write(info.tobuf())
        for _ in range(100):
            file.write(b"a" * MB)
    return path


def mat_bomb(folder: Path) -> Path:
    for name in ("train", "test"):
        images = np.zeros((32, 32, 3, 10), np.uint8)
        savemat(folder / f"{name}_32x32.mat", {"X": images, "y": np.ones((10, 1), np.uint8)}, do_compression=True)
    savemat(
        folder / "train_32x32.mat", {"X": images.repeat(1000, axis=3), "y": np.ones((10_000, 1))}, do_compression=True
    )
    return folder


def sparse_mat(folder: Path) -> Path:
    """9 GB of nothing, which take no room on the disk."""
    mat_bomb(folder)
    (folder / "train_32x32.mat").write_bytes((folder / "test_32x32.mat").read_bytes())
    with (folder / "extra_32x32.mat").open("wb") as file:
        file.write((folder / "test_32x32.mat").read_bytes()[:128])
        file.truncate(9 * 10**9)
    return folder


# Dataset, what makes the file, what the message says.
BOMBS: dict[str, tuple[str, Callable[[Path], Path], str]] = {
    "npz": ("own", npz_bomb, r"its arrays: expected at most 153.6 MB, received 200.2 MB"),
    "idx": ("fmnist", idx_bomb, r"its images: expected at most 51.2 MB, received 205.0 MB"),
    "tar": ("c10", tar_bomb, r"data_batch_1 inside it: expected at most 76.8 MB, received 200.0 MB"),
    "mat": ("svhn", mat_bomb, r"train_32x32.mat: expected at most 5,000 images in all files, received more"),
    "sparse": ("svhn", sparse_mat, r"extra_32x32.mat: expected an array, found an element of kind 0"),
    "name": ("c10", long_name, r"expected names of files, received one of more than 1.0 MB"),
}


@pytest.mark.parametrize("kind", BOMBS)
def test_what_unpacks_to_more_than_was_asked_for_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedmatch_tf.data.readers.most_bytes", lambda *_: LIMIT)
    monkeypatch.setattr("fedmatch_tf.data.svhn.MOST_IMAGES", 5_000)
    dataset, make, message = BOMBS[kind]
    path = make(tmp_path)
    with pytest.raises(DataError, match=message):
        most_held(lambda: load_source(dataset, str(path)), 10 * MB)


def most_held(read: Callable[[], Any], most: int) -> Any:
    """What comes back, whatever it is; fails if Python and NumPy held more bytes than that meanwhile."""
    tracemalloc.start()
    try:
        return read()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= most


def pickled(rows: slice) -> bytes:
    data = IMAGES[rows].transpose(0, 3, 1, 2).reshape(-1, 3072)
    return pickle.dumps({"data": data, "labels": [1] * len(data), "fine_labels": [1] * len(data)}, protocol=3)


def cifar_10(folder: Path) -> Path:
    with tarfile.open(folder / "cifar-10-python.tar.gz", "w:gz", compresslevel=1) as archive:
        for number, name in enumerate(cifar.BATCHES):
            member, content = tarfile.TarInfo(name), pickled(slice(1000 * number, 1000 * number + 1000))
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return folder / "cifar-10-python.tar.gz"


def cifar_100(folder: Path) -> Path:
    (folder / "train").write_bytes(pickled(slice(5000)))
    (folder / "test").write_bytes(pickled(slice(5000, None)))
    return folder


def idx(folder: Path) -> Path:
    for pair, rows in zip(readers.IDX_PAIRS, (slice(5000), slice(5000, None))):
        for name, array in zip(pair, (IMAGES[rows].reshape(-1, 32, 96), np.ones(len(IMAGES[rows]), np.uint8))):
            header = bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape)
            (folder / f"{name}.gz").write_bytes(gzip.compress(header + array.tobytes(), 1))
    return folder


def npz(folder: Path) -> Path:
    y = np.ones(6000, int)
    np.savez_compressed(
        folder / "own.npz", x_train=IMAGES[:3000], y_train=y[:3000], x_test=IMAGES[3000:], y_test=y[3000:]
    )
    return folder / "own.npz"


def mat(folder: Path) -> Path:
    for name, rows in (("train", slice(3000)), ("test", slice(3000, None))):
        x = IMAGES[rows].transpose(1, 2, 3, 0)
        content = {"X": x, "y": np.ones((x.shape[3], 1))}
        savemat(folder / f"{name}_32x32.mat", content, do_compression=name == "test")
    return folder


# A pickle is held as bytes and as an array, so CIFAR-100's large file counts twice, and no file may be more than half.
@pytest.mark.parametrize(
    ("make", "accepted"),
    [(cifar_10, 6000), (cifar_100, 10_000), (idx, 6000), (npz, 6000), (mat, 6000)],
    ids=["cifar-10", "cifar-100", "idx", "npz", "mat"],
)
def test_a_reader_holds_at_most_one_and_a_half_times_what_it_accepts(
    make: Callable[[Path], Path], accepted: int, tmp_path: Path
) -> None:
    measured = run(sys.executable, "-c", MEASURE, str(make(tmp_path)))
    grown, checksum = map(int, measured.stdout.split())
    assert checksum == zlib.crc32(IMAGES.data)
    assert grown <= 1.5 * accepted * 3072 + 4 * MB


MEASURE = """
import resource, sys, zlib
from pathlib import Path
from fedmatch_tf.data import readers
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
raw = readers.read(Path(sys.argv[1]), 32)
print(1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before), zlib.crc32(raw.x))
"""


def test_numbers_in_the_other_order_count_twice(tmp_path: Path) -> None:
    x = np.asfortranarray(IMAGES[:10, :4])
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(10))
    np.testing.assert_array_equal(readers.read_npz(tmp_path / "own.npz", 2 * x.nbytes + 80).x, x)
    with pytest.raises(DataError, match="its arrays: expected at most"):
        readers.read_npz(tmp_path / "own.npz", 2 * x.nbytes + 79)


@pytest.mark.parametrize(
    ("line", "remark"), [(b"{}\n", "rounds.jsonl, line 1: "), (b"[", "expected at most 1.0 MB in a line")]
)
def test_rounds_that_stand_for_gigabytes_are_read_line_by_line(line: bytes, remark: str, tmp_path: Path) -> None:
    config = {"settings": asdict(make_config("lc-biid-digits"))}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with gzip.open(tmp_path / "rounds.jsonl.gz", "wb", compresslevel=1) as file:
        file.write(line * 4 * MB)
    result = most_held(lambda: results.read(tmp_path), 5 * MB)
    assert remark in result.remark


def test_the_limit_follows_from_the_images_and_has_room_for_what_is_published() -> None:
    assert readers.most_bytes(32) == 2_457_600_000  # eight times the 307,200,000 bytes of 100,000 images
    assert readers.most_bytes(32, 270_000) == 6_635_520_000
    assert readers.most_bytes(8) > 60_000 * 3 * 32 * 32, "CIFAR-10 can be made smaller"


def sparse_chain(folder: Path) -> Path:
    """A sparse file whose map goes on for 40 MB: every header says that there is another one."""
    path = folder / "cifar-10-python.tar.gz"
    info = tarfile.TarInfo("data_batch_1")
    info.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482] = 1  # it is extended
    header[148:156] = b"        "
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    more = b"".join(b"%011o\0%011o\0" % (place, 1) for place in range(1, 22)) + b"\1" + bytes(7)
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(header)
        for _ in range(40 * MB // 512):
            file.write(more)
    return path


def nested_names(folder: Path) -> Path:
    path = folder / "cifar-10-python.tar"
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1
    path.write_bytes((info.tobuf() + b"a".ljust(512, b"\0")) * 5000)
    return path


@pytest.mark.parametrize(("make", "message"), [(sparse_chain, "of names and the like"), (nested_names, "damaged")])
def test_a_tar_whose_headers_never_end_is_refused(make: Callable[[Path], Path], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_source("c10", str(make(tmp_path)))


def zip_of(path: Path, name: str, kind: int) -> Path:
    content = io.BytesIO()
    np.save(content, np.zeros((10, 4, 4, 3), np.uint8))
    with zipfile.ZipFile(path, "w", kind) as archive:
        archive.writestr(name, content.getvalue())
    return path


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("x_train", zipfile.ZIP_STORED, "expected arrays, each once, received"),
        ("x_train.npy", zipfile.ZIP_BZIP2, "expected arrays that are stored plainly or deflated"),
        ("x_train.npy", zipfile.ZIP_LZMA, "expected arrays that are stored plainly or deflated"),
    ],
)
def test_an_npz_that_numpy_would_not_write_is_refused(name: str, kind: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        readers.read_npz(zip_of(tmp_path / "odd.npz", name, kind), 10_000)


def test_a_matlab_file_of_no_known_byte_order_is_refused(tmp_path: Path) -> None:
    path = mat_bomb(tmp_path) / "train_32x32.mat"
    content = bytearray(path.read_bytes())
    content[126:128] = b"XX"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"train_32x32.mat: expected a MATLAB file of format 5, whose header"):
        load_source("svhn", str(tmp_path))


def test_an_image_of_too_many_pixels_is_a_message_and_no_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("RGB", (11, 10)).save(tmp_path / "large.png")
    with pytest.raises(DataError, match=r"large.png: not a readable image .*110 pixels.* limit of 100 pixels"):
        readers.read_image(tmp_path / "large.png", 32)


@pytest.mark.parametrize("read", ["read_bytes(path)", "read_text(path)", "lines(zipped, 2**34, 2**34).__next__()"])
def test_a_small_file_needs_little_memory_however_large_it_might_be(read: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 1000)
    (tmp_path / "file.gz").write_bytes(gzip.compress(b"x" * 1000))
    code = (
        "from pathlib import Path\nfrom fedmatch_tf.base import untrusted\n"
        f"path, zipped = Path({str(tmp_path / 'file')!r}), Path({str(tmp_path / 'file.gz')!r})\n"
        f"print(len(untrusted.{read}))"
    )
    assert with_little_memory(code).stdout == "1000\n"


def test_more_images_than_memory_should_hold_are_refused_before_they_are_read(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "x.png")
    with pytest.raises(DataError, match=r"2 images at 32x32: expected at most 5.0 kB, received 6.1 kB"):
        read_image_folder(tmp_path, partial(_read_images, 32, silent, False, 5000, False))


def test_a_bomb_takes_no_memory(tmp_path: Path) -> None:
    """In a process that may have 800 MB: what unpacks to 1 GB must be refused before, not when memory is full."""
    path = npz_bomb(tmp_path, 326_000)
    code = (
        "from fedmatch_tf.data.sources import load_source\nfrom fedmatch_tf.base.errors import DataError\n"
        f"try:\n    load_source('own', {str(path)!r}, 16)\nexcept DataError as error:\n    print(error)\n"
    )
    result = with_little_memory(code)
    assert "expected at most 614.4 MB, received 1.0 GB" in result.stdout, result.stderr


LIMIT_MEMORY = "import resource\nresource.setrlimit(resource.RLIMIT_AS, (800_000_000, 800_000_000))"


def with_little_memory(code: str) -> subprocess.CompletedProcess[str]:
    """Python code in a process that may have 800 MB."""
    return run(sys.executable, "-c", f"{LIMIT_MEMORY}\n{code}", OPENBLAS_NUM_THREADS="1")


def test_texts_are_safe_to_show() -> None:
    assert printable("a\x1b[31mred\x07\r\x9b\u202e\ud800 tab\tline\nσ") == (
        "a\\x1b[31mred\\x07\\r\\x9b\\u202e\\ud800 tab\tline\nσ"
    )
    assert str(DataError("a\x1bb")) == "a\\x1bb"
    assert short("x" * 5000) == "'" + "x" * 199 + "... (5002 characters)"
    assert short(3) == "3"
    assert short(10**5000) == "a whole number of more than 100 digits"
