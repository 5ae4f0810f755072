"""Pickles: what we admit arrives unchanged, anything else is refused and runs nothing."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmatch_tf.base import safe_pickle
from fedmatch_tf.base.errors import DataError

PLAIN = {
    "image": np.arange(24, dtype=np.uint8).reshape(2, 3, 4),
    "fortran": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "big_endian": np.arange(3, dtype=">i4"),
    "text": np.array(["ä", "bcd"]),
    "scalar": np.float32(1.5),
    "nested": [1, (2.5, None, True), {"a": "b"}],
}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_plain_values_come_back_as_they_were(protocol: int) -> None:
    result = safe_pickle.loads(pickle.dumps(PLAIN, protocol))
    assert result.keys() == PLAIN.keys()
    for name, value in PLAIN.items():
        if isinstance(value, np.ndarray):
            np.testing.assert_array_equal(result[name], value)
            assert result[name].dtype == value.dtype
        else:
            assert result[name] == value


@settings(max_examples=60, deadline=None)
@given(hnp.arrays(hnp.integer_dtypes() | hnp.floating_dtypes(sizes=(32, 64)), hnp.array_shapes(min_dims=0, max_dims=4)))
def test_any_array_of_numbers_comes_back(array: np.ndarray) -> None:
    result = safe_pickle.loads(pickle.dumps(array, 3))
    np.testing.assert_array_equal(result, array)
    assert result.dtype == array.dtype


def python_2_batch(data: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2's cPickle writes of a CIFAR-10 batch: its texts are bytes, which Python 3 can't write."""
    raw = data.tobytes()
    return b"".join(
        (
            b"\x80\x02}q\x01(U\x06labelsq\x04]q\x05(",
            b"".join(b"K" + bytes((label,)) for label in labels),
            b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08K\x00\x85U\x01b\x87Rq\t(K\x01",
            b"".join(b"J" + struct.pack("<i", size) for size in data.shape),
            b"\x86cnumpy\ndtype\nq\nU\x02u1K\x00K\x01\x87Rq\x0b(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89",
            b"T" + struct.pack("<i", len(raw)) + raw,
            b"tbu.",
        )
    )


def test_a_pickle_of_python_2_is_read() -> None:
    data = np.arange(12, dtype=np.uint8).reshape(3, 4)
    result = safe_pickle.loads(python_2_batch(data, [7, 0, 9]), encoding="bytes")
    np.testing.assert_array_equal(result[b"data"], data)
    assert result[b"labels"] == [7, 0, 9]


class _Runs:
    """Runs a command when an ordinary unpickler loads it."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


def test_a_hostile_pickle_is_refused_by_name_and_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    hidden = np.empty((), object)
    hidden[()] = {"x": _Runs(marker)}
    for value in (_Runs(marker), {"x": [_Runs(marker)]}, hidden):
        payload = pickle.dumps(value)
        with pytest.raises(DataError, match=r"asks for posix\.system"):
            safe_pickle.loads(payload)
    assert not marker.exists()
    pickle.loads(payload)  # the same bytes do run in an ordinary unpickler, so the test can fail
    assert marker.exists()


@pytest.mark.parametrize(
    "payload",
    [
        b"cbuiltins\neval\n(S'1'\ntR.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0ddtype.__init__\x93.",  # a dotted name below an admitted one
        b"cnumpy\ndtype\n}(S'__defaults__'\nNub.",  # changes a function instead of calling it
        b"cnumpy\nndarray\n(I5\ntR.",  # calls the class itself
        b"(S'x'\ni__builtin__\neval\n.",
        b"\x80\x02cnumpy\ndtype\nU\x01O\x85\x81.",
        b"Pid\n.",
        b"\x80\x05\x96" + struct.pack("<Q", 1 << 50) + b".",  # claims a petabyte
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 50) + b".",
        b"r\xff\xff\xff\xff.",  # claims four billion memo entries
        b"]q\x00h\x00a.",  # a list that holds itself
        b"N0.",
    ],
)
def test_crafted_pickles_end_in_a_clear_error(payload: bytes) -> None:
    with pytest.raises(DataError):
        safe_pickle.loads(payload)


def test_deep_sharing_takes_no_time() -> None:
    value: list[Any] = []
    for _ in range(200):  # 2 ** 200 items if every reference were followed
        value = [value, value]
    safe_pickle.loads(pickle.dumps(value, 4))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"K\x03K\x04\x86", b"K\x03K\x05\x86", "needs 15 bytes, has 12"),
        (b"X\x02\x00\x00\x00u1", b"X\x02\x00\x00\x00V1", "received type"),
        (b"X\x02\x00\x00\x00u1", b"X\x02\x00\x00\x00O8", "no list"),
    ],
)
def test_arrays_that_contradict_themselves_are_refused(old: bytes, new: bytes, message: str) -> None:
    payload = pickle.dumps(np.zeros((3, 4), np.uint8), 3)
    assert payload.count(old) == 1
    with pytest.raises(DataError, match=message):
        safe_pickle.loads(payload.replace(old, new))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_damaged_pickles_never_raise_anything_else(data: st.DataObject) -> None:
    payload = bytearray(pickle.dumps({"x": np.arange(6, dtype=np.uint8), "name": "a"}, 3))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(payload)))
    for damaged in (bytes(payload), bytes(payload[:cut])):
        with contextlib.suppress(DataError):
            safe_pickle.loads(damaged)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"})" + b"\x85" * 300_000 + b"K\x01s.", "dict with plain keys"),  # hashing it would overflow the C stack
        (b"})" + b"2\x86" * 60 + b"K\x01s.", "dict with plain keys"),  # hashing it would take 2 ** 60 steps
        (b"()" + b"2\x86" * 60 + b"K\x01d.", "dict with plain keys"),
        (b"c_codecs\nencode\n(S'x'\n)" + b"2\x86" * 60 + b"tR.", "unknown encoding"),
        (b"cnumpy\ndtype\n()" + b"2\x86" * 60 + b"tR.", "short text"),
        (b"\x80\x05\x96" + struct.pack("<Q", 1 << 50) + b".", "in a way that arrays and plain values don't need"),
        (b"\x80\x04\x8f(K\x01\x90.", "in a way that arrays and plain values don't need"),
        (b"cnumpy\ndtype\n}(S'__defaults__'\nNub.", "changes something other than an array"),
    ],
)
def test_bombs_are_refused_at_once(payload: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        safe_pickle.loads(payload)


def test_a_pickle_of_more_values_than_images_need_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte stands for a list, which takes 56 of them."""
    monkeypatch.setattr(safe_pickle._Counted, "_left", 1000)
    assert safe_pickle.loads(b"]" * 900 + b".") == []
    with pytest.raises(DataError, match="millions of values beside its arrays"):
        safe_pickle.loads(b"]" * 1100 + b".")
