"""Arrays of numbers in MATLAB's files of format 5, read piece by piece; nothing else of such a file is looked at.

A file is a header of 128 bytes and elements, each with a tag of its kind and size. An element that is an array holds
elements in turn: flags with the array's class, its dimensions, its name, its numbers, whose first index runs fastest.
It may be packed by zlib as a whole. An element of up to 4 bytes may stand in its own tag.
"""

from __future__ import annotations

import io
import math
import os
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError

_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # version and order of bytes, as the header ends
_MATRIX, _PACKED = 14, 15  # kinds of elements
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CLASSES = range(6, 16)  # arrays of numbers; others are cells, structures, texts, sparse ones
_COMPLEX = 0x800
_MOST_VARIABLES = 100
_MOST_TEXT = 256  # bytes of a name, and of dimensions


class Stored(NamedTuple):
    """An array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    at: int  # where its element begins
    order: str


def find(file: IO[bytes], names: Collection[str]) -> dict[str, Stored]:
    """The arrays of numbers of these names that the file has."""
    file.seek(0)
    order = _ORDERS.get(file.read(128)[124:])
    if order is None:
        raise DataError("expected a MATLAB file of format 5, whose header tells the order of its bytes")
    at, end = 128, file.seek(0, os.SEEK_END)
    arrays: dict[str, Stored] = {}
    for _ in range(_MOST_VARIABLES):
        if at == end:
            return arrays
        name, stored, _ = _array(file, at, order)
        if stored is not None and name in names:
            arrays[name] = stored
        file.seek(at)
        at += 8 + struct.unpack(f"{order}II", _exactly(file, 8))[1]
        if at > end:
            raise DataError(f"truncated: expected {at} bytes, has {end}")
    raise DataError(f"expected at most {_MOST_VARIABLES} variables")


def pieces(file: IO[bytes], stored: Stored, step: int) -> Iterator[np.ndarray]:
    """The array's numbers in the order of the file, so many at a time."""
    _, _, content = _array(file, stored.at, stored.order)
    left = math.prod(stored.shape)
    while left:
        piece = np.empty(min(step, left), stored.dtype)
        untrusted.fill(content, piece)
        left -= len(piece)
        yield piece
    if len(content.read(8)) == 8:  # the end of what is packed has its checksum
        raise DataError("expected nothing after the numbers of an array")


def _array(file: IO[bytes], at: int, order: str) -> tuple[str, Stored | None, IO[bytes]]:
    """(name, what is stored if that is numbers, the rest of the element, which begins with them)."""
    file.seek(at)
    kind, size = struct.unpack(f"{order}II", _exactly(file, 8))
    content: IO[bytes] = io.BufferedReader(_Content(file, size, kind == _PACKED))
    if kind == _PACKED:
        kind, size = struct.unpack(f"{order}II", _exactly(content, 8))
    if kind != _MATRIX:
        raise DataError(f"expected an array, found an element of kind {kind}")
    flags = _element(content, order)
    if len(flags) != 8:
        raise DataError(f"expected 8 bytes of flags, received {len(flags)}")
    (what,) = struct.unpack_from(f"{order}I", flags)
    if what & 0xFF not in _CLASSES:
        return "", None, content
    shape = tuple(np.frombuffer(_element(content, order), f"{order}i4").tolist())
    name = _element(content, order).decode("ascii")
    if what & _COMPLEX or min(shape, default=0) < 0:
        raise DataError(f"{name}: expected real numbers, and dimensions of 0 or more, received {list(shape)}")
    kind, size, short = _tag(content, order)
    if kind not in _NUMBERS:
        raise DataError(f"{name}: expected numbers, found an element of kind {kind}")
    dtype = np.dtype(f"{order}{_NUMBERS[kind]}")
    if size != math.prod(shape) * dtype.itemsize:
        raise DataError(f"{name}: expected {math.prod(shape)} numbers of {dtype}, has {size} bytes")
    return name, Stored(shape, dtype, at, order), content if short is None else io.BytesIO(short)


def _tag(content: IO[bytes], order: str) -> tuple[int, int, bytes | None]:
    """(kind, size, content if that stands in the tag)."""
    tag = _exactly(content, 8)
    kind, size = struct.unpack(f"{order}II", tag)
    if kind < 2**16:
        return kind, size, None
    if kind >> 16 > 4:
        raise DataError(f"expected up to 4 bytes in a tag, found {kind >> 16}")
    return kind & 0xFFFF, kind >> 16, tag[4 : 4 + (kind >> 16)]


def _element(content: IO[bytes], order: str) -> bytes:
    """What a small element holds, which is filled up to a multiple of 8 bytes."""
    _, size, short = _tag(content, order)
    if short is not None:
        return short
    if size > _MOST_TEXT:
        raise DataError(f"expected at most {_MOST_TEXT} bytes of a name or of dimensions, received {size}")
    return _exactly(content, -(-size // 8) * 8)[:size]


def _exactly(file: IO[bytes], size: int) -> bytes:
    content = file.read(size)
    if len(content) < size:
        raise DataError(f"truncated: expected {size} bytes more, found {len(content)}")
    return content


_PIECE = 2**16  # packed bytes that are unpacked at a time


class _Content(io.RawIOBase):
    """What an element holds, unpacked as it is read."""

    def __init__(self, file: IO[bytes], size: int, packed: bool) -> None:
        self._file, self._left = file, size
        self._unpacker: Any = zlib.decompressobj() if packed else None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._next(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def _next(self, most: int) -> bytes:
        if self._unpacker is None:
            return self._stored(most)
        content = b""
        while not content and not self._unpacker.eof:
            packed = self._unpacker.unconsumed_tail or self._stored(_PIECE)
            content = self._unpacker.decompress(packed, most)
            if not packed and not content:
                raise DataError("truncated: what is packed has no end")
        return content

    def _stored(self, most: int) -> bytes:
        content = self._file.read(min(most, self._left))
        self._left -= len(content)
        return content
