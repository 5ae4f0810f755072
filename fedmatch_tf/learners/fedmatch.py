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
from typing import Any, Callable

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.batches import Batch
from fedmatch_tf.learners.learner import ABSENT, Learner, Terms
from fedmatch_tf.learners.sgd import SGD
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import losses
from fedmatch_tf.networks.evaluate import inputs_of, scaled


class FedMatch(Learner):
    """Compiled steps on one decomposed model; without decomposition, both losses train the one set of parameters."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config, model = self.config, self.model
        self._sigmas, self._psis = networks.sigmas(model), networks.psis(model)
        self.sgd_on_psi = SGD(config, self._psis) if self._psis else self.sgd  # on what unlabelled images train
        classes = model.output_shape[-1]
        images = inputs_of(model)
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
        self._predict = fixed(self.predict, [images])
        self._penalties = fixed(self._penalties_and_gradients, [])
        self.unsupervised_step = compiled(self._unsupervised_step, [images, helper_probs, seed, number])

    def begin_round(self) -> None:
        """sigma and psi have a momentum each, if there is one."""
        super().begin_round()
        self.sgd_on_psi.begin()

    def client_steps(self, batch: Batch) -> Sequence[Callable[[], Terms]]:
        """Labels train sigma, then unlabelled images train psi."""
        steps: list[Callable[[], Terms]] = []
        if batch.x_labeled is not None:
            steps.append(partial(self.supervised_step, batch.x_labeled, batch.y_labeled, batch.lr))
        if batch.x_unlabeled is not None:
            given = batch.x_unlabeled, batch.helper_probs, batch.seed, batch.lr
            steps.append(partial(self.unsupervised_step, *given))
        return steps

    def server_step(self, x: Any, y: Any, share_done: Any, lr: Any) -> Terms:
        """One step on sigma at the server."""
        terms: Terms = self._server_step(x, y, lr)
        return terms

    def _supervised_step(self, x_labeled: tf.Tensor, y_labeled: tf.Tensor, lr: tf.Tensor, training: bool) -> Terms:
        """One step on sigma (algorithm 1, line 17; 2, line 6)."""
        with tf.GradientTape() as tape:
            probs = self.model(scaled(x_labeled), training=training)
            terms = {"supervised": self.config.lambda_s * losses.cross_entropy(y_labeled, probs)}
            if self.config.wd:
                terms["l2"] = self.config.wd * losses.sum_of_squares(self._sigmas)
            total = tf.add_n(list(terms.values()))
        self.sgd.descend(self.sgd.gradients(tape, total), lr)
        return Terms({**terms, "total": total})

    def _unsupervised_step(self, x: tf.Tensor, helper_probs: tf.Tensor, seed: tf.Tensor, lr: tf.Tensor) -> Terms:
        """One step on psi (algorithm 1, line 18; 2, line 21).

        Args:
            helper_probs: [helpers, batch, classes], of frozen helper models; may be of no helpers.
        """
        probs = self._predict(x)
        kept = tf.reduce_max(probs, axis=-1) >= self.config.confidence
        labels = losses.agreement_labels(probs, helper_probs)
        penalties, penalty_gradients = self._penalties()
        consistency, gradients = self._consistency_step(x, helper_probs, labels, kept, seed, lr)
        if gradients:  # a momentum or a norm is of the gradient of all terms
            pairs = zip(gradients, penalty_gradients or [0.0] * len(gradients))
            self.sgd_on_psi.descend([first + second for first, second in pairs], lr)
        else:
            self.sgd_on_psi.descend(penalty_gradients, lr)  # at the same psi as the gradients of the consistency step
        total = tf.add_n([consistency["total"], *penalties.values()])
        return Terms({**consistency, **penalties, "total": total}, kept, tf.argmax(labels, axis=-1))

    def _penalties_and_gradients(self) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        """The last two terms of eq. 5 and the gradients of their sum; none without a psi.

        They look at every weight in every step, so the gradients are written out: a tape would take twice as long.
        """
        config = self.config
        if not self._psis:
            return {}, []
        differences = [sigma - psi for sigma, psi in zip(self._sigmas, self._psis)]
        penalties = {
            "l1": config.lambda_l1 * losses.l1(self._psis),
            "l2": config.lambda_l2 * losses.sum_of_squares(differences),
        }
        gradients = [
            config.lambda_l1 * tf.sign(psi) - 2 * config.lambda_l2 * difference
            for psi, difference in zip(self._psis, differences)
        ]
        return penalties, gradients

    def _consistency_step(
        self, x: tf.Tensor, helper_probs: tf.Tensor, labels: tf.Tensor, kept: tf.Tensor, seed: tf.Tensor, lr: tf.Tensor
    ) -> tuple[dict[str, tf.Tensor], list[tf.Tensor]]:
        """(the first two terms of eq. 5 and their sum, `total`; their gradients, or none where it descends on them).

        Nothing passes through the network for a term that is absent: without helpers, or without a confident row.
        """
        config = self.config
        rows = tf.where(kept)[:, 0]
        icc_rows = tf.range(tf.shape(x, tf.int64)[0]) if config.icc_rows == "all" else rows
        has_icc = tf.logical_and(tf.shape(helper_probs)[0] > 0, tf.size(icc_rows) > 0)
        has_labels = tf.size(rows) > 0

        def inter_client() -> tf.Tensor:
            probs = self.predict(tf.gather(x, icc_rows))
            return losses.inter_client_kl(tf.gather(helper_probs, icc_rows, axis=1), probs)

        def agreement() -> tf.Tensor:
            probs = self.predict(self.augment(x, rows, seed))
            return losses.cross_entropy(tf.gather(labels, rows), probs)

        def absent() -> tf.Tensor:
            return tf.constant(0.0)

        def step() -> tuple[tf.Tensor, ...]:
            with tf.GradientTape() as tape:
                icc = config.lambda_i * tf.cond(has_icc, inter_client, absent)
                pseudo = config.lambda_a * tf.cond(has_labels, agreement, absent)
                loss = icc + pseudo
            gradients = self.sgd_on_psi.gradients(tape, loss)
            if not self.sgd_on_psi.takes_parts:
                return icc, pseudo, *gradients
            self.sgd_on_psi.descend(gradients, lr)
            return icc, pseudo

        def no_step() -> tuple[tf.Tensor, ...]:
            variables = [] if self.sgd_on_psi.takes_parts else self.sgd_on_psi.variables
            return absent(), absent(), *map(tf.zeros_like, variables)

        icc, pseudo, *gradients = tf.cond(tf.logical_or(has_icc, has_labels), step, no_step)
        terms = {
            "inter_client": tf.where(has_icc, icc, ABSENT),
            "pseudo": tf.where(has_labels, pseudo, ABSENT),
            "total": icc + pseudo,
        }
        return terms, gradients


ENTRY = LearnerEntry(
    "fedmatch",
    FedMatch,
    reads=frozenset({"confidence", "augment", "equalize"}),
    depends_on_end=False,
    passes=1.4,
    place=0,
)
