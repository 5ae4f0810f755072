"""Tasks for a backend and their results: plain records, so that any process can run any of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedmatch_tf.params import Params
from fedmatch_tf.schedule import Plateau
from fedmatch_tf.wire import Broadcast, Cost, Upload


class TrainingError(RuntimeError):
    """Training can't go on; says in which round, for which client and at which step."""


class Score(NamedTuple):
    """Loss and accuracy on a set."""

    loss: float
    accuracy: float


class Step(NamedTuple):
    """One gradient step as it went."""

    kind: str  # s(upervised) or u(nsupervised)
    loss: float
    icc: float = 0.0  # mean KL to the helpers, before lambda_i
    pseudo_ce: float = 0.0  # before lambda_a
    num_rows: int = 0  # unlabelled examples
    confident_rows: tuple[int, ...] = ()
    pseudo_labels: tuple[int, ...] = ()  # of the confident rows
    num_correct: int = 0  # pseudo-labels that are right


class ClientTask(NamedTuple):
    """One client's part of a round."""

    round_num: int
    client: int
    task_step: int
    broadcast: Broadcast
    plateau: Plateau


class ClientResult(NamedTuple):
    """What comes back from a client's round."""

    client: int
    s2c: Cost  # of the broadcast
    lr: float  # that it trained with
    upload: Upload
    plateau: Plateau  # for its next round
    embedding: np.ndarray | None  # float32 [classes]: softmax on the probe image; None where nobody needs it
    valid: Score | None  # None where the global model's validation decides on lr
    test: Score | None
    steps: tuple[Step, ...]
    num_examples: int  # labelled and unlabelled
    known_acc: tuple[float, float] | None = None  # on labelled data, before and after the unsupervised phases


class ServerTask(NamedTuple):
    """The server's epochs before a round (labels-at-server)."""

    round_num: int
    params: Params
    plateau: Plateau


class ServerResult(NamedTuple):
    """What comes back from the server's epochs."""

    params: Params
    plateau: Plateau
    steps: tuple[Step, ...]
    valid: Score | None
    test: Score | None


class EvalTask(NamedTuple):
    """Test a model."""

    round_num: int
    params: Params
    name: str = "theta"  # theta, or the part of it that these parameters are: sigma or psi; valid: on validation data


class EvalResult(NamedTuple):
    """What comes back from a test."""

    name: str
    score: Score


class ConfusionTask(NamedTuple):
    """Which class the test examples of each class are taken for."""

    params: Params


class InitTask(NamedTuple):
    """Make the starting parameters, from the seed or from --init-weights."""


def name_of(task: Any) -> str:
    """How messages call a task."""
    if isinstance(task, ClientTask):
        return f"round {task.round_num + 1}, client {task.client}"
    if isinstance(task, ServerTask):
        return f"round {task.round_num + 1}, the server's epochs"
    if isinstance(task, EvalTask):
        return f"round {task.round_num + 1}, test of the global model"
    if isinstance(task, ConfusionTask):
        return "confusion matrix"
    return "starting weights" if isinstance(task, InitTask) else type(task).__name__
