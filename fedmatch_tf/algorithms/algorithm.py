"""What a federated algorithm is: what crosses, what is averaged, what is remembered. No TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

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
    device_lrs: tuple[float, ...] | None = None  # with --lr-memory device: the rate of every simulated device
    best: Best | None = None  # with --keep-best
    memory: tuple[np.ndarray, ...] = ()  # vectors that the algorithm remembers, such as a momentum


class Update(NamedTuple):
    """What the server has of a client after its round."""

    client: int
    params: Params  # as both sides hold them
    num_examples: int  # that it counts by: labelled and unlabelled, unless its learner says otherwise


Train = Callable[[ServerState], ServerState]


class Algorithm:
    """A federated algorithm, as pure functions of their arguments."""

    embeds = False  # whether the server knows clients by their model's prediction on the probe image
    trains_ahead = True  # whether the server's next epoch begins with what a round leaves, so may run beside its scores

    def __init__(self, config: Config) -> None:
        self.config = config

    @property
    def proximal_weight(self) -> float:
        """mu of mu / 2 |theta - received|^2, which clients add to their loss; 0: nothing."""
        return 0.0

    def before_clients(self, state: ServerState, train: Train) -> ServerState:
        """The state that a round's clients are sent; `train` runs the server's epochs, if there are any."""
        return train(state)

    def after_clients(self, state: ServerState, train: Train) -> ServerState:
        """The state after a round, from that with the clients' mean."""
        return state

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> Broadcast:
        """What the server sends to a client.

        Args:
            held: what `keep` kept of the client; None before its first round, or if that was nothing.
            helpers: what was kept of the clients that help it.
        """
        raise NotImplementedError

    def upload(self, trained: Params, received: Params) -> Upload:
        """What the client sends back; called at the client."""
        raise NotImplementedError

    def empty(self, state: ServerState, sizes: Sequence[int]) -> Any:
        """What a round's updates are added to, one by one.

        Args:
            sizes: for each client whose update is expected, how many examples it holds; 0 if that is not known.
        """
        raise NotImplementedError

    def add(self, total: Any, update: Update) -> Any:
        """The total with this update. It may use the memory of the one before; the update is gone afterwards."""
        raise NotImplementedError

    def finish(self, state: ServerState, total: Any) -> ServerState:
        """The state with new params (and memory, if there is any) after a round with at least one update."""
        raise NotImplementedError

    def moved(self, state: ServerState, mean: Params) -> ServerState:
        """The state whose params are the mean; with --server-momentum m, theta + v, where v = m v + (mean - theta)."""
        momentum = self.config.server_momentum
        if not momentum:
            return state._replace(params=mean)
        before = state.params.parts
        last = state.memory or tuple(np.zeros_like(part) for part in before)
        velocities = tuple(momentum * v + (new - old) for v, new, old in zip(last, mean.parts, before))
        return state._replace(params=Params(*(old + v for old, v in zip(before, velocities))), memory=velocities)

    def keep(self, params: Params) -> Params | None:
        """What must be known in a client's next round of the parameters that both sides hold of it."""
        raise NotImplementedError


def make_algorithm(config: Config) -> Algorithm:
    """The algorithm that the config names."""
    algorithm: Algorithm = algorithms()[config.algorithm].make(config)
    return algorithm
