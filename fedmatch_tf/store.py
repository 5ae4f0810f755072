"""What every client last held: its parameters after its last upload, and its learning-rate state."""

from __future__ import annotations

from typing import NamedTuple

from fedmatch_tf.params import Params
from fedmatch_tf.schedule import Plateau


class Held(NamedTuple):
    """What is kept of a client between its rounds."""

    params: Params
    plateau: Plateau


class MemoryStore:
    """Keeps everything in memory: two vectors a client that has taken part."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""
        return self._held.get(client)

    def put(self, client: int, held: Held) -> None:
        """Replaces what is kept of the client."""
        self._held[client] = held
