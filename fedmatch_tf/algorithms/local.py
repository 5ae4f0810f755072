"""Local training: every client goes on with its own parameters, and nothing is shared."""

from __future__ import annotations

from collections.abc import Sequence

from fedmatch_tf.algorithms.algorithm import Algorithm, ServerState, Update
from fedmatch_tf.algorithms.wire import Broadcast, Cost, Upload
from fedmatch_tf.base.plugins import AlgorithmEntry
from fedmatch_tf.networks.params import Params


class Local(Algorithm):
    """No server to speak of: it hands out the starting parameters and keeps each client's own."""

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> Broadcast:
        """The client's own parameters, at no cost; the common start before its first round."""
        return Broadcast(state.params if held is None else held, (), Cost())

    def upload(self, trained: Params, received: Params) -> Upload:
        """The client's own parameters, at no cost."""
        return Upload(trained, Cost())

    def empty(self, state: ServerState, sizes: Sequence[int]) -> None:
        """Nothing is added up."""

    def add(self, total: None, update: Update) -> None:
        """Nothing either."""

    def finish(self, state: ServerState, total: None) -> ServerState:
        """Nothing changes."""
        return state

    def keep(self, params: Params) -> Params:
        """The client's own parameters."""
        return params


ENTRY = AlgorithmEntry("local", Local, has_global_model=False, place=4)
