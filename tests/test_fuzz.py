"""Whatever happened to a file, its reader reads it or refuses it: DataError and nothing else, in few words.

Pickles and MATLAB's files have such a test beside their readers.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import pickle
import shutil
import struct
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import make_config
from fedmatch_tf.data import cifar, loader, readers
from fedmatch_tf.federation.inputs import read_kernels, read_probe
from fedmatch_tf.networks.params import Params
from fedmatch_tf.results import compare, report_tables, results
from fedmatch_tf.results.summary import summarise
from fedmatch_tf.runs import checkpoint, store
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import ensure_partitions
from tests.results.made_up_runs import line, write_rounds, write_run
from tests.results.test_compare import write_original
from tests.runs.test_checkpoint import saved

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (4, 32, 32, 3), np.uint8)
IDX = {
    name: bytes((0, 0, 8, array.ndim)) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()
    for pair in readers.IDX_PAIRS
    for name, array in zip(pair, (IMAGES[..., 0], np.zeros(4, np.uint8)))
}
BATCH = pickle.dumps({b"data": IMAGES.reshape(4, -1), b"labels": [0, 1, 2, 3]}, protocol=2)
KERNELS = [(3, 3, 1, 2), (2, 4)]
HELD = np.ones(20, np.float32)


class Reader(NamedTuple):
    """A reader and a file that it reads."""

    write: Callable[[Path], Path]  # what is needed, into a folder; returns what will be damaged
    read: Callable[[Path], Any]


def npz(folder: Path) -> Path:
    np.savez(folder / "own.npz", x_train=IMAGES, y_train=np.arange(4), x_test=IMAGES, y_test=np.arange(4))
    return folder / "own.npz"


def packed_npz(folder: Path) -> Path:
    np.savez_compressed(folder / "own.npz", x_train=IMAGES // 128, y_train=np.arange(4))
    return folder / "own.npz"


def idx(number: int, packed: bool = False) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for name, content in IDX.items():
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(content, 1) if packed else content)
        return sorted(folder.iterdir())[number]

    return write


def archive(mode: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / ("cifar.tar.gz" if mode == "w:gz" else "cifar.tar")
        with tarfile.open(path, mode) as file:  # type: ignore[call-overload]
            for name in cifar.BATCHES:
                member = tarfile.TarInfo(name)
                member.size = len(BATCH)
                file.addfile(member, io.BytesIO(BATCH))
        return path

    return write


def image(kind: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        Image.fromarray(IMAGES[0]).save(folder / f"image.{kind}")
        return folder / f"image.{kind}"

    return write


def partitions(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        config = make_config("lc-biid-digits", num_clients=2, num_test=10, num_valid=10, dataset_path=str(MADE))
        if not MADE.exists():
            ensure_partitions(config, progress_for(True))
        shutil.copytree(config.partition_folder, folder / config.task)
        if name != "manifest.json":
            (folder / config.task / "manifest.json").unlink()
        return folder / config.task / name

    return write


MADE = Path()  # set by the fixture below


def kernels_npz(folder: Path) -> Path:
    np.savez(folder / "weights.npz", **{f"sigma_{n}": np.ones(shape) for n, shape in enumerate(KERNELS)})
    return folder / "weights.npz"


def kernels_npy(folder: Path) -> Path:
    arrays = np.empty(2, object)
    arrays[:] = [np.ones(shape, np.float32) for shape in KERNELS]
    np.save(folder / "weights.npy", arrays, allow_pickle=True)
    return folder / "weights.npy"


def probe(folder: Path) -> Path:
    np.save(folder / "probe.npy", np.ones((1, 4, 4, 3), np.float32))
    return folder / "probe.npy"


def clients_file(folder: Path) -> Path:
    (folder / "copies").mkdir()
    store._write(folder / "0-1.npy", Params(HELD))
    return folder / "0-1.npy"


def state(folder: Path) -> Path:
    saved(folder)
    return folder / "state.npz"


def a_run(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        write_run(folder / "run", [0.1, 0.2])
        confusion = {"matrix": [[1, 2], [3, 4]], "class_names": ["a", "b"]}
        (folder / "run" / "confusion.json").write_text(json.dumps(confusion))
        return folder / "run" / name

    return write


def original(folder: Path) -> Path:
    write_original(folder / "original", [0.1, 0.2])
    return folder / "original" / "server.txt"


READERS = {
    "npz": Reader(npz, lambda path: readers.read(path, 32)),
    "packed npz": Reader(packed_npz, lambda path: readers.read(path, 32)),
    **{f"idx {number}": Reader(idx(number), lambda path: readers.read(path.parent, 32)) for number in range(2)},
    "packed idx": Reader(idx(0, packed=True), lambda path: readers.read(path.parent, 32)),
    "tar": Reader(archive("w"), lambda path: readers.read(path, 32)),
    "tar.gz": Reader(archive("w:gz"), lambda path: readers.read(path, 32)),
    **{kind: Reader(image(kind), lambda path: readers.read_image(path, 32)) for kind in ("png", "jpeg", "bmp", "gif")},
    **{kind: Reader(image(kind), lambda path: readers.read_image(path, 32)) for kind in ("webp", "tiff")},
    "manifest": Reader(
        partitions("manifest.json"), lambda path: loader.open_partitions(path.parents[1], "lc-biid-digits")
    ),
    "partition": Reader(
        partitions("test_digits.npy"), lambda path: loader.open_partitions(path.parents[1], "lc-biid-digits")
    ),
    "weights .npz": Reader(kernels_npz, lambda path: read_kernels(path, KERNELS)),
    "weights .npy": Reader(kernels_npy, lambda path: read_kernels(path, KERNELS)),
    "probe": Reader(probe, lambda path: read_probe(path, (4, 4, 3))),
    "client's file": Reader(clients_file, lambda path: store._read_file(path, zlib.crc32(HELD.tobytes()))),
    "checkpoint": Reader(state, checkpoint._read),
    **{
        name: Reader(a_run(name), lambda path: results.read(path.parent))
        for name in ("config.json", "rounds.jsonl", "confusion.json")
    },
    "original's log": Reader(original, lambda path: compare.read_original(path.parent)),
}


changes = st.lists(
    st.tuples(
        st.floats(0, 1, exclude_max=True),
        st.sampled_from(["bit", "large", "remove", "repeat", "cut"]),
        st.integers(0, 7),
    ),
    min_size=1,
    max_size=3,
)


def damaged(content: bytes, how: list[tuple[float, str, int]]) -> bytes:
    """The content after these changes; half of them are near its beginning, where headers are."""
    part = bytearray(content)
    for place, kind, number in how:
        within = min(len(part), 200) if number % 2 else len(part)
        at = int(place * within)
        if kind == "bit" and part:
            part[at] ^= 1 << number
        elif kind == "large":
            part[at : at + 4] = (b"\xff\xff\xff\x7f", b"\xff" * 4, b"9999", b"\0\0\0\x80")[number % 4]
        elif kind == "remove":
            del part[at : at + 1 + number]
        elif kind == "repeat":
            part[at:at] = part[at : at + 8] * (1 + number)
        elif kind == "cut":
            del part[at:]
    return bytes(part)


@pytest.fixture(scope="module", autouse=True)
def _made(tmp_path_factory: pytest.TempPathFactory) -> None:
    global MADE
    MADE = tmp_path_factory.mktemp("fuzz") / "made"


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    reader = READERS[name]
    path = reader.write(tmp_path)
    whole = path.read_bytes()
    reader.read(path)

    @settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(changes)
    def check(how: list[tuple[float, str, int]]) -> None:
        path.write_bytes(damaged(whole, how))
        with contextlib.suppress(DataError):
            reader.read(path)

    check()


ODD = st.sampled_from(
    [None, 0, -1, 2.5, "x", "", [], {}, [0], [[0]], {"0": 0}, {"0": [1]}, True, 1e39, 1e300, 10**30, float("nan")]
)
COSTS = [(way, part) for way in ("s2c", "c2s") for part in ("sum", "sigma", "psi", "helpers", "bytes")]


@settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from([*((name,) for name in line(0, 0.5)), *COSTS]), value=ODD, number=st.integers(0, 1))
@example(place=("clients",), value=None, number=0)
@example(place=("clients",), value=3, number=1)
@example(place=("clients",), value=[[0]], number=1)
@example(place=("dropped",), value=3, number=0)
@example(place=("s2c", "sigma"), value=-1, number=0)
def test_a_report_leaves_out_a_run_with_a_bad_round_and_names_it(
    place: tuple[str, ...], value: Any, number: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    logs = tmp_path_factory.mktemp("logs")
    write_run(logs / "good", [0.1, 0.2])
    lines = [line(0, 0.5), line(1, 0.5)]
    target: Any = lines[number]
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    write_rounds(write_run(logs / "bad", [0.5, 0.5], seed=2), lines)
    found = results.find([str(logs / "*")])
    bad, good = found
    assert (good.state, len(good.lines)) == (results.FINISHED, 2)
    assert bad.state == results.FINISHED or f"line {number + 1}: round {number + 1}" in bad.remark
    summaries = [summarise(group) for group in results.group(found)]
    report_tables.summary_table(summaries)
    report_tables.runs_table(found)
    report_tables.rounds_csv(found)
    for table in (report_tables.accuracy_table, report_tables.costs_table):
        table(summaries[0].group.data, summaries)
    shutil.rmtree(logs)
