"""The report's figures, in one style: readable in print and by colour-blind people."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmatch_tf.report.results import Group, Result
from fedmatch_tf.report.summary import Summary, band

if TYPE_CHECKING:
    from fedmatch_tf.report.measures import Calibration

# Okabe and Ito's colours; every curve has its own dash pattern as well, for print without colour.
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
WIDTH = 6.4


def all_figures(summaries: Sequence[Summary], results: Sequence[Result]) -> Iterator[tuple[str, str, Figure]]:
    """(file name, title, figure) of every figure that the runs have data for."""
    groups = [summary.group for summary in summaries if any(result.lines for result in summary.group.results)]
    for task in dict.fromkeys(group.settings["task"] for group in groups):
        of_task = [group for group in groups if group.settings["task"] == task]
        yield from _curves(task, of_task)
        yield from _by_labels(task, [summary for summary in summaries if summary.group in of_task])
        yield from _labeled_acc(task, of_task)
    for group in groups:
        yield from _of_group(group)


def _curves(task: str, groups: Sequence[Group]) -> Iterator[tuple[str, str, Figure]]:
    """Figures that have all groups of a task in one picture."""
    measures = [
        ("test_acc", "accuracy", f"Test accuracy of the global model, {task}", "%"),
        ("local_test_acc", "local-accuracy", f"Mean test accuracy of the clients, {task}", "%"),
        ("confident", "confident", f"Unlabelled rows that get a pseudo-label, {task}", "%"),
        ("pseudo_label_acc", "pseudo-labels", f"Pseudo-labels that are right, {task}", "%"),
    ]
    for name, file, title, unit in measures:
        curves = [(_short(group), *band(group, name)) for group in groups]
        if any(rounds for _, rounds, _, _ in curves):
            figure, axes = new(title)
            for number, (label, rounds, centre, width) in enumerate(curves):
                if rounds:
                    curve(axes, number, label, rounds, centre, width)
            finish(axes, "round", unit)
            yield f"{file}-{task}", title, figure
    title = f"Learning rate, mean over a round's clients, {task}"
    figure, axes = new(title)
    for number, group in enumerate(groups):
        rounds, centre, _ = band(group, "lr")
        curve(axes, number, _short(group), rounds, [value / 100 for value in centre])
    axes.set_yscale("log")
    finish(axes, "round", "learning rate")
    yield f"learning-rate-{task}", title, figure


def _by_labels(task: str, summaries: Sequence[Summary]) -> Iterator[tuple[str, str, Figure]]:
    """Final accuracy over the number of labels per class, where runs differ in it."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for summary in summaries:
        about = summary.group.settings
        if summary.final is not None:
            name = about["model"] + (" without decomposition" if about["no_decomposition"] else "")
            lines.setdefault(name, []).append((about["labels_per_class"], summary.final.value))
    if any(len({labels for labels, _ in points}) > 1 for points in lines.values()):
        title = f"Final accuracy by labels per class, {task}"
        figure, axes = new(title)
        for number, (name, points) in enumerate(lines.items()):
            curve(axes, number, name, [labels for labels, _ in sorted(points)], [value for _, value in sorted(points)])
        finish(axes, "labels per class", "%")
        yield f"labels-{task}", title, figure


def _labeled_acc(task: str, groups: Sequence[Group]) -> Iterator[tuple[str, str, Figure]]:
    """Accuracy on labelled data after every gradient step: the first run of each group that has measured it."""
    title = f"Accuracy on labelled data after every training step, {task}"
    figure, axes = new(title)
    number = 0
    for group in groups:
        lines = next(result.lines for result in group.results if result.lines)
        rounds, values = [], []
        for line in lines:
            steps = line.get("labeled_acc", {}).get("steps", ())
            rounds += [line["round"] + (step + 1) / len(steps) for step in range(len(steps))]
            values += [100 * value for value in steps]
        if rounds:
            curve(axes, number, _short(group), rounds, values)
            number += 1
    if number:
        for drawn in axes.get_lines():
            drawn.set(linewidth=0.8, linestyle="-")  # dashes can't be told apart on lines that move this much
        finish(axes, "round", "%")
        yield f"labeled-acc-{task}", title, figure


