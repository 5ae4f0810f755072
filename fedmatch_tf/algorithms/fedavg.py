"""FedAvg (McMahan et al. 2017): everything travels both ways; the mean is weighted by the number of examples."""

from __future__ import annotations

from collections.abc import Sequence

from fedmatch_tf.algorithms.algorithm import NOTHING, ServerState, Update
from fedmatch_tf.config import Config
from fedmatch_tf.core import wire
from fedmatch_tf.core.params import Params, weighted_mean


class FedAvg:
    """Plain federated averaging of one set of parameters, which a plain network keeps in sigma."""

    embeds = False
    server_trains_last = False
    proximal_weight = 0.0

    def __init__(self, config: Config) -> None:
        """No setting changes it."""

    def broadcast(self, state: ServerState, held: Params | None, helpers: Sequence[Params]) -> wire.Broadcast:
        """All weights, whatever the client holds."""
        return wire.full_broadcast(state.params)

    def upload(self, trained: Params, received: Params) -> wire.Upload:
        """All weights."""
        return wire.full_upload(trained)

    def weight(self, update: Update) -> float:
        """How much a client counts in the mean."""
        return float(update.num_examples)

    def aggregate(self, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """The weighted mean over the round's clients."""
        weights = [self.weight(update) for update in updates]
        theta = weighted_mean([update.upload.params.sigma for update in updates], weights)
        return state._replace(params=state.params._replace(sigma=theta))

    def keep(self, upload: wire.Upload) -> Params:
        """Nothing: a client gets everything anew."""
        return NOTHING
