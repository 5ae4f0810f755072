"""What models look like: each has one colour and one dash in every figure of every page."""

from __future__ import annotations

from fedmatch_tf.base.drawing import COLOURS, DASHES, Style
from fedmatch_tf.base.plugins import algorithms, learners
from fedmatch_tf.config.models import parts_of

MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")
SHADES = (0.0, -0.5, 0.45, -0.75, 0.7, -0.25, 0.2)  # of variants: towards black, or towards white


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
