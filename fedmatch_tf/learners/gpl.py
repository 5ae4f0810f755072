"""FixMatch with global pseudo-labels: the received model labels the plain image, the local one learns its strong view.

The labels don't move while a client trains, so it can't be led astray by its own predictions.
"""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.batches import Batch, ClientRound, Minibatches
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner


class GPL(JointLearner):
    """L_u: FixMatch's, where p_received(u) decides which rows are confident, and what their labels are."""

    def extra_specs(self, images: tf.TensorSpec, probs: tf.TensorSpec) -> tuple[tf.TensorSpec, ...]:
        """The received model's predictions."""
        return (probs,)

    def batches(self, given: ClientRound) -> Minibatches:
        """Of all examples, with what the received model says of those without a label."""
        probs, made = given.predict(given.data.unlabeled.x), super().batches(given)

        def labelled(batch: Batch) -> Batch:
            return batch if batch.rows is None else batch._replace(extra=(probs[batch.rows],))

        return made._replace(batches=map(labelled, made.batches))

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *extra: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the confident rows pass through the network; none, if there is none."""
        (received_probs,) = extra
        kept = tf.reduce_max(received_probs, axis=-1) >= self.config.confidence
        labels = tf.argmax(received_probs, axis=-1)
        return self.pseudo_label_loss(x, seed, kept, labels), kept, labels


ENTRY = LearnerEntry(
    "gpl", GPL, reads=PSEUDO_LABELS, defaults={"confidence": 0.85}, depends_on_end=False, passes=0.7, place=5
)
