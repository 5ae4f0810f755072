"""FedProx (Li et al. 2018): federated averaging whose clients are pulled back to what they received."""

from __future__ import annotations

from fedmatch_tf.algorithms.algorithm import Update
from fedmatch_tf.algorithms.fedavg import FedAvg
from fedmatch_tf.config import Config


class FedProx(FedAvg):
    """A uniform mean, and mu / 2 |theta - received|^2 in a client's loss."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.proximal_weight = config.mu

    def weight(self, update: Update) -> float:
        """All clients count the same."""
        return 1.0