def _of_group(group: Group) -> Iterator[tuple[str, str, Figure]]:
    """Figures of one group: costs by part, and of its first run: helpers, classes, confusion, ablations."""
    name = file_name(group.label)
    lines = next(result.lines for result in group.results if result.lines)
    if len({line[way]["sum"] for line in lines for way in ("s2c", "c2s")}) > 1:  # not one figure by definition
        yield f"cost-{name}", f"Communication cost by part, {group.label}", _costs(group.label, lines)
    if any("test_acc_sigma" in line for line in lines):
        yield f"parts-{name}", f"sigma only and psi only, {group.label}", _parts(group)
    helped = _helpers_matrix(lines)
    if helped is not None:
        title = f"Who helps whom, {group.label}"
        yield f"helpers-{name}", title, matrix(title, helped, "helper", "client", "times")
    result = next((result for result in group.results if result.confusion), None)
    if result is not None and (drawn := _confusion(group.label, result.confusion or {})) is not None:
        yield f"confusion-{name}", f"Confusion matrix of the final global model, {group.label}", drawn
    result = next((result for result in group.results if result.partition), None)
    if result is not None and (drawn := _classes(group.label, result.partition or {})) is not None:
        yield f"classes-{name}", f"Unlabelled examples by client and class, {group.label}", drawn


def new(title: str, height: float = 3.8) -> tuple[Figure, Axes]:
    """A figure with one picture."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(textwrap.fill(_plain(title), 72), loc="left", fontsize=10)
    return figure, axes


def _plain(text: str) -> str:
    """The text at a length that fits, dollar signs as they are: no mathematics in names."""
    return (text if len(text) <= 100 else f"{text[:97]}...").replace("$", r"\$")


def curve(
    axes: Axes, number: int, label: str, rounds: Sequence[float], centre: Sequence[float], width: Sequence[float] = ()
) -> None:
    """A line in the number's colour and dashes, in a band of the given width."""
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[(number + number // len(COLOURS)) % len(DASHES)]
    marker = "o" if len(rounds) == 1 else None
    axes.plot(rounds, centre, color=colour, ls=dash, lw=1.6, label=_plain(label), marker=marker, ms=4)
    if any(width):
        low, high = np.subtract(centre, width), np.add(centre, width)
        axes.fill_between(rounds, low, high, color=colour, alpha=0.18, lw=0)


def finish(axes: Axes, x: str, y: str, legend: bool = True) -> None:
    """Axes, grid and legend in the house's style."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    count = len(axes.get_lines())
    if legend and count > 6:  # beside the picture, which becomes wider for it
        figure = axes.get_figure()
        assert figure is not None
        figure.set_size_inches(1.6 * WIDTH, max(3.8, 0.22 * count))
        axes.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    elif legend:
        axes.legend(fontsize=8, frameon=False)


def _short(group: Group) -> str:
    return group.label.split(": ", 1)[1] + ("" if group.finished else " (partial)")


def file_name(label: str) -> str:
    """The label with nothing but letters, digits and dashes."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in label).split())[:100]


def _costs(label: str, lines: Sequence[Mapping[str, Any]]) -> Figure:
    figure = Figure(figsize=(WIDTH, 3.4), layout="constrained")
    both = figure.subplots(1, 2, sharey=True)
    for axes, way, title in zip(both, ("s2c", "c2s"), ("server to client", "client to server")):
        for number, part in enumerate(("sum", "sigma", "psi", "helpers")):
            values = [100 * line[way][part] for line in lines]
            if part in ("sum", "sigma") or any(values):
                curve(axes, number, part, range(1, len(lines) + 1), values)
        axes.set_title(title, fontsize=9)
        finish(axes, "round", "% of one parameter set" if way == "s2c" else "", legend=way == "s2c")
    figure.suptitle(textwrap.fill(_plain(f"Communication cost, {label}"), 80), x=0.01, ha="left", fontsize=10)
    return figure


def _parts(group: Group) -> Figure:
    figure, axes = new(f"The global model and its parts, {group.label}")
    names = (("test_acc", "sigma + psi"), ("test_acc_sigma", "sigma only"), ("test_acc_psi", "psi only"))
    for number, (name, label) in enumerate(names):
        curve(axes, number, label, *band(group, name))
    finish(axes, "round", "test accuracy, %")
    return figure


def _helpers_matrix(lines: Sequence[Mapping[str, Any]]) -> np.ndarray | None:
    """Times that each client (row) was helped by each other (column)."""
    pairs = [(int(client), helper) for line in lines for client, chosen in line["helpers"].items() for helper in chosen]
    size = max((max(pair) for pair in pairs), default=-1) + 1
    if not 0 < size <= 10_000:
        return None
    counts = np.zeros((size, size), int)
    for client, helper in pairs:
        counts[client, helper] += 1
    return counts


def matrix(title: str, values: np.ndarray, x: str, y: str, what: str, names: Sequence[str] | None = None) -> Figure:
    """Counts as colours, with their figures where there is room."""
    figure, axes = new(title, height=5.0)
    image = axes.imshow(
        values, cmap="cividis", vmin=0, aspect="auto" if values.shape[0] != values.shape[1] else "equal"
    )
    figure.colorbar(image, ax=axes, label=what, shrink=0.8)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))
    if names is not None and len(names) <= MOST_NAMES:
        axes.set_xticks(range(len(names)), [_plain(name) for name in names], rotation=45, ha="right", fontsize=8)
        if values.shape[0] == len(names):
            axes.set_yticks(range(len(names)), [_plain(name) for name in names], fontsize=8)
    if values.size <= 225:
        middle = (values.max() + values.min()) / 2
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            colour = "black" if value > middle else "white"
            axes.text(column, row, f"{value}", ha="center", va="center", fontsize=7, color=colour)
    return figure


