"""Helpers: the nearest neighbours among what models say of one noise image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmatch_tf.base import seeding
from fedmatch_tf.federation.helpers import choose_helpers, probe_image


def embeddings(**places: float) -> dict[int, np.ndarray]:
    return {int(name[1:]): np.array([value, 1 - value], np.float32) for name, value in places.items()}


def test_helpers_are_the_nearest_others_nearest_first() -> None:
    known = embeddings(c3=0.1, c7=0.15, c20=0.3, c5=0.9)
    assert choose_helpers([3], known, 2).get(3, ()) == (7, 20)
    assert choose_helpers([5], known, 2).get(5, ()) == (20, 7)
    assert choose_helpers([20], known, 1).get(20, ()) == (7,)


def test_fewer_known_clients_give_fewer_helpers() -> None:
    known = embeddings(c3=0.1, c7=0.15)
    assert choose_helpers([3], known, 2).get(3, ()) == (7,)
    assert choose_helpers([8], known, 2).get(8, ()) == ()  # never took part
    assert choose_helpers([3], embeddings(c3=0.1), 2).get(3, ()) == ()
    assert choose_helpers([3], known, 0).get(3, ()) == ()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(1, 4), st.sampled_from([2, 1000]))
def test_helpers_are_those_of_a_search_by_hand_among_equals_too(seed: int, size: int, count: int, levels: int) -> None:
    rng = np.random.default_rng(seed)
    clients = rng.permutation(size).tolist()
    known = {
        client: (rng.integers(0, levels, 3) / levels).astype(np.float32) for client in clients
    }  # few levels: equals
    chosen = choose_helpers(range(size + 1), known, count)
    assert size not in chosen, "it never took part"
    for client in known:
        far = sorted((float(((known[other] - known[client]).astype(float) ** 2).sum()), other) for other in known)
        assert chosen[client] == tuple([other for _, other in far if other != client][:count])


def test_the_probe_image_is_noise_in_the_range_of_images() -> None:
    image = probe_image(seeding.stream(1, "probe image"), (32, 32, 3))
    assert image.shape == (1, 32, 32, 3)
    assert image.dtype == np.float32
    assert image.min() >= 0
    assert image.max() <= 1
    assert image.mean() == pytest.approx(0.497, abs=0.02)  # nearly symmetric around 125 / 255
