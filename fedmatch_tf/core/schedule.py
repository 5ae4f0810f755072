"""Plateau decay of a learning rate: state in, state out."""

from __future__ import annotations

from typing import NamedTuple


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
