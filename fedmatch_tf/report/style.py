"""How curves are drawn: a model has one colour and one dash in every figure of every page."""

from __future__ import annotations

from typing import Any, NamedTuple

from fedmatch_tf.config.models import ALGORITHMS, LEARNERS, parts_of

# Okabe and Ito's colours, readable by colour-blind people; dashes for print without colour.
COLOURS = ("#D55E00", "#000000", "#009E73", "#0072B2", "#E69F00", "#CC79A7", "#56B4E9")
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1)), ":", (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")


class Style(NamedTuple):
    """Of a curve."""

    colour: str
    dash: Any
    marker: str = ""


def of_model(model: str, variant: int = 0) -> Style:
    """A learner has a colour, an algorithm a dash; runs of a model that differ in other settings have markers."""
    algorithm, learner = parts_of(model)
    colour, dash = list(LEARNERS).index(learner), list(ALGORITHMS).index(algorithm)
    return Style(COLOURS[colour % len(COLOURS)], DASHES[dash % len(DASHES)], MARKERS[variant % len(MARKERS)])


def of_models(models: list[str]) -> list[Style]:
    """For each model its style; the second of a name gets the first marker, and so on."""
    return [of_model(model, models[:place].count(model)) for place, model in enumerate(models)]


ORIGINAL = Style("#808080", "-")  # what the original computed, beside our models


def numbered(number: int) -> Style:
    """For curves that are no models: parts of a cost, or of a network."""
    return Style(COLOURS[number % len(COLOURS)], DASHES[(number + number // len(COLOURS)) % len(DASHES)])
