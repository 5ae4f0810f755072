"""FixMatch with global pseudo-labels: the received model labels the weak view, the local one learns the strong one.

The labels don't move while a client trains, so it can't be led astray by its own predictions.
"""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.batches import ClientRound, Minibatches
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner


class GPL(JointLearner):
    """L_u: FixMatch's, where p_received(u) decides which rows are confident, and what their labels are."""

    def extra_specs(self, images: tf.TensorSpec, probs: tf.TensorSpec) -> tuple[tf.TensorSpec, ...]:
        """The received model's predictions."""
        return (probs,)

    def batches(self, given: ClientRound) -> Minibatches:
        """Of all examples, with what the received model says of those without a label, before any step."""
        views = [view._replace(extra=(given.predict(view.data.unlabeled.x),)) for view in given.views]
        return super().batches(given._replace(views=views))

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *extra: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the confident rows pass through the network; none, if there is none."""
        (received_probs,) = extra
        kept = tf.reduce_max(received_probs, axis=-1) >= self.config.confidence
        labels = tf.argmax(received_probs, axis=-1)
        return self.pseudo_label_loss(x, seed, kept, tf.one_hot(labels, received_probs.shape[-1])), kept, labels


ENTRY = LearnerEntry(
    "gpl",
    GPL,
    reads=PSEUDO_LABELS,
    defaults={"confidence": 0.85},
    needs_global_model=True,
    depends_on_end=False,
    passes=0.7,
    place=5,
)
