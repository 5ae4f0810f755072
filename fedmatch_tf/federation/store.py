"""What is kept of the clients between their rounds. Stores are in runs/store.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params


class Held(NamedTuple):
    """What is kept of a client between its rounds."""

    params: Params | None  # None: the algorithm needs nothing of them
    plateau: Plateau


class Store(Protocol):
    """Where the simulation keeps and finds what clients held."""

    def get(self, client: int) -> Held | None:
        """What the client held before this round; None before its first."""

    def put(self, client: int, params: Params | None) -> None:
        """Keeps this of the client when the round ends."""

    def end_round(self, plateaus: Mapping[int, Plateau]) -> None:
        """The round's clients hold what was put, and these learning rates."""
