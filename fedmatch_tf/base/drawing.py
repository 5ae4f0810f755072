"""How every picture is drawn: readable in print, and by colour-blind people."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

# Okabe and Ito's colours, with indigo for black, which has no shades, and others of Tol's; dashes for print without
# colour.
COLOURS = ("#D55E00", "#332288", "#009E73", "#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#882255", "#999933", "#44AA99")
DASHES: tuple[Any, ...] = ("-", "--", "-.", (0, (5, 1)), ":", (0, (3, 1, 1, 1)), (0, (1, 1)))
WIDTH = 6.4  # inches of a figure with one picture


class Style(NamedTuple):
    """Of a curve."""

    colour: str
    dash: Any
    marker: str = ""


def numbered(number: int) -> Style:
    """For curves that are no models: parts of a cost, or of a network."""
    return Style(COLOURS[number % len(COLOURS)], DASHES[(number + number // len(COLOURS)) % len(DASHES)])


def plain(text: str, most: int = 100) -> str:
    """The text at a length that fits, dollar signs as they are: no mathematics in names."""
    return (text if len(text) <= most else f"{text[: most - 3]}...").replace("$", r"\$")


def curve(
    axes: Axes,
    look: Style,
    label: str,
    rounds: Sequence[float],
    centre: Sequence[float],
    width: Sequence[float] = (),
    joined: bool = False,
    ends: tuple[float, float] = (-math.inf, math.inf),
) -> None:
    """A line in a band of the given width; unless joined, with gaps where rounds have no value.

    Points without a neighbour, which no line would show, are dots.

    Args:
        ends: what no value can be below or above, nor the band.
    """
    x, y = (np.array(rounds, float), np.array(centre, float)) if joined else with_gaps(rounds, centre)
    line = {"color": look.colour, "ls": look.dash, "lw": 1.6, "marker": look.marker, "ms": 6, "markevery": 0.1}
    axes.plot(x, y, label=plain(label), **line)
    alone = isolated(y)
    if alone.any():
        axes.plot(x[alone], y[alone], color=look.colour, ls="", marker=look.marker or ".", ms=6)
    if any(width):
        half = np.array(width, float) if joined else with_gaps(rounds, width)[1]
        axes.fill_between(x, np.clip(y - half, *ends), np.clip(y + half, *ends), color=look.colour, alpha=0.18, lw=0)


def with_gaps(rounds: Sequence[float], values: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """The points with a NaN between rounds that do not follow each other, so that no line joins them."""
    x, y = np.array(rounds, float), np.array(values, float)
    holes = np.flatnonzero(np.diff(x) > 1) + 1
    return np.insert(x, holes, np.nan), np.insert(y, holes, np.nan)


def isolated(values: np.ndarray) -> np.ndarray:
    """Which points no line would show: those without a neighbour."""
    known = ~np.isnan(values)
    before, after = np.concatenate([[False], known[:-1]]), np.concatenate([known[1:], [False]])
    return np.asarray(known & ~before & ~after)


def finish(axes: Axes, x: str, y: str, legend: bool = True) -> None:
    """Labels, grid and legend."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)
    axes.grid(alpha=0.25)
    figure = axes.get_figure()
    assert figure is not None
    labels = axes.get_legend_handles_labels()[1]
    crowded = len(labels) > 6 or (max(map(len, labels), default=0) > 45 and len(labels) > 1)
    if legend and crowded and len(figure.axes) == 1:  # beside the picture, which becomes wider for it
        figure.set_size_inches(1.6 * WIDTH, max(3.8, 0.22 * len(labels)))
        axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    elif legend:
        axes.legend(fontsize=8, frameon=False)
