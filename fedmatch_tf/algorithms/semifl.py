"""SemiFL (Diao et al. 2022): the server fine-tunes the average of its clients on its labels, at the end of a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmatch_tf.algorithms.algorithm import ServerState, Update
from fedmatch_tf.algorithms.fedavg import FedAvg


class SemiFL(FedAvg):
    """A uniform mean over the clients that had something to learn; then the server's epochs, then the test."""

    server_trains_last = True

    def weight(self, update: Update) -> float:
        """All clients count the same."""
        return 1.0

    def aggregate(self, state: ServerState, updates: Sequence[Update]) -> ServerState:
        """A client without a confident example sends back what it received, and does not count."""
        before = state.params.sigma
        moved = [update for update in updates if not np.array_equal(update.upload.params.sigma, before)]
        return super().aggregate(state, moved) if moved else state
