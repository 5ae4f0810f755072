"""SemiFL's client (Diao et al. 2022): labels of the received model, a fix loss and a mix loss.

The received model labels the client's images once per round. Those it is sure of make the batches; on x with label y:

    L_fix = CE(y, p(RandAugment(x)))
    L_mix = share CE(y, p(mixed)) + (1 - share) CE(y_other, p(mixed)),   mixed = share x + (1 - share) x_other

x_other is any image of the client with the received model's label, sure or not; share ~ Beta(0.75, 0.75) per step. A
client without a confident image takes no step. SemiFL also asks clients for the batch-norm statistics of the averaged
model; networks here have no batch norm, so there are none to ask for.
"""

from __future__ import annotations

import numpy as np

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner, Unlabeled
from fedmatch_tf.networks import losses
from fedmatch_tf.networks.evaluate import scaled

BETA = 0.75  # both parameters of the distribution of a mixture's share


class SemiFL(JointLearner):
    """L_u: the means of the fix loss and of the mix loss, added up."""

    uses_received = uses_partners = True

    def chosen_rows(self, received_probs: np.ndarray | None) -> np.ndarray:
        """The confident ones."""
        assert received_probs is not None
        return np.flatnonzero(received_probs.max(axis=-1) >= np.float32(self.config.confidence))

    def loss_without_labels(self, given: Unlabeled) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Every row counts: only confident ones are here."""
        labels, classes = tf.argmax(given.received_probs, axis=-1), given.received_probs.shape[-1]
        own = tf.one_hot(labels, classes)
        other = tf.one_hot(tf.argmax(given.partner_probs, axis=-1), classes)
        fix = losses.cross_entropy(own, self.predict(self.augment(given.x, tf.range(tf.shape(given.x)[0]), given.seed)))
        share = mixture_share(given.seed)
        probs = self.model(share * scaled(given.x) + (1 - share) * scaled(given.x_partner), training=True)
        mix = share * losses.cross_entropy(own, probs) + (1 - share) * losses.cross_entropy(other, probs)
        return fix + mix, tf.ones_like(labels, tf.bool), labels


def mixture_share(seed: tf.Tensor) -> tf.Tensor:
    """A draw of Beta(0.75, 0.75), which is a / (a + b) of two draws of Gamma(0.75)."""
    first, second = tf.unstack(tf.random.stateless_gamma([2], seed, BETA))
    return first / (first + second)


SEMIFL = LearnerEntry(
    "semifl",
    SemiFL,
    reads=PSEUDO_LABELS,
    defaults={"confidence": 0.95, "num_epochs_client": 5, "num_epochs_server": 5, "lambda_s": 1.0},
    depends_on_end=False,
    passes=2.0,
    place=4,
)
