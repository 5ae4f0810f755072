"""SVHN, house numbers in the cropped format: MATLAB files with images X [32, 32, 3, n] and labels y [n, 1]."""

from __future__ import annotations

import hashlib
import io
import struct
import zlib
from collections.abc import Mapping

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.raw import Raw, check_complete

FILES = ("train_32x32.mat", "test_32x32.mat", "extra_32x32.mat")  # the last one is optional
MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
    "extra_32x32.mat": "a93ce644f1a588dc4d68dda5feec44a7",
}


def read(files: Mapping[str, bytes], most: int) -> Raw:
    """Training images, `extra` ones if they are there, then test images.

    Args:
        most: bytes that a file may unpack to.
    """
    check_complete(files, FILES[:2], "SVHN's train_32x32.mat and test_32x32.mat side by side")
    order = [name for name in (FILES[0], FILES[2], FILES[1]) if name in files]
    parts = [_decode(name, files[name], most) for name in order]
    x, y = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
    published = all(hashlib.md5(files[name]).hexdigest() == MD5[name] for name in order)
    return Raw(x, y, "SVHN", num_test=len(parts[-1][1]), published=published)


def _check_unpacked(name: str, content: bytes, most: int) -> None:
    """Raises DataError if what is packed in the file would take more memory than that.

    A file is a header and elements, each with its kind and size; an element of kind 15 is packed by zlib.
    """
    orders = {b"IM": "<", b"MI": ">"}
    if content[126:128] not in orders:
        raise DataError(f"{name}: expected a MATLAB file, whose header tells the order of its bytes")
    left, at, order = most, 128, orders[content[126:128]]
    while at + 8 <= len(content):
        kind, size = struct.unpack_from(f"{order}II", content, at)
        if kind == 15:
            unpacker = zlib.decompressobj()
            piece = content[at + 8 : at + 8 + size]
            while piece and left >= 0:
                left -= len(unpacker.decompress(piece, 2**20))
                piece = unpacker.unconsumed_tail
        if left < 0:
            raise DataError(f"{name}: expected at most {untrusted.in_words(most)} when unpacked, received more")
        at += 8 + size


def _decode(name: str, content: bytes, most: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.io import loadmat  # takes a while to load

    try:
        _check_unpacked(name, content, most)
        arrays = loadmat(io.BytesIO(content), variable_names=("X", "y"))
    except DataError:
        raise
    except Exception as error:  # SciPy raises many kinds for a damaged file
        raise DataError(f"{name}: expected a MATLAB file ({type(error).__name__}: {error})") from error
    x, y = arrays.get("X"), arrays.get("y")
    if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.ndim != 4 or x.shape[:3] != (32, 32, 3):
        raise DataError(f"{name}: expected images X uint8 [32,32,3,n], received {_kind(x)}")
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "iu" or y.size != x.shape[3]:
        raise DataError(f"{name}: expected labels y, whole numbers [{x.shape[3]},1], received {_kind(y)}")
    labels = y.reshape(-1).astype(np.int64)
    if labels.size and not (labels.min() >= 1 and labels.max() <= 10):
        raise DataError(f"{name}: expected labels 1 to 10, received {labels.min()} to {labels.max()}")
    return np.ascontiguousarray(x.transpose(3, 0, 1, 2)), labels % 10  # the digit 0 is stored as 10


def _kind(value: object) -> str:
    return f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else "none"
