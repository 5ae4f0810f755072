"""Vectors as bytes: whoever decodes has the sender's bits, and what is no vector is refused."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmatch_tf.algorithms import wire
from fedmatch_tf.base.errors import DataError
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "deploy" / "flower"))

from fedmatch_flower import vectors

BASE = np.arange(100, dtype=np.float32)
FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def changed(**at: float) -> np.ndarray:
    """The base with other values at some places: `_3=1.5`."""
    vector = BASE.copy()
    for place, value in at.items():
        vector[int(place[1:])] = value
    return vector


@given(st.lists(st.tuples(FLOATS, FLOATS, st.booleans()), max_size=70))
def test_what_is_decoded_has_the_senders_bits(rows: list[tuple[float, float, bool]]) -> None:
    new = np.array([row[0] for row in rows], np.float32)
    base = np.array([row[0] if row[2] else row[1] for row in rows], np.float32)
    for bases in ([], [base], [np.zeros_like(new), base]):
        decoded = vectors.decode("psi", vectors.encode(new, *bases), len(new), *bases)
        np.testing.assert_array_equal(decoded.view(np.uint32), new.view(np.uint32))


def test_two_changes_are_two_places_and_two_values() -> None:
    content = vectors.encode(changed(_3=1.5, _99=-0.0), BASE)
    assert len(content) == 9 + 2 * 4 + 2 * 4
    assert content[9:17] == bytes([3, 0, 0, 0, 99, 0, 0, 0])


def test_many_changes_stand_behind_a_bitmap_and_all_of_them_behind_nothing() -> None:
    assert len(vectors.encode(changed(**{f"_{place}": 0.5 for place in range(50)}), BASE)) == 9 + 13 + 50 * 4
    assert len(vectors.encode(BASE + 1, BASE)) == len(vectors.encode(BASE)) == 9 + 400


def test_the_nearest_of_several_vectors_is_the_one_that_differences_are_taken_to() -> None:
    content = vectors.encode(changed(_1=7.0), np.zeros(100, np.float32), BASE)
    assert len(content) == 9 + 4 + 4


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.9])
def test_an_upload_is_as_long_as_its_cost_says(share: float) -> None:
    rng = np.random.default_rng(1)
    received = rng.random(1000, np.float32)
    trained = received + np.where(rng.random(1000) < share, np.float32(0.1), np.float32(0))
    sent, count = wire.merge(trained, received, 0.05)
    assert len(vectors.encode(sent, received)) == wire.num_bytes(1000, count)


NAN = np.float32(np.nan).tobytes()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a vector, received 0 bytes"),
        (vectors.encode(BASE[:50]), "expected 100 numbers, received 50"),
        (vectors.encode(BASE)[:-1], "expected 400 bytes, received 399"),
        (vectors.encode(BASE)[:-4] + NAN, "expected finite numbers"),
        (vectors.encode(changed(_3=1.5), BASE)[:-4] + NAN, "expected finite numbers"),
        (vectors.encode(changed(_3=1.5), BASE) + b"\0", "expected 8 bytes, received 9"),
        (vectors.encode(changed(_3=1.5), BASE).replace(b"\3\0\0\0", b"\x64\0\0\0"), "expected 1 places below 100"),
        (b"\1" + vectors.encode(changed(_3=1, _5=1), BASE)[1:9] + b"\5\0\0\0\3\0\0\0" + bytes(8), "in ascending order"),
        (b"\2" + vectors.encode(changed(_3=1), BASE)[1:9] + bytes(13) + bytes(4), "expected 1 places"),
        (vectors.encode(changed(_3=1.5), np.zeros(100, np.float32), BASE), "differs from a vector that is not here"),
        (bytes([200]) + vectors.encode(BASE)[1:], "differs from a vector that is not here"),
        (b"\0" + b"\x64\0\0\0" + b"\xff\0\0\0" + bytes(400), "255 of them sent"),
    ],
    ids=map(str, range(12)),
)
def test_what_is_no_vector_is_refused(content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        vectors.decode("psi", content, 100, BASE)


@given(st.binary(max_size=60))
def test_no_bytes_do_more_than_be_refused(content: bytes) -> None:
    try:
        decoded = vectors.decode("psi", content, 5, np.zeros(5, np.float32))
    except DataError:
        return
    assert decoded.shape == (5,)
    assert np.isfinite(decoded).all()
