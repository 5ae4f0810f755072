"""Pictures of a run."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedmatch_tf.base import drawing
from fedmatch_tf.base.atomic import replacing
from fedmatch_tf.base.drawing import COLOURS, Style

FIRST, SECOND = Style(COLOURS[3], "-"), Style(COLOURS[0], "--")


class Picture(Figure):
    """A figure that a notebook shows, whatever its settings."""

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=110)
        return buffer.getvalue()


def title_of(settings: Mapping[str, Any]) -> str:
    """What a run's picture is called."""
    return f"{settings['model']} on {settings['task']}, {settings['arch']}, seed {settings['seed']}"


def curve(lines: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """A picture of the objects of rounds.jsonl: accuracy, pseudo-labels and costs over the rounds."""
    figure = Picture(figsize=(12, 3.6), layout="constrained")
    accuracy, labels, costs = figure.subplots(1, 3)
    rounds = [line["round"] + 1 for line in lines]
    local = any(line["local_test_acc"] is not None for line in lines)
    if not (local and all(line["test_acc"] == line["local_test_acc"] for line in lines)):  # clients that share nothing
        drawing.curve(accuracy, FIRST, "global model", rounds, _percent(lines, "test_acc"))
    if local:
        drawing.curve(accuracy, SECOND, "mean of the clients", rounds, _percent(lines, "local_test_acc"))
    drawing.curve(labels, FIRST, "unlabelled rows with one", rounds, _percent(lines, "confident"))
    right = _percent(lines, "pseudo_label_acc")
    if not np.isnan(right).all():
        drawing.curve(labels, SECOND, "of these, right", rounds, right)
    for way, look, label in (("s2c", FIRST, "server to client"), ("c2s", SECOND, "client to server")):
        drawing.curve(costs, look, label, rounds, [100 * line[way]["sum"] for line in lines])
    accuracy.set(title="test accuracy", ylim=(0, None))
    labels.set(title="pseudo-labels", ylim=(-3, 103))
    costs.set(title="communication cost", ylim=(0, None))
    for axes, what in ((accuracy, "%"), (labels, "%"), (costs, "% of one parameter set")):
        drawing.finish(axes, "round", what)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def draw_curve(lines: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Writes the picture as a PNG."""
    with replacing(path) as file:
        curve(lines, title).savefig(file, dpi=110, format="png")


def _percent(lines: Sequence[Mapping[str, Any]], name: str) -> Any:
    return np.array([float("nan") if line[name] is None else 100 * line[name] for line in lines])
