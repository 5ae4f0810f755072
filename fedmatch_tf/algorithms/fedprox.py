"""FedProx (Li et al. 2018): federated averaging whose clients are pulled back to what they received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedmatch_tf.algorithms.algorithm import ServerState, Update
from fedmatch_tf.algorithms.fedavg import FedAvg
from fedmatch_tf.base.plugins import AlgorithmEntry
from fedmatch_tf.networks.params import Mean

if TYPE_CHECKING:
    from fedmatch_tf.config import Config


class FedProx(FedAvg):
    """A uniform mean, and mu / 2 |theta - received|^2 in a client's loss."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.proximal_weight = config.mu

    def empty(self, state: ServerState, sizes: Sequence[int]) -> Mean:
        """No clients yet."""
        return Mean(planned=len(sizes))

    def weight(self, update: Update) -> float:
        """All clients count the same."""
        return 1.0


FEDPROX = AlgorithmEntry("fedprox", FedProx, reads=frozenset({"mu"}), place=2)
