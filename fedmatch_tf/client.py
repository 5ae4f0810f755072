"""A client's round (RunClient of algorithms 1 and 2): state in, state and upload out, nothing kept in between.

1. Receive sigma, psi and perhaps helpers: theta = sigma + psi, theta_h = sigma + psi_h, frozen.
2. For every local epoch and minibatch: (labels-at-client) a supervised step on sigma, eq. 4; then an unsupervised step
   on psi, eq. 5.
3. Validate, and test where the run asks for it.
4. Upload what changed; what did not stays as received, on both sides.
5. The validation loss decides on the client's next learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from data.files import Examples
from data.loader import ClientData
from fedmatch_tf import networks, schedule, seeding, wire
from fedmatch_tf.config import Config
from fedmatch_tf.evaluate import Evaluator
from fedmatch_tf.methods.fedmatch import FedMatch
from fedmatch_tf.params import Params
from fedmatch_tf.tasks import ClientResult, ClientTask, Score, Step, TrainingError, name_of


class Client:
    """What a process needs to run any client: one model, its compiled steps, the evaluation data."""

    def __init__(
        self, config: Config, model: Any, method: FedMatch, valid: Evaluator, test: Evaluator, probe: np.ndarray
    ) -> None:
        self._config, self._model, self._method = config, model, method
        self._valid, self._test, self._probe = valid, test, probe

    def update(self, task: ClientTask, data: ClientData) -> ClientResult:
        """RunClient: one round of one client."""
        received = task.broadcast.params
        helper_probs = self._helper_probs(task.broadcast, data.unlabeled)
        networks.write(self._model, received)
        steps = self._train(task, data, helper_probs)
        valid, trained = self._valid.score(), networks.read(self._model)
        check_result(trained, valid, name_of(task))
        test = self._test.score() if clients_test(self._config) else None
        config = self._config
        upload = wire.upload(trained, received, config.l1_thres, config.delta_thres, config.scenario == "lc")
        networks.write(self._model, upload.params)
        embedding = self._method.embed(self._probe).numpy()[0]
        plateau = schedule.advance(task.plateau, valid.loss, config.lr_patience, config.lr_factor, config.lr_min)
        labeled = 0 if data.labeled is None else len(data.labeled)
        return ClientResult(
            task.client, task.broadcast.cost, task.plateau.lr, upload, plateau, embedding, valid, test, steps,
            num_examples=labeled + len(data.unlabeled),
        )  # fmt: skip

    def _helper_probs(self, broadcast: wire.Broadcast, unlabeled: Examples) -> np.ndarray:
        """[helpers, unlabelled examples, classes]: helpers are frozen, so they predict once for the whole round."""
        probs = []
        for psi in broadcast.helpers:
            networks.write(self._model, Params(broadcast.params.sigma, psi))
            size = self._config.batch_size_test
            rows = [unlabeled.x[begin : begin + size] for begin in range(0, len(unlabeled), size)]
            probs.append(np.concatenate([self._method.predict(x).numpy() for x in rows]))
        return np.array(probs, np.float32).reshape(len(probs), len(unlabeled), unlabeled.y.shape[1])

    def _train(self, task: ClientTask, data: ClientData, helper_probs: np.ndarray) -> tuple[Step, ...]:
        """The local epochs; values leave the device when all steps are done."""
        config, method = self._config, self._method
        lr = tf.constant(task.plateau.lr, tf.float32)
        done: list[tuple[Any, np.ndarray | None]] = []
        for epoch in range(config.num_epochs_client):
            for step, (labeled, unlabeled) in enumerate(batches(config, data)):
                if data.labeled is not None and labeled is not None:
                    loss = method.supervised_step(data.labeled.x[labeled], data.labeled.y[labeled], lr)
                    done.append((loss, None))
                if unlabeled is not None:
                    rng = seeding.stream(config.seed, "augment", task.round_num, task.client, epoch, step)
                    seed = rng.integers(0, 2**31 - 1, 2, np.int32)
                    x, y = data.unlabeled.x[unlabeled], data.unlabeled.y[unlabeled]
                    done.append((method.unsupervised_step(x, helper_probs[:, unlabeled], seed, lr), y.argmax(axis=1)))
        steps = tuple(_step(terms, truth) for terms, truth in done)
        check_finite(steps, name_of(task))
        return steps


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
                f"expected a finite loss, received {step.loss} in {where}, step {number} ({kind}). "
                f"A lower --lr may help"
            )


def check_result(params: Params, valid: Score, where: str) -> None:
    """Raises TrainingError if the last step left weights or a validation loss that are not numbers."""
    finite = math.isfinite(valid.loss) and all(np.isfinite(part).all() for part in params)
    if not finite:
        raise TrainingError(f"expected finite weights, received NaN or infinity after {where}. A lower --lr may help")


def clients_test(config: Config) -> bool:
    """Whether clients evaluate on test data, too."""
    if config.eval_clients == "auto":
        return config.kind == "simb" or config.model.startswith("local-")
    return config.eval_clients == "always"


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
