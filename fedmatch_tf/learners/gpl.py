"""FixMatch with global pseudo-labels: the received model labels the plain image, the local one learns its strong view.

The labels don't move while a client trains, so it can't be led astray by its own predictions.
"""

from __future__ import annotations

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner, Unlabeled


class GPL(JointLearner):
    """L_u: FixMatch's, where p_received(u) decides which rows are confident, and what their labels are."""

    uses_received = True

    def loss_without_labels(self, given: Unlabeled) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the confident rows pass through the network; none, if there is none."""
        kept = tf.reduce_max(given.received_probs, axis=-1) >= self.config.confidence
        labels = tf.argmax(given.received_probs, axis=-1)
        return self.pseudo_label_loss(given.x, given.seed, kept, labels), kept, labels


GPL_ENTRY = LearnerEntry(
    "gpl", GPL, reads=PSEUDO_LABELS, defaults={"confidence": 0.85}, depends_on_end=False, passes=1.4, place=5
)
