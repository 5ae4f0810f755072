"""A client's round (RunClient of algorithms 1 and 2): state in, state and upload out, nothing kept in between.

1. Receive sigma, psi and perhaps helpers: theta = sigma + psi, theta_h = sigma + psi_h, frozen.
2. For every local epoch and minibatch: (labels-at-client) a supervised step on sigma, eq. 4; then an unsupervised step
   on psi, eq. 5. A baseline takes one joint step instead.
3. Validate, and test where the run asks for it; or give back the model, for several workers to do that.
4. Upload what changed; what did not stays as received, on both sides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from data.files import Examples
from data.loader import ClientData, EvalData
from fedmatch_tf.config import Config
from fedmatch_tf.core import networks, seeding, wire
from fedmatch_tf.core.evaluate import Evaluator
from fedmatch_tf.core.params import Params, kernels_in_use
from fedmatch_tf.learners.learner import Batch, Method
from fedmatch_tf.simulation import scoring
from fedmatch_tf.simulation.tasks import ClientResult, ClientTask, EvalResult, EvalTask, Step, TrainingError, name_of

LOWER_LR = "A lower --lr may help"


class Client:
    """What a process needs to run any client: one model, its compiled steps, the evaluation data."""

    def __init__(
        self, config: Config, model: Any, method: Method, evaluator: Evaluator, evals: EvalData, probe: np.ndarray
    ) -> None:
        self._config, self._model, self._method = config, model, method
        self._evaluator, self._evals, self._probe = evaluator, evals, probe

    def update(self, task: ClientTask, data: ClientData, known: Examples | None = None) -> ClientResult:
        """RunClient: one round of one client.

        Args:
            known: labelled data on which forgetting is measured, if it is.
        """
        config, received = self._config, task.broadcast.params
        helper_probs = self._helper_probs(task.broadcast, data.unlabeled)
        networks.write(self._model, received)
        self._method.begin_round()
        steps, known_acc = self._train(task, data, helper_probs, known)
        trained = networks.read(self._model)
        check_result(trained, name_of(task))
        theta, splits = kernels_in_use(trained, config.l1_thres), scoring.client_splits(config)
        whose = f"client {task.client}"
        scored = [self.score(EvalTask(task.round_num, whose, split, theta)) for split in splits if task.score]
        upload, embedding = self._upload(trained, received)
        labeled = 0 if data.labeled is None else len(data.labeled)
        return ClientResult(
            task.client, task.broadcast.cost, task.plateau, upload, embedding, steps, labeled + len(data.unlabeled),
            tuple(scored), theta if splits and not task.score else None, known_acc,
        )  # fmt: skip

    def score(self, task: EvalTask) -> EvalResult:
        """A model's score on a part of a set."""
        examples = self._evals.valid if task.split == "valid" else self._evals.test
        batches = scoring.passes(self._config, len(examples), task.part, task.num_parts)
        self._evaluator.load(task.theta)
        losses, hits = self._evaluator.score(examples, batches)
        if not all(map(math.isfinite, losses)):
            raise TrainingError(f"expected a finite loss, received NaN or infinity in {name_of(task)}. {LOWER_LR}")
        num_rows = tuple(rows.stop - rows.start for rows in batches)
        return EvalResult(task.whose, task.split, task.part, task.num_parts, num_rows, losses, hits)

    def _upload(self, trained: Params, received: Params) -> tuple[wire.Upload, np.ndarray | None]:
        """(what is sent back, the embedding of the model that both sides then hold of the client)."""
        config = self._config
        if config.framework != "fedmatch":
            return wire.full_upload(trained, shared=config.framework != "local"), None
        with_sigma = config.scenario == "lc" or not config.decomposed
        upload = wire.upload(trained, received, config.l1_thres, config.delta_thres, with_sigma)
        self._evaluator.load(kernels_in_use(upload.params))
        return upload, self._evaluator.embed(self._probe).numpy()[0]

    def _helper_probs(self, broadcast: wire.Broadcast, unlabeled: Examples) -> np.ndarray:
        """[helpers, unlabelled examples, classes]: helpers are frozen, so they predict once for the whole round."""
        probs = []
        for helper in broadcast.helpers:
            sigma, psi = broadcast.params
            self._evaluator.load(kernels_in_use(Params(sigma, helper) if len(psi) else Params(helper, psi)))
            rows = scoring.passes(self._config, len(unlabeled))
            probs.append(np.concatenate([self._evaluator.predict(unlabeled.x[part]).numpy() for part in rows]))
        return np.array(probs, np.float32).reshape(len(probs), len(unlabeled), unlabeled.y.shape[1])

    def _train(
        self, task: ClientTask, data: ClientData, helper_probs: np.ndarray, known: Examples | None
    ) -> tuple[tuple[Step, ...], tuple[float, float] | None]:
        """The local epochs; values leave the device when all steps are done.

        Returns: the steps, and the mean accuracy on `known` before and after steps with unlabelled images, which are
        the second of FedMatch's two on a batch, or a baseline's only one.
        """
        done: list[tuple[Any, np.ndarray | None]] = []
        measured: list[tuple[float, float]] = []
        for batch in self._batches(task, data, helper_probs):
            steps_of_batch = self._method.client_steps(batch)
            for number, (kind, step) in enumerate(steps_of_batch, start=1):
                unlabeled = batch.x_unlabeled is not None and number == len(steps_of_batch)
                watched = known if unlabeled else None
                before = self._accuracy(watched) if watched is not None else 0.0
                done.append((step(), batch.y_unlabeled.argmax(axis=1) if kind == "u" else None))  # type: ignore[union-attr]
                if watched is not None:
                    measured.append((before, self._accuracy(watched)))
        steps = tuple(_step(terms, truth) for terms, truth in done)
        check_finite(steps, name_of(task))
        before_and_after = [sum(values) / len(measured) for values in zip(*measured)]
        return steps, (before_and_after[0], before_and_after[1]) if measured else None

    def _accuracy(self, examples: Examples) -> float:
        """Of the model as it is now."""
        self._evaluator.load(kernels_in_use(networks.read(self._model), self._config.l1_thres))
        return sum(self._evaluator.score(examples, scoring.passes(self._config, len(examples)))[1]) / len(examples)

    def _batches(self, task: ClientTask, data: ClientData, helper_probs: np.ndarray) -> Iterator[Batch]:
        config = self._config
        lr = tf.constant(task.plateau.lr, tf.float32)
        pairs = batches(config, data)
        for epoch in range(config.num_epochs_client):
            for step, (labeled, unlabeled) in enumerate(pairs):
                rng = seeding.stream(config.seed, "augment", task.round_num, task.client, epoch, step)
                seed = rng.integers(0, 2**31 - 1, 2, np.int32)
                part = (epoch * len(pairs) + step) / (config.num_epochs_client * len(pairs))
                yield Batch(
                    *_rows(data.labeled, labeled), *_rows(data.unlabeled, unlabeled),
                    helper_probs[:, unlabeled or slice(0, 0)], seed, progress(config, task.round_num, part), lr,
                )  # fmt: skip


