"""What the baselines have in common: one joint loss on one set of plain parameters theta.

    L(theta) = lambda_s L_s(labelled) + lambda_u L_u(unlabelled) + mu / 2 |theta - theta_received|^2

The last term is there if the algorithm asks for it (FedProx). In labels-at-server the server's step has the first term,
a client's step the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.learner import Batch, ClientStep, Terms, descend, gradients
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import losses
from fedmatch_tf.networks.evaluate import scaled

if TYPE_CHECKING:
    from fedmatch_tf.config import Config


# Settings of those who take confident predictions for labels.
PSEUDO_LABELS = frozenset({"lambda_u", "confidence", "augment", "equalize"})


class Unlabeled(NamedTuple):
    """What a step has without labels."""

    x: Any  # uint8 [n, h, w, c]
    seed: Any  # int32 [2]
    received_probs: Any  # float32 [n, classes], or [0, classes] if the learner does not look
    x_partner: Any  # uint8 [n, h, w, c], or of no images
    partner_probs: Any  # float32 [n, classes], or [0, classes]


class JointLearner:
    """A baseline says what L_s and L_u are; its steps are compiled here."""

    uses_received = uses_partners = False

    def __init__(self, config: Config, model: Any, augment: Any, proximal_weight: float = 0.0) -> None:
        self.config, self.model, self.augment = config, model, augment
        self._theta = networks.sigmas(model)
        self._mu = proximal_weight
        self._received = [tf.Variable(part, trainable=False) for part in self._theta] if self._mu else []
        classes = model.output_shape[-1]
        images, targets = tf.TensorSpec([None, *model.input_shape[1:]], tf.uint8), tf.TensorSpec([None, classes])
        seed, number = tf.TensorSpec([2], tf.int32), tf.TensorSpec([])
        compiled = partial(tf.function, autograph=False)
        labeled = [images, targets, number, number]
        given = Unlabeled(images, seed, targets, images, targets)
        self.joint_step = compiled(self._on_both, [images, targets, given, number, number])
        self.unlabeled_step = compiled(self._on_unlabeled, [given, number])
        self.labeled_step = compiled(partial(self._on_labeled, proximal=True), labeled, jit_compile=config.xla or None)
        self.server_step = compiled(partial(self._on_labeled, proximal=False), labeled, jit_compile=config.xla or None)

    def labeled_loss(self, y: tf.Tensor, probs: tf.Tensor, share_done: tf.Tensor) -> tf.Tensor:
        """L_s of predictions on labelled images; cross-entropy unless a learner says otherwise."""
        return losses.cross_entropy(y, probs)

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(L_u, rows that count bool [n], the labels they are given int64 [n])."""
        raise NotImplementedError

    def loss_without_labels(self, given: Unlabeled) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """The same, for a learner that also looks at what the received model predicts, or at other images."""
        return self.unlabeled_loss(given.x, given.seed)

    def pseudo_label_loss(self, x: tf.Tensor, seed: tf.Tensor, kept: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Sum over the rows that are kept of CE(label, p(RandAugment(x))), over the number of all rows."""
        rows = tf.where(kept)[:, 0]

        def consistency() -> tf.Tensor:
            strong = self.predict(self.augment(x, rows, seed))
            targets = tf.one_hot(tf.gather(labels, rows), strong.shape[-1])
            share = tf.cast(tf.size(rows), tf.float32) / tf.cast(tf.shape(x)[0], tf.float32)
            return share * losses.cross_entropy(targets, strong)

        return tf.cond(tf.size(rows) > 0, consistency, lambda: tf.constant(0.0))

    def predict(self, x: tf.Tensor) -> tf.Tensor:
        """Probabilities [n, classes] for uint8 images."""
        return self.model(scaled(x), training=True)

    def begin_round(self) -> None:
        """Remembers what the client has received, for the proximal term."""
        for received, variable in zip(self._received, self._theta):
            received.assign(variable)

    def chosen_rows(self, received_probs: np.ndarray | None) -> np.ndarray | None:
        """All unlabelled examples, unless a learner chooses by what the received model predicts."""
        return None

    def client_steps(self, batch: Batch) -> Sequence[ClientStep]:
        """One joint step, or one on what there is."""
        if batch.x_unlabeled is None:
            return [("s", partial(self.labeled_step, batch.x_labeled, batch.y_labeled, batch.share_done, batch.lr))]
        unlabeled = self._unlabeled(batch)
        if batch.x_labeled is None:
            return [("u", partial(self.unlabeled_step, unlabeled, batch.lr))]
        labeled = (batch.x_labeled, batch.y_labeled)
        return [("u", partial(self.joint_step, *labeled, unlabeled, batch.share_done, batch.lr))]

    def _unlabeled(self, batch: Batch) -> Unlabeled:
        """What a batch has without labels; empty where this learner does not look."""
        no_images = np.zeros((0, *self.model.input_shape[1:]), np.uint8)
        no_probs = np.zeros((0, self.model.output_shape[-1]), np.float32)
        others = (batch.received_probs, batch.x_partner, batch.partner_probs)
        found = [empty if part is None else part for part, empty in zip(others, (no_probs, no_images, no_probs))]
        return Unlabeled(batch.x_unlabeled, batch.seed, *found)

    def _on_both(self, x: tf.Tensor, y: tf.Tensor, given: Unlabeled, share_done: tf.Tensor, lr: tf.Tensor) -> Terms:
        with tf.GradientTape() as tape:
            supervised = self.labeled_loss(y, self.predict(x), share_done)
            unsupervised, kept, labels = self.loss_without_labels(given)
            loss = self.config.lambda_s * supervised + self.config.lambda_u * unsupervised + self._penalty(True)
        self._descend(tape, loss, lr)
        return Terms(loss, tf.constant(0.0), unsupervised, kept, tf.where(kept, labels, -1))

    def _on_unlabeled(self, given: Unlabeled, lr: tf.Tensor) -> Terms:
        with tf.GradientTape() as tape:
            unsupervised, kept, labels = self.loss_without_labels(given)
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
            penalty += self.config.wd * losses.sum_of_squares(self._theta)
        return penalty
