"""MATLAB's files of format 5: what SciPy writes is read, what is damaged is refused, whatever the damage."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.io import savemat

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import matlab


def saved(packed: bool, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    savemat(buffer, arrays, do_compression=packed)
    return buffer.getvalue()


def read(content: bytes, name: str, step: int = 7) -> np.ndarray:
    """The array, put together from pieces of a few numbers."""
    file = io.BytesIO(content)
    stored = matlab.find(file, (name,))[name]
    pieces = list(matlab.pieces(file, stored, step))
    array: np.ndarray = np.concatenate([np.zeros(0, stored.dtype), *pieces]).reshape(stored.shape, order="F")
    return array


NUMBERS = hnp.array_shapes(min_dims=2, max_dims=4, max_side=5).flatmap(
    lambda shape: st.sampled_from([np.uint8, np.int16, np.uint32, np.int64, np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(dtype, shape, elements={"allow_nan": False} if np.dtype(dtype).kind == "f" else None)
    )
)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(NUMBERS, st.booleans(), st.integers(1, 200))
def test_what_scipy_writes_comes_back(array: np.ndarray, packed: bool, step: int) -> None:
    content = saved(packed, other={"a": 1}, word="text", z=np.eye(2) * 1j, X=array, last=np.zeros((0, 3)))
    with pytest.raises(DataError, match="z: expected real numbers"):
        read(content, "X", step)
    content = saved(packed, other={"a": 1}, word="text", X=array, last=np.zeros((0, 3)))
    np.testing.assert_array_equal(read(content, "X", step), array)
    assert read(content, "last").shape == (0, 3)
    with pytest.raises(KeyError):
        read(content, "word")


def element(kind: int, content: bytes, order: str = ">") -> bytes:
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def test_a_file_of_the_other_order_of_bytes_is_read() -> None:
    """Two numbers as a big-endian machine writes them, the name in its own tag."""
    numbers = np.array([1.5, -2], ">f8")
    flags, shape = struct.pack(">II", 6, 0), struct.pack(">ii", 1, 2)
    name = struct.pack(">HH", 1, 1) + b"X\0\0\0"
    array = element(14, element(6, flags) + element(5, shape) + name + element(9, numbers.tobytes()))
    content = b"made up".ljust(124) + b"\1\0MI" + array
    np.testing.assert_array_equal(read(content, "X"), [[1.5, -2]])


WHOLE = [
    saved(packed, X=np.arange(600, dtype=np.uint8).reshape(10, 20, 3), y=np.ones((5, 1))) for packed in (False, True)
]


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file with bytes changed, left out, repeated or cut off; where it is packed, within or without."""
    content, within = WHOLE[draw(st.booleans())], draw(st.booleans())
    if within:  # pack the first array anew once it is damaged
        content = WHOLE[0]
    begin = 128 if within else 0
    part = bytearray(content[begin:])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(part) - 1) | st.integers(0, 100)) % len(part)
        size = draw(st.integers(1, 9))
        kind = draw(st.sampled_from(["change", "large", "remove", "repeat", "cut"]))
        if kind == "change":
            part[at] ^= draw(st.integers(1, 255))
        elif kind == "large":
            part[at : at + 4] = draw(st.sampled_from([b"\xff\xff\xff\x7f", b"\xff" * 4, b"\0\0\0\x80", b"\x0f\0\0\0"]))
        elif kind == "remove" and len(part) > size:
            del part[at : at + size]
        elif kind == "repeat":
            part[at:at] = part[at : at + size] * draw(st.integers(1, 50))
        elif kind == "cut":
            del part[at + 1 :]
    if within:
        packed = zlib.compress(bytes(part))
        return content[:128] + struct.pack("<II", 15, len(packed)) + packed
    return content[:begin] + bytes(part)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(damaged())
def test_whatever_is_damaged_is_read_or_refused_in_one_line(content: bytes) -> None:
    try:
        for name in ("X", "y"):
            assert read(content, name).nbytes <= 2 * len(WHOLE[0])
    except (DataError, zlib.error, KeyError):
        pass


def test_what_is_packed_is_checked_to_its_end() -> None:
    content = bytearray(WHOLE[1])
    (size,) = struct.unpack_from("<I", content, 132)
    content[128 + 8 + size - 1] ^= 1  # of the checksum
    with pytest.raises(zlib.error, match="incorrect data check"):
        read(bytes(content), "X")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": 9}, "found an element of kind 9"),
        ({"shape": (4, 2**30)}, "expected 4294967296 numbers of uint8, has 8 bytes"),
        ({"shape": (-1, -8)}, "dimensions of 0 or more"),
        ({"stored": 99}, "X: expected numbers, found an element of kind 99"),
        ({"flags": b"abcd"}, "expected 8 bytes of flags, received 4"),
        ({"name": b"X" * 300}, "at most 256 bytes of a name"),
        ({"times": 101}, "at most 100 variables"),
    ],
)
def test_a_made_up_array_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"kind": 14, "shape": (4, 2), "stored": 2, "flags": struct.pack("<II", 9, 0), "name": b"X"}
    given.update(changes)
    shape = struct.pack("<ii", *given["shape"])
    parts = ((6, given["flags"]), (5, shape), (1, given["name"]), (given["stored"], bytes(8)))
    array = b"".join(element(kind, content, "<") for kind, content in parts)
    file = b"made up".ljust(124) + b"\0\1IM" + element(given["kind"], array, "<") * given.get("times", 1)
    with pytest.raises(DataError, match=message):
        read(file, "X")
