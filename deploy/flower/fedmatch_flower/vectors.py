"""Vectors as bytes: the values that differ from a vector which the other side has, behind a bitmap or their places.

Exact: who decodes has the sender's bits, whatever the vectors are. What is decoded is untrusted until it is checked.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.networks.params import Params

_HEAD = struct.Struct("<BII")  # which vector it differs from, and how; its size; the number of values
_WHOLE, _PLACES, _BITMAP = range(3)


def encode(new: np.ndarray, *bases: np.ndarray) -> bytes:
    """float32 [n] as bytes: the shortest of what there is to say from each of the vectors that the other side has."""
    found: list[bytes] = [_differences(new, base, number) for number, base in enumerate(bases)]
    return min(found, key=len) if found else _whole(new)


def _whole(new: np.ndarray) -> bytes:
    return _HEAD.pack(_WHOLE, len(new), len(new)) + new.astype("<f4", copy=False).tobytes()


def _differences(new: np.ndarray, base: np.ndarray, number: int) -> bytes:
    differs = new.view(np.uint32) != base.view(np.uint32)
    count = int(np.count_nonzero(differs))
    if min(4 * count, -(-len(new) // 8)) + 4 * count >= new.nbytes:
        return _whole(new)
    if 4 * count < -(-len(new) // 8):
        how, mask = _PLACES, np.flatnonzero(differs).astype("<u4").tobytes()
    else:
        how, mask = _BITMAP, np.packbits(differs).tobytes()
    values = new[differs].astype("<f4", copy=False).tobytes()
    return b"".join((_HEAD.pack(3 * number + how, len(new), count), mask, values))


def decode(name: str, content: bytes, size: int, *bases: np.ndarray) -> np.ndarray:
    """The vector, of this size and of finite numbers; DataError if the bytes are none."""
    if len(content) < _HEAD.size:
        raise DataError(f"{name}: expected a vector, received {len(content)} bytes")
    kind, length, count = _HEAD.unpack_from(content)
    number, how = divmod(kind, 3)
    if length != size or count > size:
        raise DataError(f"{name}: expected {size} numbers, received {length}, {count} of them sent")
    if how == _WHOLE:
        if number or len(content) != _HEAD.size + 4 * size:
            raise DataError(f"{name}: expected {4 * size} bytes, received {len(content) - _HEAD.size}")
        vector = np.frombuffer(content, "<f4", size, _HEAD.size).astype(np.float32)
    else:
        if number >= len(bases) or len(bases[number]) != size:
            raise DataError(f"{name}: differs from a vector that is not here")
        mask_bytes = 4 * count if how == _PLACES else -(-size // 8)
        if len(content) != _HEAD.size + mask_bytes + 4 * count:
            raise DataError(f"{name}: expected {mask_bytes + 4 * count} bytes, received {len(content) - _HEAD.size}")
        vector = bases[number].copy()
        vector[_places(name, content, size, count, how)] = np.frombuffer(
            content, "<f4", count, len(content) - 4 * count
        )
    if not np.isfinite(vector).all():
        raise DataError(f"{name}: expected finite numbers, received NaN or infinity")
    return vector


def _places(name: str, content: bytes, size: int, count: int, how: int) -> np.ndarray:
    """Where the values belong, in ascending order."""
    if how == _PLACES:
        places = np.frombuffer(content, "<u4", count, _HEAD.size).astype(np.int64)
        good = (np.diff(places) > 0).all() and (not count or places[-1] < size)
    else:
        bits = np.unpackbits(np.frombuffer(content, np.uint8, -(-size // 8), _HEAD.size))
        places = np.flatnonzero(bits)
        good = len(places) == count and (not count or places[-1] < size)
    if not good:
        raise DataError(f"{name}: expected {count} places below {size}, in ascending order")
    return places


def digest(params: Params) -> str:
    """What tells parameters from others: both sides must mean the same ones when differences are sent."""
    content = hashlib.sha256()
    for part in params.parts:
        content.update(part.data)
    return content.hexdigest()
