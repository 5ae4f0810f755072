"""SemiFL's client (Diao et al. 2022): labels of the received model, a fix loss and a mix loss.

The received model labels the client's images once per round (with --weak, the first epoch's weak views). Those it is
sure of make the batches; on x with label y:

    L_fix = CE(y, p(RandAugment(x)))
    L_mix = share CE(y, p(mixed)) + (1 - share) CE(y_other, p(mixed)),   mixed = share x + (1 - share) x_other

x_other is any image of the client as it was labelled, sure or not; share ~ Beta(0.75, 0.75) per step. A client without
a confident image takes no step. SemiFL also asks clients for the batch-norm statistics of the averaged
model; networks here have no batch norm, so there are none to ask for.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.data.files import Examples
from fedmatch_tf.learners.batches import Batch, ClientRound, Minibatches, View, all_slices, minibatches
from fedmatch_tf.learners.joint import PSEUDO_LABELS, JointLearner
from fedmatch_tf.networks import losses
from fedmatch_tf.networks.evaluate import scaled

BETA = 0.75  # both parameters of the distribution of a mixture's share


class SemiFL(JointLearner):
    """L_u: the means of the fix loss and of the mix loss, added up."""

    def extra_specs(self, images: tf.TensorSpec, probs: tf.TensorSpec) -> tuple[tf.TensorSpec, ...]:
        """What the received model says of the images; other images, and what it says of those."""
        return (probs, images, probs)

    def batches(self, given: ClientRound) -> Minibatches:
        """Of the confident images alone, each with another one to mix it with."""
        config, everything = self.config, given.data.unlabeled
        probs = given.predict(everything.x)
        rows = np.flatnonzero(probs.max(axis=-1) >= np.float32(config.confidence))
        size = config.batch_size_unlabeled or config.batch_size_client
        cuts = [(None, part) for part in all_slices(len(rows), size)]

        def confident(view: View) -> View:
            unlabeled = Examples(view.data.unlabeled.x[rows], view.data.unlabeled.y[rows])
            return view._replace(data=replace(view.data, unlabeled=unlabeled), extra=(probs[rows],))

        def with_others(batch: Batch) -> Batch:
            (own,) = batch.extra
            others = batch.rng.integers(0, len(everything), len(own))
            return batch._replace(extra=(own, everything.x[others], probs[others]))

        made = minibatches(config, given._replace(views=[confident(view) for view in given.views]), cuts)
        num_unlabeled = config.num_epochs_client * len(everything)
        return made._replace(num_unlabeled=num_unlabeled, batches=map(with_others, made.batches))

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *extra: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Every row counts: only confident ones are here."""
        probs, x_other, probs_other = extra
        labels, classes = tf.argmax(probs, axis=-1), probs.shape[-1]
        own, other = tf.one_hot(labels, classes), tf.one_hot(tf.argmax(probs_other, axis=-1), classes)
        fix = losses.cross_entropy(own, self.predict(self.augment(x, tf.range(tf.shape(x)[0]), seed)))
        share = mixture_share(seed)
        mixed = self.model(share * scaled(x) + (1 - share) * scaled(x_other), training=True)
        mix = share * losses.cross_entropy(own, mixed) + (1 - share) * losses.cross_entropy(other, mixed)
        return fix + mix, tf.ones_like(labels, tf.bool), labels


def mixture_share(seed: tf.Tensor) -> tf.Tensor:
    """A draw of Beta(0.75, 0.75), which is a / (a + b) of two draws of Gamma(0.75)."""
    first, second = tf.unstack(tf.random.stateless_gamma([2], seed, BETA))
    return first / (first + second)


ENTRY = LearnerEntry(
    "semifl",
    SemiFL,
    reads=PSEUDO_LABELS,
    defaults={"confidence": 0.95, "num_epochs_client": 5, "num_epochs_server": 5, "lambda_s": 1.0},
    depends_on_end=False,
    passes=1.0,
    place=4,
)
