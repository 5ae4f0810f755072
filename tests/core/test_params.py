"""Parameters as flat vectors: means and thresholds."""

from __future__ import annotations

import numpy as np

from fedmatch_tf.core.params import hard_threshold, weighted_mean


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_a_weighted_mean_follows_its_weights() -> None:
    mean = weighted_mean([vector(0, 4), vector(4, 0)], [1, 3])
    assert mean.tolist() == [3, 1]


def test_the_hard_threshold_takes_the_limit_itself() -> None:
    assert hard_threshold(vector(0.5, -0.5, 0.75, 0), 0.5).tolist() == [0, 0, 0.75, 0]
