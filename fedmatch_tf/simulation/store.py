"""What is kept of the clients between their rounds. Stores are in runs/store.py."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from fedmatch_tf.core.params import Params
from fedmatch_tf.core.schedule import Plateau


class Held(NamedTuple):
    """What is kept of a client between its rounds."""

    params: Params  # as much of them as the algorithm needs
    plateau: Plateau


class Store(Protocol):
    """Where the simulation keeps and finds what clients held."""

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""

    def put(self, client: int, held: Held) -> None:
        """Replaces what is kept of the client."""
