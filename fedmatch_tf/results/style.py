"""What models look like: each has one colour and one dash in every figure of every page."""

from __future__ import annotations

from fedmatch_tf.base.drawing import COLOURS, DASHES, Style
from fedmatch_tf.base.plugins import algorithms, learners
from fedmatch_tf.config.models import parts_of

MARKERS = ("", "o", "s", "^", "D", "v", "P", "X")


def of_model(model: str, variant: int = 0, variants: int = 1) -> Style:
    """A learner has a colour, an algorithm a dash; runs that differ in other settings have shades and markers."""
    algorithm, learner = parts_of(model)
    colour, dash = list(learners()).index(learner), list(algorithms()).index(algorithm)
    shade = min((variants - 1) / 2, 1) * (0.45 - 0.8 * variant / max(variants - 1, 1))  # towards white, then black
    return Style(
        _shaded(COLOURS[colour % len(COLOURS)], shade), DASHES[dash % len(DASHES)], MARKERS[variant % len(MARKERS)]
    )


def _shaded(colour: str, shade: float) -> str:
    """The colour, mixed with that much white, or, if it is negative, with black."""
    parts = [int(colour[place : place + 2], 16) for place in (1, 3, 5)]
    return "#" + "".join(f"{round(part + abs(shade) * ((255 if shade > 0 else 0) - part)):02X}" for part in parts)


def of_models(models: list[str]) -> list[Style]:
    """For each model its style; where a name stands several times, from light to dark in their order."""
    return [of_model(model, models[:place].count(model), models.count(model)) for place, model in enumerate(models)]


ORIGINAL = Style("#808080", "-")  # what the original computed, beside our models
