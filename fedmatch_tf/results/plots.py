"""The report's figures."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedmatch_tf.base.drawing import COLOURS, WIDTH, Style, curve, finish, numbered, plain
from fedmatch_tf.config.models import algorithm_of, learner_of
from fedmatch_tf.federation.tasks import Losses
from fedmatch_tf.results import style
from fedmatch_tf.results.confusions import counts_by_class
from fedmatch_tf.results.names import file_name
from fedmatch_tf.results.results import Group
from fedmatch_tf.results.summary import Summary, band

if TYPE_CHECKING:
    from fedmatch_tf.results.evaluation import Calibration

Drawn = tuple[str, str, Figure]  # file name, title, figure


def task_figures(task: str, summaries: Sequence[Summary]) -> Iterator[Drawn]:
    """Every figure that the runs of a task have data for."""
    begun = [summary for summary in summaries if any(result.lines for result in summary.group.results)]
    if not begun:
        return
    groups = [summary.group for summary in begun]
    yield from _curves(task, groups)
    yield from _by_labels(task, summaries)
    yield from _labeled_acc(task, groups)
    for summary in begun:
        yield from _of_group(summary)
    yield from _class_maps(task, groups)


# Measure -> file name, title, unit.
_MEASURES = {
    "test_acc": ("accuracy", "Test accuracy", "%"),
    "local_test_acc": ("local-accuracy", "Mean test accuracy of the clients", "%"),
    "test_loss": ("test-loss", "Test loss", "loss"),
    "valid_loss": ("validation-loss", "Validation loss", "loss"),
    "confident": ("confident", "Unlabelled rows that get a pseudo-label", "%"),
    "pseudo_label_acc": ("pseudo-labels", "Pseudo-labels that are right", "%"),
    "lr": ("learning-rate", "Learning rate, mean over a round's clients", "learning rate"),
    "server_lr": ("learning-rate-server", "Learning rate of the server", "learning rate"),
}
PERCENT = (0.0, 100.0)  # where its bands end


def _curves(task: str, groups: Sequence[Group]) -> Iterator[Drawn]:
    """Figures that have all groups of a task in one picture."""
    looks = _looks(groups)
    longest = max(group.settings["num_rounds"] for group in groups)
    for name, (file, what, unit) in _MEASURES.items():
        shown = [(group, look) for group, look in zip(groups, looks) if _has(group, name)]
        curves = [(_short(group), look, *band(group, name, factor=100 if unit == "%" else 1)) for group, look in shown]
        values = [{round(value, 9) for value in centre} for _, _, _, centre, _ in curves]
        # A rate that never falls stands in a table; where all shares are 0, there is nothing to see.
        if not any(len(each) > 1 if unit == "learning rate" else any(each) for each in values):
            continue
        title = f"{what}, {task}"
        figure, axes = new(title)
        ends = PERCENT if unit == "%" else (0, math.inf)
        for label, look, rounds, centre, width in curves:
            if rounds:
                curve(axes, look, label, rounds, centre, () if unit == "learning rate" else width, ends=ends)
        if unit == "learning rate" or (unit == "loss" and max(map(max, values)) > MOST_ON_A_LINE):
            axes.set_yscale("log")
        else:
            axes.set_ylim(0, min(axes.get_ylim()[1], 103))  # so that noise looks as small as it is
        if longest > 1:
            axes.set_xlim(1 - 0.02 * longest, 1.02 * longest)
        finish(axes, "round", unit)
        yield file_name(f"{file}-{task}"), title, figure


MOST_ON_A_LINE = 50  # a loss above this has left the others' scale


def _looks(groups: Sequence[Group]) -> list[Style]:
    return style.of_models([group.settings["model"] for group in groups])


def _has(group: Group, name: str) -> bool:
    """Whether a measure means something for the group's model, and something else than another one."""
    model = group.settings["model"]
    if name == "local_test_acc":
        return algorithm_of(model).has_global_model  # else it is test_acc
    return name not in ("confident", "pseudo_label_acc") or "confidence" in learner_of(model).reads


