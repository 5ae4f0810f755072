"""FixMatch with global pseudo-labels: the received model labels the plain image, the local one learns its strong view.

The labels don't move while a client trains, so it can't be led astray by its own predictions.
"""

from __future__ import annotations

import tensorflow as tf

from fedmatch_tf.learners.joint import JointLearner, Unlabeled


class GPL(JointLearner):
    """L_u: FixMatch's, where p_received(u) decides which rows are confident, and what their labels are."""

    uses_received = True

    def loss_without_labels(self, given: Unlabeled) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the confident rows pass through the network; none, if there is none."""
        kept = tf.reduce_max(given.received_probs, axis=-1) >= self.config.confidence
        labels = tf.argmax(given.received_probs, axis=-1)
        return self.pseudo_label_loss(given.x, given.seed, kept, labels), kept, labels
