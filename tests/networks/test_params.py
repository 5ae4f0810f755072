"""Parameters as flat vectors: means and thresholds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmatch_tf.networks.params import Mean, Params, flatten, hard_threshold


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_a_weighted_mean_follows_its_weights() -> None:
    mean = mean_of([vector(0, 4), vector(4, 0)], [1, 3])
    assert mean.tolist() == [3, 1]


def mean_of(vectors: Sequence[np.ndarray], weights: Sequence[float], planned: float | None = None) -> np.ndarray:
    mean = Mean(sum(weights) if planned is None else planned)
    for vector, weight in zip(vectors, weights):
        mean = mean.add(vector, weight)
    return mean.result()


def test_a_mean_is_right_whatever_weights_were_expected_and_takes_memory_for_one_vector() -> None:
    assert mean_of([vector(0, 4), vector(4, 0)], [1, 3], planned=16).tolist() == [3, 1]
    given, mean = vector(2, 6), Mean(planned=1)
    first = mean.add(given, 1)
    assert first.result().tolist() == [2, 6]
    again = first.add(vector(4, 0), 1)
    assert again.vector is first.vector is not given
    assert (given.tolist(), again.result().tolist()) == ([2, 6], [3, 3])
    with pytest.raises(ValueError, match="expected a vector at least"):
        mean.result()


def test_the_hard_threshold_takes_the_limit_itself() -> None:
    assert hard_threshold(vector(0.5, -0.5, 0.75, 0), 0.5).tolist() == [0, 0, 0.75, 0]


def test_theta_is_sigma_plus_psi_without_its_small_elements() -> None:
    params = Params(vector(1, 2, 3), vector(0.5, -0.25, 0.125))
    assert params.theta().tolist() == [1.5, 1.75, 3.125]
    assert params.theta(l1_thres=0.25).tolist() == [1.5, 2, 3]
    plain = Params(vector(1, 2))
    assert plain.theta(l1_thres=9.0) is plain.sigma


def test_what_follows_the_kernels_has_no_psi() -> None:
    params = Params(vector(1, 2, 7, 8), vector(0.5, 0.125))
    assert params.theta(l1_thres=0.25).tolist() == [1.5, 2, 7, 8]
    assert params.only_psi(l1_thres=0.25).tolist() == [0.5, 0, 7, 8]
    with pytest.raises(ValueError, match="one set of parameters"):
        Params(vector(1, 2)).only_psi()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 5, 2**16 - 1, 2**16, 2**16 + 1, 2**17 + 7]), st.integers(1, 4))
def test_blocks_change_nothing(seed: int, size: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    vectors = [rng.standard_normal(size).astype(np.float32) for _ in range(count + 1)]
    weights = rng.integers(1, 100, count).tolist()
    mean = np.average(np.array(vectors[:count], np.float64), axis=0, weights=weights)
    np.testing.assert_allclose(mean_of(vectors[:count], weights), mean, atol=1e-5)
    sigma, psi = vectors[0], vectors[-1]
    np.testing.assert_array_equal(Params(sigma, psi).theta(0.5), sigma + np.where(np.abs(psi) > 0.5, psi, 0))


def test_kernels_are_flattened_one_after_the_other() -> None:
    assert flatten([np.array([[1, 2], [3, 4]]), np.array([5.0])]).tolist() == [1, 2, 3, 4, 5]
