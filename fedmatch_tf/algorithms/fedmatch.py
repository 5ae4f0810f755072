"""FedMatch: differences of sigma and psi travel, helpers come along, each part is averaged on its own.

Algorithm 1 (labels-at-client), lines 7 to 11: clients upload sigma and psi, the server takes the mean of each.
Algorithm 2 (labels-at-server), lines 12 to 15: only the server trains sigma, so clients upload psi alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmatch_tf.algorithms import wire
from fedmatch_tf.algorithms.algorithm import Algorithm, ServerState, Update
from fedmatch_tf.base.plugins import AlgorithmEntry
from fedmatch_tf.networks.params import Mean, Params

Means = tuple[Mean, ...]  # of what clients train: sigma and psi, or one of them


class FedMatch(Algorithm):
    """The paper's algorithm; without decomposition, the one set of parameters travels as sigma does."""

    embeds = True

    @property
    def _clients_train_sigma(self) -> bool:
        return self.config.scenario == "lc" or not self.config.decomposed

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> wire.Broadcast:
        """Differences to what the client still holds; everything, and no helpers, on its first visit."""
        if held is None:
            return wire.full_broadcast(state.params)
        config, shared = self.config, [helper.shared_part for helper in helpers]
        return wire.broadcast(state.params, held, shared, config.l1_thres, config.delta_thres, config.s2c_content)

    def upload(self, trained: Params, received: Params) -> wire.Upload:
        """Differences to what the client received."""
        config = self.config
        return wire.upload(trained, received, config.l1_thres, config.delta_thres, self._clients_train_sigma)

    def empty(self, state: ServerState, sizes: Sequence[int]) -> Means:
        """No clients yet; in the mean they all count the same."""
        return tuple(Mean(planned=len(sizes)) for _ in self._trained(state.params))

    def add(self, total: Means, update: Update) -> Means:
        """The means with one client more."""
        return tuple(mean.add(part, 1.0) for mean, part in zip(total, self._trained(update.params)))

    def finish(self, state: ServerState, total: Means) -> ServerState:
        """sigma and psi are the means over the round's clients, each on its own."""
        untrained = [] if self._clients_train_sigma else [state.params.sigma]
        return self.moved(state, Params(*untrained, *(mean.result() for mean in total)))

    def _trained(self, params: Params) -> tuple[np.ndarray, ...]:
        """The parts that clients train."""
        return params.parts if self._clients_train_sigma else params.parts[1:]

    def keep(self, params: Params) -> Params:
        """What both sides hold of the client: differences are taken to it, and it may help others."""
        return params


ENTRY = AlgorithmEntry(
    "fedmatch",
    FedMatch,
    learner="fedmatch",
    decomposed=True,
    has_helpers=True,
    group="FedMatch",
    reads=frozenset({"server_momentum"}),
    place=0,
)
