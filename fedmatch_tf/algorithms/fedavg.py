"""FedAvg (McMahan et al. 2017): everything travels both ways; the mean is weighted by the number of examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmatch_tf.algorithms import wire
from fedmatch_tf.algorithms.algorithm import Algorithm, ServerState, Update
from fedmatch_tf.base.plugins import AlgorithmEntry
from fedmatch_tf.networks.params import Mean, Params


class FedAvg(Algorithm):
    """Plain federated averaging of one set of parameters, which a plain network keeps in sigma."""

    by_examples = True  # a client counts by the examples that it holds; False: all clients count the same

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> wire.Broadcast:
        """All weights, whatever the client holds."""
        return wire.full_broadcast(state.params)

    def upload(self, trained: Params, received: Params) -> wire.Upload:
        """All weights."""
        return wire.full_upload(trained)

    def empty(self, state: ServerState, sizes: Sequence[int]) -> Any:
        """No clients yet; in the end their weights add up to all examples, or to the number of clients."""
        num_examples = sum(sizes) if self.by_examples else 0  # 0: not known, or not asked for
        return Mean(planned=num_examples or len(sizes))

    def add(self, total: Any, update: Update) -> Any:
        """The weighted mean with one client more, unless it does not count."""
        weight = update.num_examples if self.by_examples else min(update.num_examples, 1)
        return total.add(update.params.sigma, float(weight)) if weight else total

    def finish(self, state: ServerState, total: Any) -> ServerState:
        """The mean is the next theta; without a client that counts, the model stays as it is."""
        return state if total.vector is None else self.moved(state, Params(total.result()))

    def keep(self, params: Params) -> None:
        """Nothing: a client gets everything anew."""


ENTRY = AlgorithmEntry("fedavg", FedAvg, reads=frozenset({"server_momentum"}), place=1)
