"""A client's round (RunClient of algorithms 1 and 2): state in, state and upload out, nothing kept in between.

1. Receive sigma, psi and perhaps helpers: theta = sigma + psi, theta_h = sigma + psi_h, frozen.
2. For every local epoch and minibatch: (labels-at-client) a supervised step on sigma, eq. 4; then an unsupervised step
   on psi, eq. 5. A baseline takes one joint step instead.
3. Validate, and test where the run asks for it; or give back the model, for several workers to do that.
4. Upload what changed; what did not stays as received, on both sides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from fedmatch_tf.algorithms.algorithm import Algorithm, Update
from fedmatch_tf.algorithms.wire import Broadcast
from fedmatch_tf.base import seeding
from fedmatch_tf.config import Config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.federation import scoring
from fedmatch_tf.federation.batches import batches, check_finite, check_result, share_done
from fedmatch_tf.federation.evaluation import Evaluation
from fedmatch_tf.federation.tasks import ClientResult, ClientTask, EvalTask, LabeledAcc, Step, client_model, name_of
from fedmatch_tf.learners.learner import Batch, Learner
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params

AS_RECEIVED = np.zeros(0, np.float32)  # stands for a sigma that was not trained; crew.py puts it back


class Client:
    """What a process needs to run any client: one model, its compiled steps, the algorithm, evaluation."""

    def __init__(
        self,
        config: Config,
        algorithm: Algorithm,
        model: Any,
        learner: Learner,
        evaluation: Evaluation,
        probe: np.ndarray,
    ) -> None:
        self._config, self._algorithm, self._model, self._learner = config, algorithm, model, learner
        self._evaluation, self._probe = evaluation, probe

    def update(self, task: ClientTask, data: ClientData, labeled_acc_on: Examples | None = None) -> ClientResult:
        """RunClient: one round of one client.

        Args:
            labeled_acc_on: labelled data on which accuracy is measured after every step, if it is.
        """
        received = task.broadcast.params
        helper_probs = self._helper_probs(task.broadcast, data.unlabeled)  # algorithm 1, line 14; 2, line 18
        received_probs = None
        if self._learner.uses_received:  # frozen for the round, as helpers are
            received_probs = self._evaluation.predict(received.theta(self._config.l1_thres), data.unlabeled.x)
        networks.write(self._model, received)
        self._learner.begin_round()
        rows = self._learner.chosen_rows(received_probs)
        at_hand = self._batches(task, data, rows, helper_probs, received_probs)
        steps, labeled_acc = self._train(task, at_hand, labeled_acc_on)  # 15 to 20; 19 to 23
        trained = networks.read(self._model)
        check_result(trained, name_of(task))
        theta, splits = trained.theta(self._config.l1_thres), scoring.client_splits(self._config)
        to_score = [EvalTask(task.round_num, client_model(task.client), split, theta) for split in splits]
        return ClientResult(
            self._send_back(task.client, trained, received, data),
            s2c=task.broadcast.cost,
            plateau=task.plateau,
            lr=task.lr,
            steps=steps,
            scored=tuple(self._evaluation.score(one) for one in to_score) if task.score else (),
            theta=theta if splits and not task.score else None,
            labeled_acc=labeled_acc,
            rows_left_out=0 if rows is None else (len(data.unlabeled) - len(rows)) * self._config.num_epochs_client,
        )

    def _send_back(self, client: int, trained: Params, received: Params, data: ClientData) -> Update:
        """What is sent back, and the embedding of the model that both sides then hold of the client."""
        upload = self._algorithm.upload(trained, received)
        embedding = self._evaluation.embed(upload.params.theta(), self._probe) if self._algorithm.embeds else None
        num_labeled = 0 if data.labeled is None else len(data.labeled)
        if upload.params.sigma is received.sigma:  # the server has it: it need not cross
            upload = upload._replace(params=upload.params._replace(sigma=AS_RECEIVED))
        return Update(client, upload, num_labeled + len(data.unlabeled), embedding)

    def _helper_probs(self, broadcast: Broadcast, unlabeled: Examples) -> np.ndarray:
        """[helpers, unlabelled examples, classes]: helpers are frozen, so they predict once for the whole round."""
        sigma, psi = broadcast.params
        models = [Params(sigma, helper) if len(psi) else Params(helper, psi) for helper in broadcast.helpers]
        probs = [self._evaluation.predict(model.theta(), unlabeled.x) for model in models]
        return np.array(probs, np.float32).reshape(len(probs), len(unlabeled), unlabeled.y.shape[1])

    def _train(
        self, task: ClientTask, at_hand: Iterable[Batch], labeled_acc_on: Examples | None
    ) -> tuple[tuple[Step, ...], LabeledAcc | None]:
        """The local epochs; values leave the device when all steps are done.

        A step with unlabelled images is the second of FedMatch's two on a batch, or a baseline's only one.
        """
        done: list[tuple[Any, np.ndarray | None]] = []
        with_unlabeled: list[int] = []  # numbers of the steps
        accuracies = [] if labeled_acc_on is None else [self._accuracy(labeled_acc_on)]
        for batch in at_hand:
            for kind, step in self._learner.client_steps(batch):
                truth = batch.y_unlabeled.argmax(axis=1) if kind == "u" and batch.y_unlabeled is not None else None
                done.append((step(), truth))
                if labeled_acc_on is not None:
                    accuracies.append(self._accuracy(labeled_acc_on))
            if batch.x_unlabeled is not None:
                with_unlabeled.append(len(done) - 1)
        steps = tuple(_step(terms, truth) for terms, truth in done)
        check_finite(steps, name_of(task))
        return steps, _labeled_acc(accuracies, with_unlabeled)

    def _accuracy(self, examples: Examples) -> float:
        """Of the model as it is now."""
        return self._evaluation.accuracy(networks.read(self._model).theta(self._config.l1_thres), examples)

    def _batches(
        self,
        task: ClientTask,
        data: ClientData,
        rows: np.ndarray | None,
        helper_probs: np.ndarray,
        received_probs: np.ndarray | None,
    ) -> Iterator[Batch]:
        """The round's batches, from the chosen rows of the unlabelled examples; partners are drawn from all of them."""
        config = self._config
        lr = tf.constant(task.lr, tf.float32)
        everything, all_probs = data.unlabeled, received_probs
        if rows is not None:
            data = replace(data, unlabeled=Examples(everything.x[rows], everything.y[rows]))
            helper_probs = helper_probs[:, rows]
            received_probs = None if received_probs is None else received_probs[rows]
        pairs = batches(config, data, chosen=rows is not None)
        for epoch in range(config.num_epochs_client):
            for step, (labeled, unlabeled) in enumerate(pairs):
                rng = seeding.stream(config.seed, "augment", task.round_num, task.client, epoch, step)
                of_round = (epoch * len(pairs) + step) / (config.num_epochs_client * len(pairs))
                x_labeled, y_labeled = _rows(data.labeled, labeled)
                x_unlabeled, y_unlabeled = _rows(data.unlabeled, unlabeled)
                seed = rng.integers(0, 2**31 - 1, 2, np.int32)
                partners = None
                if self._learner.uses_partners and x_unlabeled is not None:
                    partners = rng.integers(0, len(everything), len(x_unlabeled))
                yield Batch(
                    x_labeled=x_labeled,
                    y_labeled=y_labeled,
                    x_unlabeled=x_unlabeled,
                    y_unlabeled=y_unlabeled,
                    helper_probs=helper_probs[:, unlabeled or slice(0, 0)],
                    seed=seed,
                    share_done=tf.constant(share_done(config, task.round_num, of_round)),
                    lr=lr,
                    received_probs=None if received_probs is None else received_probs[unlabeled or slice(0, 0)],
                    x_partner=None if partners is None else everything.x[partners],
                    partner_probs=None if partners is None or all_probs is None else all_probs[partners],
                )


