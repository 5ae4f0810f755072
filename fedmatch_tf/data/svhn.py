"""SVHN, house numbers in the cropped format: MATLAB files with images X [32, 32, 3, n] and labels y [n, 1]."""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import matlab
from fedmatch_tf.data.raw import Raw, check_complete

FILES = ("train_32x32.mat", "test_32x32.mat", "extra_32x32.mat")  # the last one is optional
MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
}
MOST_IMAGES = 1_000_000  # 630,420 are published
_IMAGE = (32, 32, 3)
_STEP = 256  # images that are put in order at a time


def read(paths: Mapping[str, Path]) -> Raw:
    """Training images, `extra` ones if they are there, then test images."""
    check_complete(paths, FILES[:2], "SVHN's train_32x32.mat and test_32x32.mat side by side")
    order = [name for name in (FILES[0], FILES[2], FILES[1]) if name in paths]
    with ExitStack() as stack:
        files = {name: stack.enter_context(untrusted.open_regular(paths[name])) for name in order}
        labels: list[np.ndarray] = []
        for name in order:
            labels.append(_labels(name, files[name], MOST_IMAGES - sum(map(len, labels))))
        y = np.concatenate(labels)
        x = np.empty((len(y), *_IMAGE), np.uint8)
        begin = 0
        for name, part in zip(order, labels):
            _read_images(name, files[name], x[begin : begin + len(part)])
            begin += len(part)
        published = all(_md5(files[name]) == MD5[name] for name in order)
    return Raw(x, y, "SVHN", num_test=len(labels[-1]), published=published)


def _labels(name: str, file: IO[bytes], most: int) -> np.ndarray:
    """Digits int64 [n], one for each image that the file has; no more than so many."""
    try:
        arrays = matlab.find(file, ("X", "y"))
        x, y = arrays.get("X"), arrays.get("y")
        if x is None or x.dtype != np.uint8 or len(x.shape) != 4 or x.shape[:3] != _IMAGE:
            raise DataError(f"expected images X uint8 [32,32,3,n], received {_kind(x)}")
        if y is None or math.prod(y.shape) != x.shape[3]:
            raise DataError(f"expected labels y, whole numbers [{x.shape[3]},1], received {_kind(y)}")
        if x.shape[3] > most:
            raise DataError(f"expected at most {MOST_IMAGES:,} images in all files, received more")
        digits = np.concatenate([np.zeros(0, np.int64), *matlab.pieces(file, y, 2**16)])
    except (DataError, ValueError, OSError, zlib.error) as error:
        raise DataError(f"{name}: {error}") from error
    if not np.isin(digits, np.arange(1, 11)).all():
        raise DataError(f"{name}: expected labels 1 to 10, received {digits.min():g} to {digits.max():g}")
    result: np.ndarray = digits.astype(np.int64) % 10  # the digit 0 is stored as 10
    return result


def _read_images(name: str, file: IO[bytes], x: np.ndarray) -> None:
    """Puts the file's images into the array [n, 32, 32, 3]; columns stand before rows in the file."""
    try:
        stored = matlab.find(file, ("X",))["X"]
        begin = 0
        for piece in matlab.pieces(file, stored, _STEP * 32 * 32 * 3):
            images = piece.reshape(-1, 3, 32, 32).transpose(0, 3, 2, 1)
            x[begin : begin + len(images)] = images
            begin += len(images)
    except (DataError, OSError, zlib.error) as error:
        raise DataError(f"{name}: {error}") from error


def _md5(file: IO[bytes]) -> str:
    digest = hashlib.md5()
    file.seek(0)
    while piece := file.read(2**20):
        digest.update(piece)
    return digest.hexdigest()


def _kind(stored: matlab.Stored | None) -> str:
    return "none" if stored is None else f"{stored.dtype} {list(stored.shape)}"
