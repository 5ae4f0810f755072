"""Messages: what both sides have afterwards against one that is encoded, and costs counted by hand."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from fedmatch_tf.algorithms import wire
from fedmatch_tf.networks.params import Params


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


class Delta(NamedTuple):
    """New values of some elements of a vector: a message as it would cross a network."""

    places: np.ndarray  # uint32 [k], ascending
    values: np.ndarray  # float32 [k]
    size: int  # of the whole vector


def diff(new: np.ndarray, old: np.ndarray, threshold: float) -> Delta:
    """The elements that differ by more than the threshold."""
    places = np.flatnonzero(np.abs(new - old) > np.float32(threshold))
    return Delta(places.astype(np.uint32), new[places], len(new))


def apply(old: np.ndarray, delta: Delta) -> np.ndarray:
    result = old.copy()
    result[delta.places] = delta.values
    return result


def encode(delta: Delta) -> bytes:
    """A kind, two numbers, then the values behind their places or behind a bitmap, whichever is smaller."""
    bitmap = np.zeros(delta.size, bool)
    bitmap[delta.places] = True
    places, packed = delta.places.astype("<u4").tobytes(), np.packbits(bitmap).tobytes()
    kind, where = (b"B", packed) if len(packed) < len(places) else (b"I", places)
    head = np.array([delta.size, len(delta.places)], "<u4").tobytes()
    return kind + head + where + delta.values.astype("<f4").tobytes()


def decode(message: bytes) -> Delta:
    size, count = np.frombuffer(message, "<u4", 2, offset=1).tolist()
    where, values = message[9 : len(message) - 4 * count], message[len(message) - 4 * count :]
    if message[:1] == b"I":
        places = np.frombuffer(where, "<u4")
    else:
        places = np.flatnonzero(np.unpackbits(np.frombuffer(where, np.uint8), count=size)).astype(np.uint32)
    return Delta(places, np.frombuffer(values, "<f4"), size)


def test_a_change_of_exactly_the_threshold_is_not_sent() -> None:
    merged, count = wire.merge(vector(0.5, 2.5, 3.0), vector(0.0, 2.0, 2.0), 0.5)
    assert (merged.tolist(), count) == ([0.0, 2.0, 3.0], 1)


def test_a_few_elements_travel_with_their_indices_and_many_behind_a_bitmap() -> None:
    assert wire.num_bytes(800, 2) == 9 + 2 * 4 + 2 * 4
    assert wire.num_bytes(800, 400) == 9 + 100 + 400 * 4


@settings(max_examples=100, deadline=None)
@given(
    hnp.arrays(np.float32, st.integers(1, 300), elements=st.floats(-1, 1, width=32)),
    st.floats(0, 1.5, width=32),
    st.integers(0, 2**32 - 1),
)
def test_an_encoded_message_is_as_long_as_is_counted_and_gives_what_is_merged(
    new: np.ndarray, threshold: float, seed: int
) -> None:
    old = np.random.default_rng(seed).uniform(-1, 1, len(new)).astype(np.float32)
    message = encode(diff(new, old, threshold))
    merged, count = wire.merge(new, old, threshold)
    assert len(message) == wire.num_bytes(len(new), count)
    assert apply(old, decode(message)).tobytes() == merged.tobytes()
    assert (np.abs(merged - new) <= np.float32(threshold)).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 3), st.integers(-2, 2), st.sampled_from([0.0, 1e-3, 0.3]), st.integers(0, 2**32 - 1))
def test_merging_is_sending_and_applying_the_differences(blocks: int, more: int, threshold: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    old = rng.uniform(-1, 1, blocks * 2**16 + more).astype(np.float32)
    new = np.where(rng.random(len(old)) < 0.5, old, rng.uniform(-1, 1, len(old)).astype(np.float32))
    delta = diff(new, old, threshold)
    merged, count = wire.merge(new, old, threshold)
    assert merged.tobytes() == apply(old, delta).tobytes()
    assert count == wire.num_changed(new, old, threshold) == len(delta.places)


def test_merging_takes_small_elements_of_the_new_vector_for_zero() -> None:
    new, old = np.array([0.05, -0.05, 0.4, -0.0], np.float32), np.array([0.02, -0.5, 0.4, 3.0], np.float32)
    merged, count = wire.merge(new, old, 0.03, l1_thres=0.1)
    assert merged.tolist() == pytest.approx([0.02, 0.0, 0.4, 0.0])  # 0 is within 0.03 of 0.02
    assert count == 2
    assert wire.num_changed(new, old, 0.03, l1_thres=0.1) == 2  # the old 0.02 counts as 0, too


# Thresholds for the examples below: psi up to 0.1 counts as 0, changes up to 0.05 are not sent.
L1, DELTA = 0.1, 0.05


def test_the_first_message_costs_one_for_sigma_and_one_for_psi() -> None:
    message = wire.full_broadcast(Params(vector(1, 2, 3, 4), vector(1, 2, 3, 4)))
    assert message.cost == wire.Cost(1.0, 1.0, 0.0, 32)
    assert message.cost.sum == 2.0


def test_a_later_message_costs_what_differs_from_what_the_client_holds() -> None:
    server = Params(vector(1.00, 2.00, 3.00, 4.0), vector(0.05, 0.50, 0.20, 0.30))
    held = Params(vector(1.04, 2.06, 3.00, 5.0), vector(0.30, 0.48, 0.08, 0.30))
    # sigma: |0.04| no, |0.06| yes, 0 no, 1 yes: 2 of 4.
    # psi thresholded: server 0 .5 .2 .3, client .3 .48 0 .3: differences .3 yes, .02 no, .2 yes, 0 no: 2 of 4.
    helper = vector(0.09, 0.50, 0.40, 0.33)
    # helper thresholded 0 .5 .4 .33; client's psi where the helper is not 0: 0 .48 0 .3: 0, .02, .4 yes, .03: 1 of 4.
    full = wire.broadcast(server, held, [helper], L1, DELTA, "full")
    assert (full.cost.sigma, full.cost.psi, full.cost.helpers) == (0.5, 0.5, 0.25)
    np.testing.assert_array_equal(full.params.sigma, server.sigma)
    np.testing.assert_array_equal(full.params.parts[1], server.parts[1])
    np.testing.assert_array_equal(full.helpers[0], helper)
    counted = wire.broadcast(server, held, [helper], L1, DELTA, "counted")
    assert counted.cost == full.cost
    np.testing.assert_array_equal(counted.params.sigma, vector(1.04, 2.00, 3.00, 4.0))
    np.testing.assert_array_equal(counted.params.parts[1], vector(0.0, 0.48, 0.20, 0.30))
    np.testing.assert_array_equal(counted.helpers[0], vector(0.0, 0.48, 0.40, 0.30))


def test_an_upload_keeps_what_was_received_where_little_changed() -> None:
    received = Params(vector(1, 1, 1, 1), vector(0.2, 0.2, 0.08, 0.0))
    trained = Params(vector(1.04, 0.9, 1, 1), vector(0.24, 0.4, 0.09, 0.07))
    # sigma: only the second moved by more than 0.05. psi thresholded: .24 .4 0 0; against .2 .2 .08 0 two moved, and
    # these travel as they were trained: .4 and .09.
    sent = wire.upload(trained, received, L1, DELTA, with_sigma=True)
    assert (sent.cost.sigma, sent.cost.psi, sent.cost.helpers) == (0.25, 0.5, 0.0)
    np.testing.assert_array_equal(sent.params.sigma, vector(1, 0.9, 1, 1))
    np.testing.assert_array_equal(sent.params.parts[1], vector(0.2, 0.4, 0.09, 0.0))
    assert sent.cost.num_bytes == (9 + 1 + 4) + (9 + 1 + 8)  # one byte of bitmap is less than an index


def test_in_labels_at_server_sigma_is_not_uploaded() -> None:
    received = Params(vector(1, 1), vector(0.2, 0.2))
    sent = wire.upload(Params(vector(5, 5), vector(0.2, 0.9)), received, L1, DELTA, with_sigma=False)
    assert (sent.cost.sigma, sent.cost.psi) == (0.0, 0.5)
    np.testing.assert_array_equal(sent.params.sigma, received.sigma)
