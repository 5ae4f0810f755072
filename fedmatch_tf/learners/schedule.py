"""Learning rates: decay by the round or on a plateau, and what becomes of that on devices that clients share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import cos, pi
from typing import Callable, NamedTuple

# What a schedule multiplies the initial rate by, from the share of all rounds that is done.
BY_ROUND: dict[str, Callable[[float], float]] = {
    "cosine": lambda done: (1 + cos(pi * done)) / 2,
    "linear": lambda done: 1 - done,
}


class Plateau(NamedTuple):
    """A learning rate and what decides when it falls."""

    lr: float
    lowest: float  # validation loss so far
    patience: int  # rounds left


def start(lr: float, patience: int) -> Plateau:
    """The state before the first validation."""
    return Plateau(lr, float("inf"), patience)


def advance(state: Plateau, loss: float, patience: int, factor: float, lr_min: float) -> Plateau:
    """The state after a validation loss: a lower one resets patience, `patience` others in a row divide lr."""
    if loss < state.lowest:
        return Plateau(state.lr, loss, patience)
    if state.patience > 1:
        return state._replace(patience=state.patience - 1)
    return Plateau(max(state.lr / factor, lr_min), state.lowest, patience)


class Visit(NamedTuple):
    """A client's round on a device."""

    device: int
    is_first: bool  # of this client
    dropped_to: float | None  # the client's own rate, if it fell after this round


def device_rates(rates: Sequence[float], visits: Iterable[Visit], lr: float) -> tuple[float, ...]:
    """The rates that devices have after a round, its visits in the order of the draw.

    As in the original: a client that comes for the first time gives its device the initial rate, a client whose own
    rate falls gives its device that one, and any other leaves its device as it is.
    """
    after = list(rates)
    for visit in visits:
        if visit.is_first:
            after[visit.device] = lr
        if visit.dropped_to is not None:
            after[visit.device] = visit.dropped_to
    return tuple(after)