def _rows(examples: Examples | None, rows: slice | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    if examples is None or rows is None:
        return None, None
    return examples.x[rows], examples.y[rows]


def progress(config: Config, round_num: int, part: float) -> tf.Tensor:
    """How much of the whole training is done, `part` of this round included."""
    return tf.constant((round_num + part) / config.num_rounds, tf.float32)


def batches(config: Config, data: ClientData) -> list[tuple[slice | None, slice | None]]:
    """Rows of the labelled (labels-at-client) and unlabelled batch of every step: consecutive slices, no shuffling.

    Labels-at-client: as many steps as there are labelled batches, over which the unlabelled examples are spread.
    When they are used up, the remaining steps have None. Labels-at-server: unlabelled batches of a fixed size.
    """
    if data.labeled is None:
        size = config.batch_size_unlabeled or config.batch_size_client
        return [(None, rows) for rows in slices(len(data.unlabeled), size)]
    labeled = slices(len(data.labeled), config.batch_size_client)
    size = config.batch_size_unlabeled or math.ceil(len(data.unlabeled) / len(labeled))
    begins = [step * size for step in range(len(labeled))]
    unlabeled = [slice(begin, begin + size) if begin < len(data.unlabeled) else None for begin in begins]
    return list(zip(labeled, unlabeled))


def slices(num_examples: int, batch_size: int) -> list[slice]:
    """round(num_examples / batch_size) consecutive slices, at least one; what is beyond is left out."""
    steps = max(1, round(num_examples / batch_size))
    return [slice(step * batch_size, (step + 1) * batch_size) for step in range(steps)]


def check_finite(steps: Sequence[Step], where: str) -> None:
    """Raises TrainingError at the first step whose loss is not a number."""
    for number, step in enumerate(steps):
        if not math.isfinite(step.loss):
            kind = "supervised" if step.kind == "s" else "unsupervised"
            raise TrainingError(
                f"expected a finite loss, received {step.loss} in {where}, step {number} ({kind}). {LOWER_LR}"
            )


def check_result(params: Params, where: str) -> None:
    """Raises TrainingError if weights are not numbers."""
    if not all(np.isfinite(part).all() for part in params):
        raise TrainingError(f"expected finite weights, received NaN or infinity in {where}. {LOWER_LR}")


def _step(terms: Any, truth: np.ndarray | None) -> Step:
    """A step's tensors as numbers."""
    if truth is None:
        return Step("s", float(terms))
    labels = terms.pseudo_labels.numpy()
    rows = np.flatnonzero(terms.kept.numpy())
    correct = int((labels[rows] == truth[rows]).sum())
    return Step(
        "u", float(terms.loss), float(terms.icc), float(terms.pseudo_ce), len(labels),
        tuple(rows.tolist()), tuple(labels[rows].tolist()), correct,
    )  # fmt: skip
