"""Steps of gradient descent with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.config import make_config
from fedmatch_tf.learners.sgd import SGD


class Line:
    """One number that begins at 1, and steps on it at a rate of 0.1."""

    def __init__(self, **given: Any) -> None:
        self.theta = tf.Variable(1.0)
        self.sgd = SGD(make_config("lc-biid-c10", **given), [self.theta])

    def after(self, *gradients: float) -> list[float]:
        places = []
        for gradient in gradients:
            self.sgd.descend([tf.constant(gradient)], tf.constant(0.1))
            places.append(float(self.theta))
        return places


def test_plain_steps_go_by_the_gradient_and_have_no_buffers() -> None:
    line = Line()
    assert line.after(2.0, 1.0) == pytest.approx([0.8, 0.7])
    assert line.sgd.velocity() is None
    assert line.sgd.takes_parts


def test_momentum_adds_half_of_the_last_step_and_begins_anew_with_a_round() -> None:
    line = Line(momentum=0.5)
    assert line.after(2.0, 1.0, 0.0) == pytest.approx([0.8, 0.6, 0.5])  # v is 2, 2, 1
    line.sgd.begin()
    assert line.after(1.0) == pytest.approx([0.4])


def test_nesterovs_momentum_looks_a_step_ahead() -> None:
    assert Line(momentum=0.5, nesterov=True).after(2.0, 1.0) == pytest.approx(
        [0.7, 0.5]
    )  # 2 + v / 2, 1 + v / 2; v is 2


def test_a_velocity_is_handed_on_as_one_vector() -> None:
    first = Line(momentum=0.5)
    first.after(2.0)
    velocity = first.sgd.velocity()
    assert velocity is not None
    assert velocity.tolist() == [2.0]
    second = Line(momentum=0.5)
    second.sgd.begin(velocity)
    assert second.after(1.0) == pytest.approx([0.8])  # v is 2 again


def test_a_gradient_is_shortened_as_a_whole_to_the_norm_before_it_gains_momentum() -> None:
    parts = [tf.Variable([1.0]), tf.Variable([[1.0, 1.0]])]
    sgd = SGD(make_config("lc-biid-c10", clip_norm=1.0, momentum=0.5), parts)
    sgd.descend([tf.constant([3.0]), tf.constant([[0.0, 4.0]])], tf.constant(0.1))  # of norm 5: a fifth of it
    assert parts[0].numpy() == pytest.approx([0.94])
    np.testing.assert_allclose(parts[1], [[1.0, 0.92]])
    sgd.descend([tf.constant([0.3]), tf.constant([[0.0, 0.4]])], tf.constant(0.1))  # of norm 0.5: as it is
    assert parts[0].numpy() == pytest.approx([0.88])  # v is 0.6 / 2 + 0.3
    np.testing.assert_allclose(parts[1], [[1.0, 0.84]])
