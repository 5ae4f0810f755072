"""UDA (Xie et al. 2019): predictions must not change under RandAugment; labels are let in as training goes on."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.joint import JointLearner
from fedmatch_tf.networks import losses


class UDA(JointLearner):
    """L_s: cross-entropy with training-signal annealing. L_u: KL(p(u) || p(RandAugment(u))), p(u) fixed."""

    def labeled_loss(self, y: tf.Tensor, probs: tf.Tensor, share_done: tf.Tensor) -> tf.Tensor:
        """Rows that are learnt already wait until the threshold has risen."""
        return losses.annealed_cross_entropy(y, probs, losses.tsa_threshold(share_done, y.shape[-1]))

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *_: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """All rows count."""
        weak = tf.stop_gradient(self.predict(x))
        everything = tf.range(tf.shape(x, tf.int64)[0])
        strong = self.predict(self.augment(x, everything, seed))
        consistency = losses.inter_client_kl(weak[tf.newaxis], strong)
        return consistency, tf.ones_like(everything, tf.bool), tf.argmax(weak, axis=-1)


ENTRY = LearnerEntry("uda", UDA, reads=frozenset({"lambda_u", "augment", "equalize"}), passes=1.4, place=2)