def _by_labels(task: str, summaries: Sequence[Summary]) -> Iterator[Drawn]:
    """Final accuracy over the number of labels per class, where runs differ in it."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for summary in summaries:
        about = summary.group.settings
        if summary.final is not None:
            name = about["model"] + (" without decomposition" if about["no_decomposition"] else "")
            name += " (shipped record)" if summary.group.shipped else ""
            lines.setdefault(name, []).append((about["labels_per_class"], summary.final.value))
    if any(len({labels for labels, _ in points}) > 1 for points in lines.values()):
        title = f"Final accuracy by labels per class, {task}"
        figure, axes = new(title)
        looks = style.of_models([name.split()[0] for name in lines])
        for look, (name, points) in zip(looks, lines.items()):
            labels, values = zip(*sorted(points))
            curve(axes, look, name, labels, values, joined=True)
        axes.set_ylim(bottom=0)
        finish(axes, "labels per class", "%")
        yield file_name(f"labels-{task}"), title, figure


def _labeled_acc(task: str, groups: Sequence[Group]) -> Iterator[Drawn]:
    """Accuracy on labelled data after every gradient step: the first run of each group that has measured it."""
    title = f"Accuracy on labelled data after every training step, {task}"
    figure, axes = new(title)
    for group, look in zip(groups, _looks(groups)):
        rounds, values = [], []
        for line in _first_lines(group):
            steps = (line["labeled_acc"] or {}).get("steps") or ()
            rounds += [line["round"] + (step + 1) / len(steps) for step in range(len(steps))]
            values += [100 * value for value in steps]
        if rounds:
            curve(axes, look, _short(group), rounds, values)
    if axes.lines:
        for drawn in axes.lines:  # dashes can't be told apart on lines that move this much
            drawn.set(linewidth=0.8, linestyle="-", marker="")
        axes.set_ylim(bottom=0)
        finish(axes, "round", "%")
        yield file_name(f"labeled-acc-{task}"), title, figure


def _first_lines(group: Group) -> Sequence[Mapping[str, Any]]:
    return next(result.lines for result in group.results if result.lines)


def _of_group(summary: Summary) -> Iterator[Drawn]:
    """Figures of one group: means over its runs, their confusion matrices added up, and the first run's helpers."""
    group = summary.group
    name, lines = file_name(group.label), _first_lines(group)
    if len({line[way]["sum"] for line in lines for way in ("s2c", "c2s")}) > 1:  # not one figure by definition
        yield f"cost-{name}", f"Communication cost by part, {group.label}", _costs(group)
    if any(line["test_acc_sigma"] is not None for line in lines):
        yield f"parts-{name}", f"sigma only and psi only, {group.label}", _parts(group)
    if any(band(group, "train_loss", "total")[1]):
        yield f"train-loss-{name}", f"Training loss by term, {group.label}", _train_loss(group)
    if any(band(group, "norms", "sigma")[1]):
        yield f"norms-{name}", f"Norms of the global model, {group.label}", _norms(group)
    helped = _helpers_matrix(lines)
    if helped is not None:
        title = f"Who helps whom, {group.label}" + (", its first run" if len(group.results) > 1 else "")
        yield f"helpers-{name}", title, matrix(title, helped, "helper", "client", "times")
    classes = [each.class_names for each in summary.confusions]
    if classes and all(each == classes[0] for each in classes):
        title = f"Confusion matrix of the final global model, {group.label}"
        title += f", {len(classes)} seeds added up" if len(classes) > 1 else ""
        total = np.sum([each.matrix for each in summary.confusions], axis=0)
        yield f"confusion-{name}", title, confusion(title, total, classes[0], "test examples")


def _class_maps(task: str, groups: Sequence[Group]) -> Iterator[Drawn]:
    """Who holds what, of each group's lowest seed: one map for all groups that share it."""
    maps: dict[bytes, tuple[Group, int, np.ndarray, list[str]]] = {}
    for group in groups:
        seeds = {result.settings["seed"]: result.partition for result in group.results if result.partition}
        found = counts_by_class(seeds[min(seeds)], "unlabeled") if seeds else None
        if found is not None:
            maps.setdefault(found[0].tobytes(), (group, min(seeds), *found))
    for number, (group, seed, counts, names) in enumerate(list(maps.values())[:MOST_MAPS]):
        title = f"Unlabelled examples by client and class, {group.label if len(maps) > 1 else task}, seed {seed}"
        file = file_name(f"classes-{task}") + (f"-{number + 1}" if len(maps) > 1 else "")
        yield file, title, matrix(title, counts, "class", "client", "examples", names)


MOST_MAPS = 3  # of partitions that differ in more than their seed


def new(title: str, height: float = 3.8) -> tuple[Figure, Axes]:
    """A figure with one picture."""
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    axes.set_title(textwrap.fill(plain(title, MOST_OF_TITLE), 72), loc="left", fontsize=10)
    return figure, axes


def panels(title: str, names: Sequence[str], sharey: bool = True) -> tuple[Figure, list[Axes]]:
    """A figure with a picture per name, side by side; of one, the title is enough."""
    if len(names) == 1:
        figure, axes = new(title)
        return figure, [axes]
    figure = Figure(figsize=(WIDTH * 0.8 * len(names), 3.8), layout="constrained")
    pictures = figure.subplots(1, len(names), sharey=sharey)
    for axes, name in zip(pictures, names):
        axes.set_title(plain(name), loc="left", fontsize=9)
    figure.suptitle(textwrap.fill(plain(title, MOST_OF_TITLE), 100), x=0.01, ha="left", fontsize=10)
    return figure, list(pictures)


MOST_OF_TITLE = 280  # characters: four lines


def marker(axes: Axes, x: float, y: float, colour: str, hollow: bool = False) -> None:
    """A diamond: a value that is no curve's."""
    axes.plot([x], [y], color=colour, ls="", marker="D", ms=5, mfc="white" if hollow else colour)


def _short(group: Group) -> str:
    return group.short + ("" if group.finished else " (partial)")


