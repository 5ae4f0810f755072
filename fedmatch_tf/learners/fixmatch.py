"""FixMatch (Sohn et al. 2020): a confident prediction on the plain image is the label of its strong view."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner


class FixMatch(JointLearner):
    """L_u: sum over the confident rows of CE(argmax p(u), p(RandAugment(u))), over the number of all rows."""

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *_: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the confident rows pass through the network a second time; none, if there is none."""
        weak = tf.stop_gradient(self.predict(x))
        kept = tf.reduce_max(weak, axis=-1) >= self.config.confidence
        labels = tf.argmax(weak, axis=-1)
        return self.pseudo_label_loss(x, seed, kept, tf.one_hot(labels, weak.shape[-1])), kept, labels


ENTRY = LearnerEntry(
    "fixmatch", FixMatch, reads=PSEUDO_LABELS, defaults={"confidence": 0.85}, depends_on_end=False, passes=0.7, place=3
)
