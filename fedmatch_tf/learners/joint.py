"""What the baselines have in common: one joint loss on one set of plain parameters theta.

    L(theta) = lambda_s L_s(labelled) + lambda_u L_u(unlabelled) + mu / 2 |theta - theta_received|^2 + wd |theta|^2

The last but one is there if the algorithm asks for it (FedProx), the last if weight decay is set. In labels-at-server
the server's step has the first term, a client's step the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Callable

from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.batches import Batch
from fedmatch_tf.learners.learner import ABSENT, Learner, Terms
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import losses
from fedmatch_tf.networks.evaluate import inputs_of

# Settings of those who take confident predictions for labels.
PSEUDO_LABELS = frozenset({"lambda_u", "confidence", "augment", "equalize"})


class JointLearner(Learner):
    """A baseline says what L_s and L_u are; its steps are compiled here."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        config, model = self.config, self.model
        self._theta = networks.sigmas(model)
        self._received = [tf.Variable(part, trainable=False) for part in self._theta] if self.mu else []
        images = inputs_of(model)
        targets = tf.TensorSpec([None, model.output_shape[-1]])
        seed, number = tf.TensorSpec([2], tf.int32), tf.TensorSpec([])
        labeled, unlabeled = (images, targets, number), (images, seed, *self.extra_specs(images, targets))
        compiled = partial(tf.function, autograph=False)
        fixed = partial(compiled, jit_compile=config.xla or None)
        self._joint_step = compiled(self._step, [number, labeled, unlabeled])
        self._unlabeled_step = compiled(lambda lr, given: self._step(lr, None, given), [number, unlabeled])
        self._labeled_step = fixed(self._step, [number, labeled])
        self._server_step = fixed(partial(self._step, at_client=False), [number, labeled])

    def labeled_loss(self, y: tf.Tensor, probs: tf.Tensor, share_done: tf.Tensor) -> tf.Tensor:
        """L_s of predictions on labelled images; cross-entropy unless a learner says otherwise."""
        return losses.cross_entropy(y, probs)

    def unlabeled_loss(self, x: tf.Tensor, seed: tf.Tensor, *extra: Any) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """(L_u, rows that count bool [n], the labels they are given int64 [n])."""
        raise NotImplementedError

    def extra_specs(self, images: tf.TensorSpec, probs: tf.TensorSpec) -> tuple[tf.TensorSpec, ...]:
        """The kinds of tensors that a batch has as its `extra`, from those of uint8 images and of probabilities."""
        return ()

    def pseudo_label_loss(self, x: tf.Tensor, seed: tf.Tensor, kept: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
        """Sum over the rows that are kept of CE(target, p(RandAugment(x))), over the number of all rows."""
        rows = tf.where(kept)[:, 0]

        def consistency() -> tf.Tensor:
            strong = self.predict(self.augment(x, rows, seed))
            share = tf.cast(tf.size(rows), tf.float32) / tf.cast(tf.shape(x)[0], tf.float32)
            return share * losses.cross_entropy(tf.gather(targets, rows), strong)

        return tf.cond(tf.size(rows) > 0, consistency, lambda: tf.constant(0.0))

    def begin_round(self) -> None:
        """Remembers what the client has received, for the proximal term."""
        super().begin_round()
        for received, variable in zip(self._received, self._theta):
            received.assign(variable)

    def client_steps(self, batch: Batch) -> Sequence[Callable[[], Terms]]:
        """One joint step, or one on what there is."""
        labeled = (batch.x_labeled, batch.y_labeled, batch.share_done)
        if batch.x_unlabeled is None:
            return [partial(self._labeled_step, batch.lr, labeled)]
        unlabeled = (batch.x_unlabeled, batch.seed, *batch.extra)
        if batch.x_labeled is None:
            return [partial(self._unlabeled_step, batch.lr, unlabeled)]
        return [partial(self._joint_step, batch.lr, labeled, unlabeled)]

    def server_step(self, x: Any, y: Any, share_done: Any, lr: Any) -> Terms:
        """One step on the first term, without the proximal one."""
        terms: Terms = self._server_step(lr, (x, y, share_done))
        return terms

    def _step(self, lr: tf.Tensor, labeled: Any = None, unlabeled: Any = None, at_client: bool = True) -> Terms:
        """One step on what there is.

        Args:
            labeled: (x, y, share_done).
            unlabeled: (x, seed, *extra).
        """
        config, kept, labels = self.config, None, None
        terms: dict[str, tf.Tensor] = {}
        with tf.GradientTape() as tape:
            if labeled is not None:
                x, y, share_done = labeled
                terms["supervised"] = config.lambda_s * self.labeled_loss(y, self.predict(x), share_done)
            if unlabeled is not None:
                loss, kept, labels = self.unlabeled_loss(*unlabeled)
                terms["pseudo"] = config.lambda_u * loss
            if self.mu and at_client:
                terms["proximal"] = self.mu * losses.proximal(self._theta, self._received)
            if config.wd:
                terms["l2"] = config.wd * losses.sum_of_squares(self._theta)
            total = tf.add_n(list(terms.values()))
        self.sgd.descend(self.sgd.gradients(tape, total), lr)
        if kept is not None:
            terms["pseudo"] = tf.where(tf.reduce_any(kept), terms["pseudo"], ABSENT)
        return Terms({**terms, "total": total}, kept, labels)