def _costs(group: Group) -> Figure:
    figure, both = panels(f"Communication cost, {group.label}", ("server to client", "client to server"))
    for axes, way in zip(both, ("s2c", "c2s")):
        _by_part(axes, group, way, ("sum", "sigma", "psi", "helpers"), factor=100)
        axes.set_ylim(bottom=0)
        finish(axes, "round", "% of one parameter set" if way == "s2c" else "", legend=way == "s2c")
    return figure


def _by_part(axes: Axes, group: Group, name: str, parts: Sequence[str], factor: float = 1) -> None:
    """A line for each part of a figure that is not 0 throughout."""
    for number, part in enumerate(parts):
        rounds, centre, width = band(group, name, part, factor)
        if any(centre):
            ends = (-1, 1) if part == "cosine" else (0, math.inf)
            curve(axes, numbered(number), part.replace("_", "-"), rounds, centre, width, ends=ends)


def _train_loss(group: Group) -> Figure:
    figure, axes = new(f"Training loss by term, {group.label}")
    _by_part(axes, group, "train_loss", Losses._fields)
    axes.set_yscale("log")  # the terms differ by powers of ten
    finish(axes, "round", "loss")
    return figure


def _norms(group: Group) -> Figure:
    names = ["norm", "cosine between sigma and psi"][: 2 if any(band(group, "norms", "cosine")[1]) else 1]
    figure, (norms, *cosines) = panels(f"Norms of the global model, {group.label}", names, sharey=False)
    _by_part(norms, group, "norms", ("sigma", "psi"))
    norms.set_ylim(bottom=0)
    finish(norms, "round", "")
    for cosine in cosines:  # a model without psi has none
        _by_part(cosine, group, "norms", ("cosine",))
        cosine.set_ylim(-1.05, 1.05)
        finish(cosine, "round", "", legend=False)
    return figure


def _parts(group: Group) -> Figure:
    figure, axes = new(f"The global model and its parts, {group.label}")
    names = (("test_acc", "sigma + psi"), ("test_acc_sigma", "sigma only"), ("test_acc_psi", "psi only"))
    for number, (name, label) in enumerate(names):
        curve(axes, numbered(number), label, *band(group, name), ends=PERCENT)
    axes.set_ylim(bottom=0)
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
    aspect: Literal["auto", "equal"] = "auto" if values.shape[0] != values.shape[1] else "equal"
    image = axes.imshow(values, cmap="cividis", vmin=0, aspect=aspect)
    figure.colorbar(image, ax=axes, label=what, shrink=0.8, ticks=MaxNLocator(integer=True, min_n_ticks=1))
    axes.set(xlabel=x, ylabel=y)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if names is not None and len(names) <= MOST_NAMES:
        axes.set_xticks(range(len(names)), [plain(name) for name in names], rotation=45, ha="right", fontsize=8)
        if values.shape[0] == len(names):
            axes.set_yticks(range(len(names)), [plain(name) for name in names], fontsize=8)
    if values.size <= 225:
        for row, column in np.ndindex(values.shape):
            value = values[row, column]
            colour = readable_on(np.asarray(image.to_rgba(value))[:3].tolist())
            axes.text(column, row, f"{value}", ha="center", va="center", fontsize=7, color=colour)
    return figure


def readable_on(background: Sequence[float]) -> str:
    """Black or white, whichever stands out more (W3C's contrast ratio) on this red, green and blue."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in map(float, background)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


def reliability(calibration: Calibration) -> Figure:
    """Share of predictions that are right by their confidence, over how many there are of each."""
    figure = Figure(figsize=(WIDTH, 5.0), layout="constrained")
    axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    left, width = calibration.edges[:-1], np.diff(calibration.edges)
    filled = calibration.counts > 0
    axes.plot((0, 100), (0, 100), color="grey", ls="--", lw=1.0, label="calibrated")
    bars = {"align": "edge", "edgecolor": "white", "color": COLOURS[3]}
    axes.bar(100 * left[filled], 100 * calibration.accuracy[filled], 100 * width[filled], label="predictions", **bars)
    confidence, accuracy = 100 * calibration.confidence[filled], 100 * calibration.accuracy[filled]
    axes.plot(confidence, accuracy, "o", ms=4, color=COLOURS[0], label="at the bin's mean confidence")
    axes.set_title(f"Expected calibration error {100 * calibration.error:.2f} %", loc="left", fontsize=10)
    below.bar(100 * left, calibration.counts, 100 * width, **bars)
    finish(axes, "", "right, %")
    finish(below, "confidence, %", "images", legend=False)
    axes.set(xlim=(0, 100), ylim=(0, 100))
    return figure


MOST_NAMES = 50  # classes that can be read


def confusion(title: str, values: np.ndarray, names: Sequence[str], what: str) -> Figure:
    """A confusion matrix; of many classes, those with the most mistakes, predicted as each other."""
    if len(names) > MOST_NAMES:
        wrong = values.sum(axis=0) + values.sum(axis=1) - 2 * np.diag(values)
        chosen = np.sort(np.argsort(-wrong, kind="stable")[:MOST_NAMES])
        title = f"{title}: the {MOST_NAMES} of {len(names):,} classes with the most mistakes"
        values, names = values[np.ix_(chosen, chosen)], [names[number] for number in chosen]
    return matrix(title, values, "predicted", "truth", what, names)
