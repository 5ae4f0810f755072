"""SAGE (Liu et al. 2025): a local label that leans on the received model's as far as their confidences differ.

With p of the model in training and p_received of the model that the client received, tau = confidence, h one-hot:

    lean = 2^(-|max p(u) - max p_received(u)| / 0.05)
    target(u) = lean h(argmax p(u)) + (1 - lean) h(argmax p_received(u))     if max p(u) >= tau
                h(argmax p_received(u))                                      otherwise
    L_u = sum CE(target(u), p(RandAugment(u))) over the rows of which one of the two is sure, over the number of all

SAGE descends on KL(target || p), which differs by what no weight changes.
"""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.gpl import GPL
from fedmatch_tf.learners.joint import PSEUDO_LABELS

HALF = 0.05  # difference of confidences at which both labels weigh the same


class SAGE(GPL):
    """L_u on the received model's predictions and the local ones."""

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *extra: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """A row counts if one of the two models is sure of it; its label is the one that weighs more."""
        (received,) = extra
        local = tf.stop_gradient(self.predict(x))
        targets = soft_targets(local, received, self.config.confidence)
        kept = tf.reduce_max(tf.maximum(local, received), axis=-1) >= self.config.confidence
        return self.pseudo_label_loss(x, seed, kept, targets), kept, tf.argmax(targets, axis=-1)


def soft_targets(local: tf.Tensor, received: tf.Tensor, confidence: float) -> tf.Tensor:
    """target(u), [n, classes], of two models' predictions [n, classes]."""
    sure, sure_received = tf.reduce_max(local, axis=-1), tf.reduce_max(received, axis=-1)
    lean = tf.pow(2.0, -tf.abs(sure - sure_received) / HALF) * tf.cast(sure >= confidence, tf.float32)
    own, other = (tf.one_hot(tf.argmax(probs, axis=-1), probs.shape[-1]) for probs in (local, received))
    return lean[:, tf.newaxis] * own + (1 - lean)[:, tf.newaxis] * other


ENTRY = LearnerEntry(
    "sage",
    SAGE,
    reads=PSEUDO_LABELS,
    defaults={"confidence": 0.85},
    needs_global_model=True,
    depends_on_end=False,
    passes=1.7,
    place=8,
)
