"""Tasks for a backend and their results: plain records, so that any process can run any of them.

As a text a task is what messages call it. How it is done says the worker.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Optional

import numpy as np

from fedmatch_tf.algorithms.wire import Broadcast, Cost
from fedmatch_tf.base.errors import printable
from fedmatch_tf.base.typed import Number, Share
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params


class TrainingError(RuntimeError):
    """Training can't go on; says in which round, for which client and at which step."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class Score(NamedTuple):
    """Loss and accuracy on a set."""

    loss: float
    accuracy: float


Split = Literal["valid", "test"]


class ModelKey(NamedTuple):
    """Which model is scored."""

    owner: Literal["client", "server", "the global model"]
    client: int | None = None  # the client's number, if it is a client's
    part: Literal["theta", "sigma", "psi"] = "theta"

    def __str__(self) -> str:
        return self.owner if self.client is None else f"{self.owner} {self.client}"


SERVER = ModelKey("server")  # after its epochs, before the clients' round (labels-at-server)
GLOBAL = ModelKey("the global model")  # after the round
GLOBAL_SIGMA, GLOBAL_PSI = GLOBAL._replace(part="sigma"), GLOBAL._replace(part="psi")


def client_model(client: int) -> ModelKey:
    """The key of a client's model as it is after its round."""
    return ModelKey("client", client)


Term = Optional[Number]  # of a loss; None: it did not occur


class Losses(NamedTuple):
    """What was trained on, as it was differentiated: `total` and the terms that it is the sum of, each with its weight.

    Means over batches. A term that did not occur in one, as no row was confident, counts as 0 there; None: it occurred
    in none.
    """

    total: Term = None
    supervised: Term = None
    inter_client: Term = None
    pseudo: Term = None
    l1: Term = None
    l2: Term = None
    proximal: Term = None


class LabeledAcc(NamedTuple):
    """Accuracy on labelled data while a client trains."""

    before: Share  # mean over steps with unlabelled images, before each of them
    after: Share  # the same, after each of them
    steps: tuple[Share, ...]  # after every gradient step


class ClientTask(NamedTuple):
    """One client's part of a round."""

    round_num: int
    client: int
    task_step: int
    broadcast: Broadcast
    plateau: Plateau  # the client's own
    lr: float  # that it trains with: its own, unless clients share devices
    is_new: bool = False  # nothing is known of the client, so it has to be sent what of the network is frozen, too
    score: bool = True  # whether the worker scores the trained model, or gives back its theta for others to do that

    def __str__(self) -> str:
        return f"round {self.round_num + 1}, client {self.client}"


class ClientResult(NamedTuple):
    """What comes back from a client's round: the upload, and what only the simulation knows."""

    client: int
    sigma: np.ndarray | None  # float32 [n]: the client's as both sides now hold it; None: as it was sent
    psi: np.ndarray | None  # the same; None: a plain network has none
    num_examples: int  # that the client counts by
    s2c: Cost  # of the broadcast
    c2s: Cost  # of the upload
    plateau: Plateau  # the client's own, before this round's validation
    lr: float  # that it trained with
    losses: Losses = Losses()
    num_unlabeled: int = 0  # unlabelled examples that the learner looked at, in all local epochs
    confident_rows: int = 0  # those of them that got a pseudo-label
    num_correct: int | None = 0  # pseudo-labels that are right; None: nobody knows the true ones
    embedding: np.ndarray | None = None  # float32 [classes]: softmax on the probe image; None where nobody needs it
    scored: tuple[EvalResult, ...] = ()  # of the model as trained
    theta: np.ndarray | None = None  # float32 [n]: of the model as trained, if others are to score it
    labeled_acc: LabeledAcc | None = None  # if it is measured
    on_wire: tuple[int, int] | None = None  # bytes to the client's host and back, between real hosts


class LeftOut(NamedTuple):
    """What comes back instead, between real hosts, of a client that did not answer, or answered nonsense."""

    client: int
    why: str


class ServerTask(NamedTuple):
    """One of the server's epochs before a round (labels-at-server)."""

    round_num: int
    epoch: int
    params: Params
    lr: float
    velocity: np.ndarray | None = None  # with --momentum, of the epoch before in the same round

    def __str__(self) -> str:
        return f"round {self.round_num + 1}, the server's epoch {self.epoch + 1}"


class ServerResult(NamedTuple):
    """What comes back from a server's epoch."""

    params: Params
    losses: Losses
    velocity: np.ndarray | None = None  # with --momentum


class EvalTask(NamedTuple):
    """Score a model on a part of the validation or test data."""

    round_num: int
    model: ModelKey
    split: Split
    theta: np.ndarray  # float32 [n]
    part: int = 0  # counted from 0
    num_parts: int = 1

    def __str__(self) -> str:
        return f"round {self.round_num + 1}, {'validation' if self.split == 'valid' else 'test'} of {self.model}"


class EvalResult(NamedTuple):
    """What comes back from a score, pass by pass: where a set was cut does not change a sum."""

    model: ModelKey
    split: Split
    part: int
    num_parts: int
    num_rows: tuple[int, ...]
    losses: tuple[float, ...]  # means over the rows
    hits: tuple[int, ...]


class ConfusionTask(NamedTuple):
    """Which class the test examples of each class are taken for."""

    params: Params

    def __str__(self) -> str:
        return "confusion matrix"


class CheckTask(NamedTuple):
    """See that the network is the one that these parameters are of; nothing comes back."""

    params: Params

    def __str__(self) -> str:
        return "the network"


class PaceTask(NamedTuple):
    """Seconds that the network takes for an image come back: of a forward pass, as in evaluation."""

    def __str__(self) -> str:
        return "the network's speed"


class ModelTask(NamedTuple):
    """The model as a file: the bytes of a `.keras` file come back."""

    theta: np.ndarray  # float32 [n]

    def __str__(self) -> str:
        return "the trained model's file"


class ProfileTask(NamedTuple):
    """Run a task and write a trace of it."""

    task: Any
    folder: str

    def __str__(self) -> str:
        return str(self.task)


class InitTask(NamedTuple):
    """Make the starting parameters, from the seed or from --init-weights."""

    def __str__(self) -> str:
        return "starting weights"


class Start(NamedTuple):
    """What a run starts from."""

    kernels: tuple[np.ndarray, ...]  # float32, one per layer: sigma of a decomposed network
    params: Params
