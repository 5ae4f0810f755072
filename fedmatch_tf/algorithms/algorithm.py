"""What a federated algorithm is: what crosses, what is averaged, what is remembered. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from fedmatch_tf.algorithms.wire import Broadcast, Upload
from fedmatch_tf.base.plugins import algorithms
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params

if TYPE_CHECKING:
    from fedmatch_tf.config import Config


class Best(NamedTuple):
    """The global model with the lowest validation loss so far."""

    round_num: int
    valid_loss: float
    theta: np.ndarray  # float32 [n]


class ServerState(NamedTuple):
    """What the server knows between rounds, apart from what its store keeps of the clients."""

    rounds_done: int
    params: Params
    plateau: Plateau
    embeddings: Mapping[int, np.ndarray]  # of every client that ever took part
    device_lrs: tuple[float, ...] = ()  # with --lr-memory device: the rate of every simulated device
    best: Best | None = None  # with --keep-best
    memory: tuple[np.ndarray, ...] = ()  # vectors that the algorithm remembers, such as a momentum


class Update(NamedTuple):
    """What reaches the server from a client's round."""

    client: int
    upload: Upload
    num_examples: int  # labelled and unlabelled, that the client holds
    embedding: np.ndarray | None = None  # float32 [classes]: softmax on the probe image; None where nobody needs it


class Algorithm(Protocol):
    """A federated algorithm, as pure functions of their arguments. Made from a Config."""

    embeds: bool  # whether the server knows clients by their model's prediction on the probe image
    server_trains_last: bool  # whether the server's epochs (labels-at-server) end a round instead of beginning it
    proximal_weight: float  # mu of mu / 2 |theta - received|^2, which clients add to their loss; 0: nothing

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> Broadcast:
        """What the server sends to a client.

        Args:
            held: what `keep` kept of the client; None before its first round.
            helpers: what was kept of the clients that help it.
        """

    def upload(self, trained: Params, received: Params) -> Upload:
        """What the client sends back; called at the client."""

    def empty(self, state: ServerState, sizes: Sequence[int]) -> Any:
        """What a round's updates are added to, one by one.

        Args:
            sizes: for each client whose update is expected, how many examples it holds; 0 if that is not known.
        """

    def add(self, total: Any, update: Update) -> Any:
        """The total with this update. It may use the memory of the one before; the update is gone afterwards."""

    def finish(self, state: ServerState, total: Any) -> ServerState:
        """The state with new params (and memory, if there is any) after a round with at least one update."""

    def keep(self, upload: Upload) -> Params:
        """What must be known of the client's parameters in its next round."""


NOTHING = Params(np.zeros(0, np.float32), np.zeros(0, np.float32))


def make_algorithm(config: Config) -> Algorithm:
    """The algorithm that the config names."""
    algorithm: Algorithm = algorithms()[config.algorithm].make(config)
    return algorithm
