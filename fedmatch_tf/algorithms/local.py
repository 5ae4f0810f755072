"""Local training: every client goes on with its own parameters, and nothing is shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedmatch_tf.algorithms import wire
from fedmatch_tf.algorithms.algorithm import ServerState, Update
from fedmatch_tf.base.plugins import AlgorithmEntry
from fedmatch_tf.networks.params import Params

if TYPE_CHECKING:
    from fedmatch_tf.config import Config


class Local:
    """No server to speak of: it hands out the starting parameters and keeps each client's own."""

    embeds = False
    server_trains_last = False
    proximal_weight = 0.0

    def __init__(self, config: Config) -> None:
        """No setting changes it."""

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> wire.Broadcast:
        """The client's own parameters, at no cost; the common start before its first round."""
        return wire.own_broadcast(state.params if held is None else held)

    def upload(self, trained: Params, received: Params) -> wire.Upload:
        """The client's own parameters, at no cost."""
        return wire.own_upload(trained)

    def empty(self, state: ServerState, sizes: Sequence[int]) -> None:
        """Nothing is added up."""

    def add(self, total: None, update: Update) -> None:
        """Nothing either."""

    def finish(self, state: ServerState, total: None) -> ServerState:
        """Nothing changes."""
        return state

    def keep(self, upload: wire.Upload) -> Params:
        """The client's own parameters."""
        return upload.params


LOCAL = AlgorithmEntry("local", Local, has_global_model=False, place=4)
