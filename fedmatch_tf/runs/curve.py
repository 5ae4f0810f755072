"""Pictures of a run."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmatch_tf.base.atomic import replacing

# Readable in print and by colour-blind people.
BLUE, ORANGE = "#0072B2", "#D55E00"


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
        _draw(accuracy, rounds, _percent(lines, "test_acc"), BLUE, "-", "global model")
    if local:
        _draw(accuracy, rounds, _percent(lines, "local_test_acc"), ORANGE, "--", "mean of the clients")
    accuracy.set(title="test accuracy", ylabel="%", ylim=(0, None))
    _draw(labels, rounds, _percent(lines, "confident"), BLUE, "-", "unlabelled rows with one")
    right = _percent(lines, "pseudo_label_acc")
    if not np.isnan(right).all():
        _draw(labels, rounds, right, ORANGE, "--", "of these, right")
    labels.set(title="pseudo-labels", ylabel="%", ylim=(-3, 103))
    for way, *look in (("s2c", BLUE, "-", "server to client"), ("c2s", ORANGE, "--", "client to server")):
        _draw(costs, rounds, np.array([100 * line[way]["sum"] for line in lines]), *look)
    costs.set(title="communication cost", ylabel="% of one parameter set", ylim=(0, None))
    for axis in (accuracy, labels, costs):
        axis.set_xlabel("round")
        axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25)
        axis.legend(fontsize=8, frameon=False)
    figure.suptitle(title, x=0.01, ha="left")
    return figure


def _draw(axis: Any, rounds: Sequence[int], values: np.ndarray, colour: str, dash: str, label: str) -> None:
    """A line; points without a neighbour, which a line would not show, are dots."""
    axis.plot(rounds, values, color=colour, ls=dash, label=label)
    alone = isolated(values)
    if alone.any():
        axis.plot(np.array(rounds)[alone], values[alone], color=colour, ls="", marker="o", ms=3)


def draw_curve(lines: Sequence[Mapping[str, Any]], title: str, path: Path) -> None:
    """Writes the picture as a PNG."""
    with replacing(path) as file:
        curve(lines, title).savefig(file, dpi=110, format="png")


def _percent(lines: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    return np.array([float("nan") if line[name] is None else 100 * line[name] for line in lines])


def with_gaps(rounds: Sequence[float], values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The points with a NaN between rounds that do not follow each other, so that no line joins them."""
    x, y = np.array(rounds, float), np.array(values, float)
    holes = np.flatnonzero(np.diff(x) > 1) + 1
    return np.insert(x, holes, np.nan), np.insert(y, holes, np.nan)


def isolated(values: np.ndarray) -> np.ndarray:
    """Which points no line would show: those without a neighbour."""
    there = ~np.isnan(values)
    before, after = np.concatenate([[False], there[:-1]]), np.concatenate([there[1:], [False]])
    return np.asarray(there & ~before & ~after)
