"""FedMatch's gradient steps: labels train sigma, unlabelled images train psi (sections 3.1 and 3.2 of the paper).

Supervised (eq. 4), psi fixed:

    L_s(sigma) = lambda_s CE(y, p(x))

Unsupervised (eq. 5), sigma fixed, for the rows of a batch u that the model is confident about:

    L_u(psi) = lambda_i mean_h KL(p_h(u) || p(u))              eq. 1, inter-client consistency, if helpers were sent
             + lambda_a CE(agreement(p(u), p_h(u)), p(RandAugment(u)))          eq. 2 and 3
             + lambda_l2 |sigma - psi|^2 + lambda_l1 |psi|                      always, confident rows or not

The paper weighs the first two terms together, by lambda_ICCS. The original weighs each, by lambda_i and lambda_a.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.learner import Batch, ClientStep, Terms, descend, gradients
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import losses
from fedmatch_tf.networks.evaluate import scaled

if TYPE_CHECKING:
    from fedmatch_tf.config import Config


class FedMatch:
    """Compiled steps on one decomposed model; without decomposition, both losses train the one set of parameters."""

    uses_received = uses_partners = False

    def __init__(self, config: Config, model: Any, augment: Any, proximal_weight: float = 0.0) -> None:
        if proximal_weight:
            raise ValueError(f"expected an algorithm without a proximal term, received a weight of {proximal_weight}")
        self._config, self._model, self._augment = config, model, augment
        self._sigmas, self._psis = networks.sigmas(model), networks.psis(model)
        self._unsupervised = self._psis or self._sigmas  # what unlabelled images train
        shape = [None, *model.input_shape[1:]]
        classes = model.output_shape[-1]
        images = tf.TensorSpec(shape, tf.uint8)
        targets = tf.TensorSpec([None, classes], tf.float32)
        helper_probs = tf.TensorSpec([None, None, classes], tf.float32)
        number = tf.TensorSpec([], tf.float32)
        seed = tf.TensorSpec([2], tf.int32)
        compiled = partial(tf.function, autograph=False)  # the branches below are tf.cond already
        fixed = partial(compiled, jit_compile=config.xla or None)  # no shape depends on values, as XLA needs it
        # The server's step differs in one point only: small elements of psi count as 0, as in an evaluation.
        supervised = [images, targets, number]
        self.supervised_step = fixed(partial(self._supervised_step, training=True), supervised)
        self._server_step = fixed(partial(self._supervised_step, training=False), supervised)
        self._predict = fixed(lambda x: model(scaled(x), training=True), [images])
        self._penalties = fixed(self._penalties_and_gradients, [])
        self.unsupervised_step = compiled(self._unsupervised_step, [images, helper_probs, seed, number])

    def begin_round(self) -> None:
        """Nothing of an earlier round is needed."""

    def chosen_rows(self, received_probs: np.ndarray | None) -> None:
        """All: what a step learns from depends on the model at that step."""

    def client_steps(self, batch: Batch) -> Sequence[ClientStep]:
        """Labels train sigma, then unlabelled images train psi."""
        steps: list[ClientStep] = []
        if batch.x_labeled is not None:
            steps.append(("s", partial(self.supervised_step, batch.x_labeled, batch.y_labeled, batch.lr)))
        if batch.x_unlabeled is not None:
            step = partial(self.unsupervised_step, batch.x_unlabeled, batch.helper_probs, batch.seed, batch.lr)
            steps.append(("u", step))
        return steps

    def server_step(self, x: tf.Tensor, y: tf.Tensor, share_done: tf.Tensor, lr: tf.Tensor) -> tf.Tensor:
        """One step on sigma at the server; the loss before it."""
        return self._server_step(x, y, lr)

    def _supervised_step(self, x_labeled: tf.Tensor, y_labeled: tf.Tensor, lr: tf.Tensor, training: bool) -> tf.Tensor:
        """One step on sigma (algorithm 1, line 17; 2, line 6); the loss before it."""
        with tf.GradientTape() as tape:
            probs = self._model(scaled(x_labeled), training=training)
            loss = self._config.lambda_s * losses.cross_entropy(y_labeled, probs)
            if self._config.wd:
                loss += self._config.wd * losses.sum_of_squares(self._sigmas)
        descend(self._sigmas, gradients(tape, loss, self._sigmas, self._config.precision), lr)
        return loss

    def _unsupervised_step(self, x: tf.Tensor, helper_probs: tf.Tensor, seed: tf.Tensor, lr: tf.Tensor) -> Terms:
        """One step on psi (algorithm 1, line 18; 2, line 21).

        Args:
            helper_probs: [helpers, batch, classes], of frozen helper models; may be of no helpers.
        """
        config = self._config
        probs = self._predict(x)
        kept = tf.reduce_max(probs, axis=-1) >= config.confidence
        labels = losses.agreement_labels(probs, helper_probs)
        penalty, penalties = self._penalties()
        icc, pseudo_ce, icc_loss, pseudo_loss = self._consistency_step(x, helper_probs, labels, kept, seed, lr)
        descend(self._psis, penalties, lr)  # taken at the same psi as the gradients of the consistency step
        pseudo_labels = tf.where(kept, tf.argmax(labels, axis=-1), -1)
        loss = icc_loss + pseudo_loss + penalty
        return Terms(loss, icc, pseudo_ce, kept, pseudo_labels, icc_loss, pseudo_loss)

    def _penalties_and_gradients(self) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """The last two terms of eq. 5 and their gradients; none without a psi.

        They look at every weight in every step, so the gradients are written out: a tape would take twice as long.
        """
        config = self._config
        if not self._psis:
            return tf.constant(0.0), []
        differences = [sigma - psi for sigma, psi in zip(self._sigmas, self._psis)]
        penalty = config.lambda_l1 * losses.l1(self._psis) + config.lambda_l2 * losses.sum_of_squares(differences)
        gradients = [
            config.lambda_l1 * tf.sign(psi) - 2 * config.lambda_l2 * difference
            for psi, difference in zip(self._psis, differences)
        ]
        return penalty, gradients

    def _consistency_step(
        self, x: tf.Tensor, helper_probs: tf.Tensor, labels: tf.Tensor, kept: tf.Tensor, seed: tf.Tensor, lr: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
        """Descends on the first two terms of eq. 5; returns (icc, pseudo-label CE, both with their weights).

        Nothing passes through the network for a term that is absent: without helpers, or without a confident row.
        """
        config = self._config
        rows = tf.where(kept)[:, 0]
        icc_rows = tf.range(tf.shape(x, tf.int64)[0]) if config.icc_rows == "all" else rows
        has_icc = tf.logical_and(tf.shape(helper_probs)[0] > 0, tf.size(icc_rows) > 0)
        has_labels = tf.size(rows) > 0

        def consistency() -> tf.Tensor:
            probs = self._model(scaled(tf.gather(x, icc_rows)), training=True)
            return losses.inter_client_kl(tf.gather(helper_probs, icc_rows, axis=1), probs)

        def agreement() -> tf.Tensor:
            probs = self._model(scaled(self._augment(x, rows, seed)), training=True)
            return losses.cross_entropy(tf.gather(labels, rows), probs)

        def absent() -> tf.Tensor:
            return tf.constant(0.0)

        def step() -> tuple[tf.Tensor, ...]:
            with tf.GradientTape() as tape:
                icc = tf.cond(has_icc, consistency, absent)
                pseudo_ce = tf.cond(has_labels, agreement, absent)
                icc_loss, pseudo_loss = config.lambda_i * icc, config.lambda_a * pseudo_ce
                loss = icc_loss + pseudo_loss
            descend(self._unsupervised, gradients(tape, loss, self._unsupervised, config.precision), lr)
            return icc, pseudo_ce, icc_loss, pseudo_loss

        icc, pseudo_ce, icc_loss, pseudo_loss = tf.cond(
            tf.logical_or(has_icc, has_labels), step, lambda: tuple(absent() for _ in range(4))
        )
        return icc, pseudo_ce, icc_loss, pseudo_loss


FEDMATCH = LearnerEntry(
    "fedmatch",
    FedMatch,
    reads=frozenset({"confidence", "augment", "equalize"}),
    depends_on_end=False,
    passes=1.4,
    place=0,
)
