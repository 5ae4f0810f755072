"""What becomes of steps: refused if a loss is no number, added up by term, pseudo-labels counted."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.federation.steps import checked, count_labels, losses_of, mean_losses
from fedmatch_tf.federation.tasks import Losses, TrainingError
from fedmatch_tf.learners.learner import ABSENT, Terms
from fedmatch_tf.networks.params import Params


def terms(kept: list[bool] | None = None, labels: list[int] | None = None, **losses: float) -> Terms:
    tensor = lambda values: None if values is None else tf.constant(values)  # noqa: E731
    return Terms({name: tf.constant(value) for name, value in losses.items()}, tensor(kept), tensor(labels))


def test_a_loss_that_is_not_a_number_is_named_by_place() -> None:
    steps = [terms(total=1.0), terms([True], [3], pseudo=ABSENT, total=float("nan"))]
    with pytest.raises(TrainingError, match=r"received nan in round 3, client 7, step 1 \(unsupervised\)"):
        losses_of(steps, 1, "round 3, client 7")
    with pytest.raises(TrainingError, match=r"received inf in here, step 0 \(supervised\)"):
        losses_of([terms(total=float("inf"))], 1, "here")


@pytest.mark.parametrize("params", [Params(np.array([1, np.inf])), Params(np.zeros(2), np.array([0, np.nan]))])
def test_weights_that_are_not_numbers_are_refused(params: Params) -> None:
    with pytest.raises(TrainingError, match="expected finite weights, received NaN or infinity in here"):
        checked(params, "here")


def test_terms_are_means_over_batches_in_which_what_did_not_occur_counts_as_nothing() -> None:
    # Two batches of two steps; agreement occurs in the second only, consistency in none.
    steps = [
        terms(supervised=3.0, total=3.0),
        terms([False], [0], inter_client=ABSENT, pseudo=ABSENT, l2=0.5, total=0.5),
        terms(supervised=1.0, total=1.0),
        terms([True], [0], inter_client=ABSENT, pseudo=0.25, l2=0.25, total=0.5),
    ]
    assert losses_of(steps, 2, "here") == Losses(supervised=2.0, pseudo=0.125, l2=0.375, total=2.5)
    assert losses_of([], 0, "here") == Losses()
    assert mean_losses([Losses(1.0), Losses(3.0, l2=1.0)], 2) == Losses(2.0, l2=0.5)


def test_pseudo_labels_are_counted_where_they_were_given_and_compared_with_the_truth() -> None:
    steps = [terms(total=1.0), terms([True, False, True], [2, 1, 0], total=1.0), terms([False], [1], total=1.0)]
    truths = [np.array([2, 1, 1]), np.array([2, 1, 1]), np.array([1])]
    assert count_labels(steps, truths) == (2, 1)
