"""What the baselines have in common: one joint loss on one set of plain parameters theta.

    L(theta) = lambda_s L_s(labelled) + lambda_u L_u(unlabelled) + mu / 2 |theta - theta_received|^2

The last term is there if the algorithm asks for it (FedProx). In labels-at-server the server's step has the first term,
a client's step the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from fedmatch_tf.config import Config
from fedmatch_tf.core import losses, networks
from fedmatch_tf.core.evaluate import scaled
from fedmatch_tf.learners.learner import Batch, ClientStep, Terms, descend, gradients


class JointLearner:
    """A baseline says what L_s and L_u are; its steps are compiled here."""

    def __init__(self, config: Config, model: Any, augment: Any, proximal_weight: float = 0.0) -> None:
        self.config, self.model, self.augment = config, model, augment
        self._theta = networks.sigmas(model)
        self._mu = proximal_weight
        self._received = [tf.Variable(part, trainable=False) for part in self._theta] if self._mu else []
        classes = model.output_shape[-1]
        images, targets = tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8), tf.TensorSpec([None, classes])
        seed, number = tf.TensorSpec([2], tf.int32), tf.TensorSpec([])
        compiled = partial(tf.function, autograph=False)
        labeled, unlabeled = [images, targets, number, number], [images, seed, number]
        self.joint_step = compiled(self._on_both, [images, targets, images, seed, number, number])
        self.unlabeled_step = compiled(self._on_unlabeled, unlabeled)
        self.labeled_step = compiled(partial(self._on_labeled, proximal=True), labeled, jit_compile=config.xla or None)
        self.server_step = compiled(partial(self._on_labeled, proximal=False), labeled, jit_compile=config.xla or None)

    def labeled_loss(self, y: tf.Tensor, probs: tf.Tensor, share_done: tf.Tensor) -> tf.Tensor:
        """L_s of predictions on labelled images; cross-entropy unless a learner says otherwise."""
        return losses.cross_entropy(y, probs)

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(L_u, rows that count bool [n], the labels they are given int64 [n])."""
        raise NotImplementedError

    def predict(self, x: tf.Tensor) -> tf.Tensor:
        """Probabilities [n, classes] for uint8 images."""
        return self.model(scaled(x), training=True)

    def begin_round(self) -> None:
        """Remembers what the client has received, for the proximal term."""
        for received, variable in zip(self._received, self._theta):
            received.assign(variable)

    def client_steps(self, batch: Batch) -> Sequence[ClientStep]:
        """One joint step, or one on what there is."""
        if batch.x_unlabeled is None:
            return [("s", partial(self.labeled_step, batch.x_labeled, batch.y_labeled, batch.share_done, batch.lr))]
        unlabeled = (batch.x_unlabeled, batch.seed)
        if batch.x_labeled is None:
            return [("u", partial(self.unlabeled_step, *unlabeled, batch.lr))]
        labeled = (batch.x_labeled, batch.y_labeled)
        return [("u", partial(self.joint_step, *labeled, *unlabeled, batch.share_done, batch.lr))]

    def _on_both(
        self, x: tf.Tensor, y: tf.Tensor, u: tf.Tensor, seed: tf.Tensor, share_done: tf.Tensor, lr: tf.Tensor
    ) -> Terms:
        with tf.GradientTape() as tape:
            supervised = self.labeled_loss(y, self.predict(x), share_done)
            unsupervised, kept, labels = self.unlabeled_loss(u, seed)
            loss = self.config.lambda_s * supervised + self.config.lambda_u * unsupervised + self._penalty(True)
        self._descend(tape, loss, lr)
        return Terms(loss, tf.constant(0.0), unsupervised, kept, tf.where(kept, labels, -1))

    def _on_unlabeled(self, u: tf.Tensor, seed: tf.Tensor, lr: tf.Tensor) -> Terms:
        with tf.GradientTape() as tape:
            unsupervised, kept, labels = self.unlabeled_loss(u, seed)
            loss = self.config.lambda_u * unsupervised + self._penalty(True)
        self._descend(tape, loss, lr)
        return Terms(loss, tf.constant(0.0), unsupervised, kept, tf.where(kept, labels, -1))

    def _on_labeled(
        self, x: tf.Tensor, y: tf.Tensor, share_done: tf.Tensor, lr: tf.Tensor, proximal: bool
    ) -> tf.Tensor:
        with tf.GradientTape() as tape:
            supervised = self.labeled_loss(y, self.predict(x), share_done)
            loss = self.config.lambda_s * supervised + self._penalty(proximal)
        self._descend(tape, loss, lr)
        return loss

    def _descend(self, tape: tf.GradientTape, loss: tf.Tensor, lr: tf.Tensor) -> None:
        descend(self._theta, gradients(tape, loss, self._theta, self.config.precision), lr)

    def _penalty(self, proximal: bool) -> tf.Tensor:
        """The pull towards what was received, and weight decay where it is set."""
        penalty = tf.constant(0.0)
        if proximal and self._mu:
            penalty += self._mu * losses.proximal(self._theta, self._received)
        if self.config.wd:
            penalty += self.config.wd * losses.weight_decay(self._theta)
        return penalty
