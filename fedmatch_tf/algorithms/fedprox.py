"""FedProx (Li et al. 2018): federated averaging whose clients are pulled back to what they received."""

from __future__ import annotations

from fedmatch_tf.algorithms.fedavg import FedAvg
from fedmatch_tf.base.plugins import AlgorithmEntry


class FedProx(FedAvg):
    """A uniform mean, and mu / 2 |theta - received|^2 in a client's loss."""

    by_examples = False

    @property
    def proximal_weight(self) -> float:
        """mu."""
        return self.config.mu


ENTRY = AlgorithmEntry("fedprox", FedProx, reads=frozenset({"mu", "server_momentum"}), place=2)
