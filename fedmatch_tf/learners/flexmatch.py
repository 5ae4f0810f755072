"""FlexMatch (Zhang et al. 2021): FixMatch with a threshold for each class, lower where little has been learnt.

A row counts if max p(u) >= T(argmax p(u)), where with N unlabelled images of the client and tau = confidence

    sigma(c) = images whose highest probability is of class c and at least tau
    beta(c) = sigma(c) / max(max_k sigma(k), N - sum_k sigma(k))
    T(c) = tau beta(c) / (2 - beta(c))

FlexMatch keeps the last prediction of every image. A client here keeps nothing between rounds: the received model
predicts all of its images (with --weak the first epoch's weak views), and T stays for the round. Before any image is
confident T is 0, so all rows count, as in FlexMatch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.batches import ClientRound, Minibatches
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner


class FlexMatch(JointLearner):
    """L_u: FixMatch's, with the threshold of the row's class."""

    def thresholds(self, probs: np.ndarray) -> np.ndarray:
        """T(c), [classes], from the received model's predictions [n, classes]."""
        tau = np.float32(self.config.confidence)
        sure = np.bincount(probs.argmax(axis=1)[probs.max(axis=1) >= tau], minlength=probs.shape[1])
        beta = sure / max(sure.max(), len(probs) - sure.sum())
        result: np.ndarray = tau * beta / (2 - beta)
        return result

    def extra_specs(self, images: tf.TensorSpec, probs: tf.TensorSpec) -> tuple[tf.TensorSpec, ...]:
        """The thresholds."""
        return (tf.TensorSpec(probs.shape[1:]),)

    def batches(self, given: ClientRound) -> Minibatches:
        """Of all examples, each batch with the thresholds of the round."""
        thresholds = self.thresholds(given.predict(given.views[0].data.unlabeled.x)).astype(np.float32)
        made = super().batches(given)
        return made._replace(batches=(batch._replace(extra=(thresholds,)) for batch in made.batches))

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *extra: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the rows that count pass through the network a second time; none, if there is none."""
        (thresholds,) = extra
        weak = tf.stop_gradient(self.predict(x))
        labels = tf.argmax(weak, axis=-1)
        kept = tf.reduce_max(weak, axis=-1) >= tf.gather(thresholds, labels)
        return self.pseudo_label_loss(x, seed, kept, tf.one_hot(labels, weak.shape[-1])), kept, labels


ENTRY = LearnerEntry(
    "flexmatch",
    FlexMatch,
    reads=PSEUDO_LABELS,
    defaults={"confidence": 0.85},
    depends_on_end=False,
    passes=1.7,
    place=6,
)
