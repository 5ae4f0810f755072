"""CIFAR-10 and CIFAR-100 as published: pickled batches made by Python 2, or binary records."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from fedmatch_tf.base import safe_pickle
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.raw import Raw, check_complete

PLANES = 3 * 32 * 32  # red, green and blue of an image
BATCHES = (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch")
# Published with CIFAR-100; what differs is used, with a note.
MD5 = {
    "train": "16019d7e3df5f24257cddd939b257f8d",
    "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
}


class Part(NamedTuple):
    """A file's images and labels."""

    planes: np.ndarray  # uint8 [n, 3072]
    y: np.ndarray  # int64 [n]
    md5: str  # empty where none is published


class Format(NamedTuple):
    """One way in which CIFAR is published."""

    name: str
    files: tuple[str, ...]  # in order: train before test
    label_key: str  # of a pickled batch
    num_labels: int  # bytes before the pixels of a binary record; the last one counts
    num_classes: int
    binary: bool

    def decode(self, name: str, content: bytes) -> Part:
        """What one of its files holds."""
        planes, y = self._records(name, content) if self.binary else self._pickled(name, content)
        if len(y) and not (y.min() >= 0 and y.max() < self.num_classes):
            raise DataError(f"{name}: expected labels 0 to {self.num_classes - 1}, received {y.min()} to {y.max()}")
        return Part(planes, y, hashlib.md5(content).hexdigest() if name in MD5 else "")

    def _pickled(self, name: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
        try:
            batch = safe_pickle.loads(content, encoding="bytes")
        except DataError as error:
            raise DataError(f"{name}: {error}") from error
        batch = batch if isinstance(batch, dict) else {}
        data, y = (batch.get(key.encode(), batch.get(key)) for key in ("data", self.label_key))  # Python 2's are bytes
        if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != PLANES:
            raise DataError(f"{name}: expected `data` uint8 [n,{PLANES}]")
        largest, labels = self.num_classes - 1, y if isinstance(y, list) else []
        if len(labels) != len(data) or not all(isinstance(label, int) and 0 <= label <= largest for label in labels):
            raise DataError(f"{name}: expected `{self.label_key}`, a list of {len(data)} numbers 0 to {largest}")
        return data, np.array(labels, np.int64)

    def _records(self, name: str, content: bytes) -> tuple[np.ndarray, np.ndarray]:
        size = self.num_labels + PLANES
        if not content or len(content) % size:
            raise DataError(f"{name}: truncated: expected records of {size} bytes, has {len(content)}")
        records = np.frombuffer(content, np.uint8).reshape(-1, size)
        return records[:, self.num_labels :], records[:, self.num_labels - 1].astype(np.int64)


FORMATS = (
    Format("CIFAR-10 python batches", BATCHES, "labels", 1, 10, False),
    Format("CIFAR-10 binary batches", tuple(f"{name}.bin" for name in BATCHES), "", 1, 10, True),
    Format("CIFAR-100 python files", ("train", "test"), "fine_labels", 1, 100, False),
    Format("CIFAR-100 binary files", ("train.bin", "test.bin"), "", 2, 100, True),  # coarse label, fine label
)
FILES = tuple(name for each in FORMATS for name in each.files)
FOLDERS = ("cifar-10-batches-py", "cifar-10-batches-bin", "cifar-100-python", "cifar-100-binary")


def read(files: Iterable[tuple[str, bytes]]) -> Raw:
    """Images and labels of files that come one after the other, of which none is kept longer than it is needed."""
    parts: dict[str, Part] = {}
    for name, content in files:
        parts[name] = format_of([name]).decode(name, content)
        del content
    each = format_of(parts)
    check_complete(parts, each.files, f"{each.name}: {len(each.files)} files")
    known = [MD5.get(name) for name in each.files]
    published = [parts[name].md5 for name in each.files] == known if all(known) else None
    sizes = [len(parts[name].y) for name in each.files]
    x, y = np.empty((sum(sizes), 32, 32, 3), np.uint8), np.empty(sum(sizes), np.int64)
    begin = 0
    for name in each.files:
        part = parts.pop(name)
        rows = slice(begin, begin + len(part.y))
        x[rows], y[rows] = part.planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), part.y
        begin = rows.stop
    return Raw(x, y, each.name, num_test=sizes[-1], published=published)


def format_of(names: Collection[str]) -> Format:
    """The format of which some files are there; the first one if there is none."""
    return next((each for each in FORMATS if any(name in names for name in each.files)), FORMATS[0])
