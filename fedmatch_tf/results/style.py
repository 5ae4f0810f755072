"""How curves are drawn: a model has one colour and one dash in every figure of every page."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedmatch_tf.base.plugins import algorithms, learners
from fedmatch_tf.config.models import parts_of

# Okabe and Ito's colours, readable by colour-blind people; dashes for print without colour.
COLOURS = ("#D55E00", "#000000", "#009E73", "#0072B2", "#E69F00", "#CC79A7", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1)), ":", (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")
SHADES = (0.0, -0.5, 0.45, -0.75, 0.7, -0.25, 0.2)  # of variants: towards black, or towards white


class Style(NamedTuple):
    """Of a curve."""

    colour: str
    dash: Any
    marker: str = ""


def of_model(model: str, variant: int = 0) -> Style:
    """A learner has a colour, an algorithm a dash; runs that differ in other settings have shades and markers."""
    algorithm, learner = parts_of(model)
    colour, dash = list(learners()).index(learner), list(algorithms()).index(algorithm)
    shade = _shaded(COLOURS[colour % len(COLOURS)], SHADES[variant % len(SHADES)])
    return Style(shade, DASHES[dash % len(DASHES)], MARKERS[variant % len(MARKERS)])


def _shaded(colour: str, shade: float) -> str:
    """The colour, mixed with that much black (negative) or white; of black, which can't be darker, with white."""
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    goal = 255 if shade > 0 or not any(parts) else 0
    return "#" + "".join(f"{round(part + abs(shade) * (goal - part)):02X}" for part in parts)


def of_models(models: list[str]) -> list[Style]:
    """For each model its style; the second of a name gets the first marker, and so on."""
    return [of_model(model, models[:place].count(model)) for place, model in enumerate(models)]


ORIGINAL = Style("#808080", "-")  # what the original computed, beside our models


def numbered(number: int) -> Style:
    """For curves that are no models: parts of a cost, or of a network."""
    return Style(COLOURS[number % len(COLOURS)], DASHES[(number + number // len(COLOURS)) % len(DASHES)])
