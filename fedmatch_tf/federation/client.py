"""A client's round (RunClient of algorithms 1 and 2): state in, state and upload out, nothing kept in between.

1. Receive sigma, psi and perhaps helpers: theta = sigma + psi, theta_h = sigma + psi_h, frozen.
2. For every local epoch and minibatch: (labels-at-client) a supervised step on sigma, eq. 4; then an unsupervised step
   on psi, eq. 5. A baseline takes one joint step instead.
3. Validate, and test where the run asks for it; or give back the model, for several workers to do that.
4. Upload what changed; what did not stays as received, on both sides.

In the margin: the lines of algorithm 1; those of algorithm 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from fedmatch_tf.algorithms.algorithm import Algorithm
from fedmatch_tf.algorithms.wire import Broadcast
from fedmatch_tf.config import Config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.federation import scoring
from fedmatch_tf.federation.evaluation import Evaluation
from fedmatch_tf.federation.steps import checked, count_labels, losses_of, weak_view
from fedmatch_tf.federation.tasks import ClientResult, ClientTask, EvalTask, LabeledAcc, client_model
from fedmatch_tf.learners.batches import ClientRound, Minibatches, View
from fedmatch_tf.learners.learner import Learner, Terms
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params


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
            labeled_acc_on: labelled data on which accuracy is measured around every step, if it is.
        """
        l1_thres, received = self._config.l1_thres, task.broadcast.params
        views = self._views(task, data)
        networks.write(self._model, received)
        self._learner.begin_round()
        predict = lambda x: self._evaluation.predict(received.theta(l1_thres), x)  # noqa: E731
        made = self._learner.batches(ClientRound(task.round_num, task.client, task.lr, views, predict))
        steps, truths, labeled_acc = self._train(made, labeled_acc_on)  # lines 15 to 20; lines 19 to 23
        losses = losses_of(steps, made.num_batches, str(task))  # only now do values leave the device
        confident_rows, num_correct = count_labels(steps, truths)
        trained = checked(networks.read(self._model), str(task))
        upload = self._algorithm.upload(trained, received)
        num_frozen = networks.num_frozen(self._model) if task.is_new else 0
        theta, splits = trained.theta(l1_thres), scoring.client_splits(self._config)
        to_score = [EvalTask(task.round_num, client_model(task.client), split, theta) for split in splits]
        return ClientResult(
            client=task.client,
            sigma=None if upload.params.sigma is received.sigma else upload.params.sigma,
            psi=upload.params.psi,
            num_examples=self._learner.num_examples(data),
            embedding=self._evaluation.embed(upload.params.theta(), self._probe) if self._algorithm.embeds else None,
            s2c=task.broadcast.cost.with_frozen(num_frozen, len(received.sigma)),
            c2s=upload.cost,
            plateau=task.plateau,
            lr=task.lr,
            losses=losses,
            num_unlabeled=made.num_unlabeled,
            confident_rows=confident_rows,
            num_correct=num_correct,
            scored=tuple(self._evaluation.score(one) for one in to_score) if task.score else (),
            theta=theta if splits and not task.score else None,
            labeled_acc=labeled_acc,
        )

    def _views(self, task: ClientTask, data: ClientData) -> list[View]:
        """What each epoch sees; one view of all epochs, if nothing is drawn for them."""
        views = []
        for epoch in range(1 if self._config.weak == "none" else self._config.num_epochs_client):
            weak = partial(weak_view, self._config, ids=(task.round_num, task.client, epoch))
            labeled = None if data.labeled is None else weak("weak labelled", data.labeled)
            unlabeled = weak("weak unlabelled", data.unlabeled)
            probs = self._helper_probs(task.broadcast, unlabeled)  # line 14; line 18
            views.append(View(replace(data, labeled=labeled, unlabeled=unlabeled), probs))
        return views

    def _helper_probs(self, broadcast: Broadcast, unlabeled: Examples) -> np.ndarray:
        """[helpers, unlabelled examples, classes]: helpers are frozen, so they predict before the first step."""
        sigma, psi = broadcast.params
        models = [Params(helper) if psi is None else Params(sigma, helper) for helper in broadcast.helpers]
        probs = [self._evaluation.predict(model.theta(), unlabeled.x) for model in models]
        return np.array(probs, np.float32).reshape(len(probs), len(unlabeled), unlabeled.y.shape[1])

    def _train(
        self, made: Minibatches, labeled_acc_on: Examples | None
    ) -> tuple[list[Terms], list[np.ndarray | None], LabeledAcc | None]:
        """(every step's terms, the true classes of its unlabelled images, labelled accuracy if it is measured)."""
        steps: list[Terms] = []
        truths: list[np.ndarray | None] = []
        accuracies = [] if labeled_acc_on is None else [self._accuracy(labeled_acc_on)]
        with_unlabeled: list[int] = []  # a batch's last step, if it has unlabelled images
        for batch in made.batches:  # lines 15 and 16; lines 19 and 20
            truth = None if batch.y_unlabeled is None else batch.y_unlabeled.argmax(axis=1)
            for step in self._learner.client_steps(batch):  # lines 17 and 18; line 21
                steps.append(step())
                truths.append(truth)
                if labeled_acc_on is not None:
                    accuracies.append(self._accuracy(labeled_acc_on))
            if truth is not None:
                with_unlabeled.append(len(steps) - 1)
        return steps, truths, _labeled_acc(accuracies, with_unlabeled)

    def _accuracy(self, examples: Examples) -> float:
        """Of the model as it is now."""
        return self._evaluation.accuracy(networks.read(self._model).theta(self._config.l1_thres), examples)


def _labeled_acc(accuracies: Sequence[float], with_unlabeled: Sequence[int]) -> LabeledAcc | None:
    """What is recorded of the accuracies before the first step and after every step; None if there are none."""
    if not accuracies or not with_unlabeled:
        return None
    before = sum(accuracies[step] for step in with_unlabeled) / len(with_unlabeled)
    after = sum(accuracies[step + 1] for step in with_unlabeled) / len(with_unlabeled)
    return LabeledAcc(before, after, tuple(accuracies[1:]))
