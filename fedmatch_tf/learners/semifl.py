"""SemiFL's client (Diao et al. 2022): labels of the received model, a fix loss and a mix loss.

The received model labels the client's images once per round. On the rows it is sure of, x with label y:

    L_fix = CE(y, p(RandAugment(x)))
    L_mix = share CE(y, p(mixed)) + (1 - share) CE(y_other, p(mixed)),   mixed = share x + (1 - share) x_other

x_other is any image of the client with the received model's label, sure or not; share ~ Beta(0.75, 0.75) per step. A
batch without a confident row moves nothing. SemiFL also asks clients for the batch-norm statistics of the averaged
model; networks here have no batch norm, so there are none to ask for.
"""

from __future__ import annotations

import tensorflow as tf

from fedmatch_tf.core import losses
from fedmatch_tf.core.evaluate import scaled
from fedmatch_tf.learners.joint import JointLearner, Unlabeled

BETA = 0.75  # both parameters of the distribution of a mixture's share


class SemiFL(JointLearner):
    """L_u: mean of the fix loss and the mix loss over the confident rows, added up."""

    uses_received = uses_partners = True

    def loss_without_labels(self, given: Unlabeled) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Only the confident rows pass through the network; none, if there is none."""
        kept = tf.reduce_max(given.received_probs, axis=-1) >= self.config.confidence
        labels = tf.argmax(given.received_probs, axis=-1)
        rows, classes = tf.where(kept)[:, 0], given.received_probs.shape[-1]

        def fix_and_mix() -> tf.Tensor:
            own = tf.one_hot(tf.gather(labels, rows), classes)
            other = tf.one_hot(tf.argmax(tf.gather(given.partner_probs, rows), axis=-1), classes)
            fix = losses.cross_entropy(own, self.predict(self.augment(given.x, rows, given.seed)))
            share = mixture_share(given.seed)
            mixed = share * scaled(tf.gather(given.x, rows)) + (1 - share) * scaled(tf.gather(given.x_partner, rows))
            probs = self.model(mixed, training=True)
            return fix + share * losses.cross_entropy(own, probs) + (1 - share) * losses.cross_entropy(other, probs)

        return tf.cond(tf.size(rows) > 0, fix_and_mix, lambda: tf.constant(0.0)), kept, labels


def mixture_share(seed: tf.Tensor) -> tf.Tensor:
    """A draw of Beta(0.75, 0.75), which is a / (a + b) of two draws of Gamma(0.75)."""
    first, second = tf.unstack(tf.random.stateless_gamma([2], seed, BETA))
    return first / (first + second)
