"""Loss terms against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.networks import losses


def test_cross_entropy_is_the_mean_of_minus_log_of_the_right_class() -> None:
    targets = tf.constant([[1.0, 0.0], [0.0, 1.0]])
    probs = tf.constant([[0.25, 0.75], [0.5, 0.5]])
    assert float(losses.cross_entropy(targets, probs)) == pytest.approx((math.log(4) + math.log(2)) / 2)


def test_cross_entropy_stays_finite_at_probability_zero() -> None:
    value = float(losses.cross_entropy(tf.constant([[1.0, 0.0]]), tf.constant([[0.0, 1.0]])))
    assert value == pytest.approx(math.log(1e7), rel=1e-4)


def test_inter_client_kl_is_the_mean_over_helpers_and_rows() -> None:
    probs = tf.constant([[0.5, 0.5], [0.25, 0.75]])
    helpers = tf.constant([[[0.5, 0.5], [0.25, 0.75]], [[0.25, 0.75], [0.5, 0.5]]])
    # Helper 0 agrees. Helper 1, row 0: 1/4 log(1/2) + 3/4 log(3/2); row 1: 1/2 log 2 + 1/2 log(2/3).
    first = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    second = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert float(losses.inter_client_kl(helpers, probs)) == pytest.approx((first + second) / 4, rel=1e-5)


def test_the_class_with_most_votes_wins_and_a_tie_goes_to_the_lowest_class() -> None:
    def one(label: int) -> list[float]:
        return [0.9 if i == label else 0.05 for i in range(3)]

    own = tf.constant([one(2), one(2), one(0), one(1)])
    helpers = tf.constant([[one(1), one(2), one(1), one(2)], [one(1), one(0), one(2), one(0)]])
    # Votes: 2 1 1 -> 1; 2 2 0 -> 2; 0 1 2 -> 0 by the tie rule; 1 2 0 -> 0 by the tie rule.
    labels = tf.argmax(losses.agreement_labels(own, helpers), axis=1)
    assert labels.numpy().tolist() == [1, 2, 0, 0]


def test_without_helpers_the_own_prediction_is_the_label() -> None:
    own = tf.constant([[0.2, 0.8], [0.6, 0.4]])
    labels = losses.agreement_labels(own, tf.zeros((0, 2, 2)))
    assert labels.numpy().tolist() == [[0, 1], [1, 0]]


def test_penalties_add_up_over_all_kernels() -> None:
    sigmas = [tf.constant([1.0, 2.0]), tf.constant([[3.0]])]
    psis = [tf.constant([0.5, -1.0]), tf.constant([[1.0]])]
    assert float(losses.l1(psis)) == 2.5
    assert float(losses.sum_of_squares([sigma - psi for sigma, psi in zip(sigmas, psis)])) == 0.25 + 9 + 4
    assert float(losses.sum_of_squares(sigmas)) == 14


def test_the_gradient_of_the_inter_client_term_is_minus_the_ratio_of_helper_to_own() -> None:
    probs = tf.Variable([[0.5, 0.5]])
    with tf.GradientTape() as tape:
        loss = losses.inter_client_kl(tf.constant([[[0.25, 0.75]]]), probs)
    np.testing.assert_allclose(tape.gradient(loss, probs), [[-0.5, -1.5]], rtol=1e-5)


def test_signal_annealing_rises_exponentially_from_chance_to_one() -> None:
    threshold = [float(losses.tsa_threshold(tf.constant(progress), 10)) for progress in (0.0, 0.5, 1.0)]
    # exp(-5) = 0.0067379, exp(-2.5) = 0.0820850: times 0.9, plus 0.1.
    assert threshold == pytest.approx([0.1060641, 0.1738765, 1.0], rel=1e-5)


def test_annealing_leaves_out_what_is_learnt_already() -> None:
    targets = tf.constant([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    probs = tf.constant([[0.9, 0.1], [0.25, 0.75], [0.5, 0.5]])
    value = float(losses.annealed_cross_entropy(targets, probs, tf.constant(0.6)))
    assert value == pytest.approx((math.log(4) + math.log(2)) / 2)
    assert float(losses.annealed_cross_entropy(targets, probs, tf.constant(1.0))) == pytest.approx(
        (-math.log(0.9) + math.log(4) + math.log(2)) / 3
    )
    assert float(losses.annealed_cross_entropy(targets, probs, tf.constant(0.1))) == 0.0


def test_the_proximal_term_is_half_the_squared_distance() -> None:
    now, then = [tf.constant([1.0, 2.0]), tf.constant([[3.0]])], [tf.constant([0.0, 2.0]), tf.constant([[5.0]])]
    assert float(losses.proximal(now, then)) == pytest.approx(2.5)  # (1 + 4) / 2