def _rows(examples: Examples | None, rows: slice | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    if examples is None or rows is None:
        return None, None
    return examples.x[rows], examples.y[rows]


def _labeled_acc(accuracies: Sequence[float], with_unlabeled: Sequence[int]) -> LabeledAcc | None:
    """What is recorded of the accuracies before the first step and after every step; None if there are none."""
    if not accuracies or not with_unlabeled:
        return None
    before = sum(accuracies[step] for step in with_unlabeled) / len(with_unlabeled)
    after = sum(accuracies[step + 1] for step in with_unlabeled) / len(with_unlabeled)
    return LabeledAcc(before, after, tuple(accuracies[1:]))


def _step(terms: Any, truth: np.ndarray | None) -> Step:
    """A step's tensors as numbers."""
    if truth is None:
        return Step("s", float(terms))
    labels = terms.pseudo_labels.numpy()
    rows = np.flatnonzero(terms.kept.numpy())
    return Step(
        "u",
        loss=float(terms.loss),
        icc=float(terms.icc),
        pseudo_ce=float(terms.pseudo_ce),
        num_rows=len(labels),
        confident_rows=tuple(rows.tolist()),
        pseudo_labels=tuple(labels[rows].tolist()),
        num_correct=int((labels[rows] == truth[rows]).sum()),
        icc_loss=float(terms.icc_loss),
        pseudo_loss=float(terms.pseudo_loss),
    )