def reliability(calibration: Calibration) -> Figure:
    """Share of predictions that are right by their confidence, over how many there are of each."""
    figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    left, width = calibration.edges[:-1], np.diff(calibration.edges)
    filled = calibration.counts > 0
    axes.plot((0, 100), (0, 100), color="grey", ls="--", lw=1.0, label="calibrated")
    bars = {"align": "edge", "edgecolor": "white", "color": COLOURS[1]}
    axes.bar(100 * left[filled], 100 * calibration.accuracy[filled], 100 * width[filled], label="predictions", **bars)
    confidence, accuracy = 100 * calibration.confidence[filled], 100 * calibration.accuracy[filled]
    axes.plot(confidence, accuracy, "o", ms=4, color=COLOURS[0], label="at the bin's mean confidence")
    axes.set_title(f"Expected calibration error {100 * calibration.error:.2f} %", loc="left", fontsize=10)
    below.bar(100 * left, calibration.counts, 100 * width, **bars)
    finish(axes, "", "right, %")
    finish(below, "confidence, %", "images", legend=False)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    return figure


def _confusion(label: str, content: Mapping[str, Any]) -> Figure | None:
    checked = _table(content.get("matrix"), content.get("class_names"))
    if checked is None or checked[0].shape[0] != checked[0].shape[1]:
        return None
    title = f"Confusion matrix of the final global model, {label}"
    return confusion(title, *checked, "test examples")


MOST_NAMES = 50  # classes that can be read


def confusion(title: str, values: np.ndarray, names: Sequence[str], what: str) -> Figure:
    """A confusion matrix; of many classes, those with the most mistakes, predicted as each other."""
    if len(names) > MOST_NAMES:
        wrong = values.sum(axis=0) + values.sum(axis=1) - 2 * np.diag(values)
        chosen = np.sort(np.argsort(-wrong, kind="stable")[:MOST_NAMES])
        title = f"{title}: the {MOST_NAMES} of {len(names):,} classes with the most mistakes"
        values, names = values[np.ix_(chosen, chosen)], [names[number] for number in chosen]
    return matrix(title, values, "predicted", "truth", what, names)


def _classes(label: str, content: Mapping[str, Any]) -> Figure | None:
    checked = _table(content.get("unlabeled"), content.get("class_names"))
    if checked is None:
        return None
    title = f"Unlabelled examples by client and class, {label}"
    return matrix(title, checked[0], "class", "client", "examples", checked[1])


def _table(rows: Any, names: Any) -> tuple[np.ndarray, list[str]] | None:
    """(counts [rows, classes], class names), or None if it is anything else."""
    try:
        values = np.array(rows, dtype=int)
    except (TypeError, ValueError, OverflowError):
        return None
    if values.ndim != 2 or not isinstance(names, list) or values.shape[1] != len(names) or not values.size:
        return None
    return values, ["".join(letter if letter.isprintable() else "?" for letter in str(name)[:30]) for name in names]
