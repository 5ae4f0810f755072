"""SemiFL (Diao et al. 2022): the server fine-tunes the average of its clients on its labels, at the end of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedmatch_tf.algorithms.algorithm import ServerState, Train, Update
from fedmatch_tf.algorithms.fedavg import FedAvg
from fedmatch_tf.base.plugins import AlgorithmEntry
from fedmatch_tf.networks.params import Mean


class Moved(NamedTuple):
    """The mean over the clients that had something to learn."""

    received: np.ndarray  # what all clients were sent
    mean: Mean


class SemiFL(FedAvg):
    """A uniform mean over the clients that had something to learn; then the server's epochs, then the test."""

    by_examples, trains_ahead = False, False

    def before_clients(self, state: ServerState, train: Train) -> ServerState:
        """As the round before left it."""
        return state

    def after_clients(self, state: ServerState, train: Train) -> ServerState:
        """Fine-tuned on the server's labels."""
        return train(state)

    def empty(self, state: ServerState, sizes: Sequence[int]) -> Any:
        """No clients yet."""
        return Moved(state.params.sigma, super().empty(state, sizes))

    def add(self, total: Any, update: Update) -> Any:
        """A client without a confident example sends back what it received, and does not count."""
        if np.array_equal(update.params.sigma, total.received):
            return total
        return total._replace(mean=super().add(total.mean, update))

    def finish(self, state: ServerState, total: Any) -> ServerState:
        """The mean, if there is any."""
        return super().finish(state, total.mean)


ENTRY = AlgorithmEntry("semifl", SemiFL, learner="semifl", scenario="ls", reads=frozenset({"server_momentum"}), place=3)
