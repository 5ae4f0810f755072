"""The picture of a partition: how many examples of each class every client holds."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from fedmatch_tf.base.drawing import finish, plain
from fedmatch_tf.data.dealing import KINDS
from fedmatch_tf.data.manifest import Manifest

MAX_CLIENTS_STREAMING = 20
MAX_NAMES = 20


def draw_partition(manifest: Manifest, path: Path) -> None:
    """Writes a PNG: unlabelled examples per class of every client (and step), and the labelled, test and valid sets."""
    figure = _streaming_figure(manifest) if KINDS[manifest.spec.kind].streams else _batch_figure(manifest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class name in a script that the font lacks
        figure.savefig(path, dpi=110)


def _counts(manifest: Manifest, role: str) -> np.ndarray:
    """[files of that role, classes], in the manifest's order."""
    return np.array([record.class_counts for record in manifest.files.values() if record.role == role])


def _batch_figure(manifest: Manifest) -> Figure:
    uneven = _labels_differ(manifest)
    figure = Figure(figsize=(12, 7.2 if uneven else 4.2), layout="constrained")
    axes = figure.subplots(2 if uneven else 1, 2, width_ratios=(4, 1.3), squeeze=False)
    clients, others = axes[0]
    unlabeled = _counts(manifest, "unlabeled")
    _stack(clients, unlabeled, manifest, "client", "unlabelled examples")
    clients.set_title(f"{manifest.spec.task}: unlabelled examples of each client, by class", loc="left")
    if manifest.num_classes <= MAX_NAMES:
        handles, labels = clients.get_legend_handles_labels()
        clients.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)
    _other_sets(others, manifest)
    if uneven:
        _labeled_sets(axes[1, 0], manifest)
        axes[1, 1].set_visible(False)
    return figure


def _labels_differ(manifest: Manifest) -> bool:
    """Whether clients hold different labelled sets: then it is worth a look."""
    return manifest.spec.labeled_clients is not None or manifest.spec.alpha_labeled is not None


def _labeled_sets(axis: Axes, manifest: Manifest) -> None:
    """Labelled examples of each client, by class; a client without labels has no bar."""
    heights = np.zeros((manifest.spec.num_clients, manifest.num_classes))
    for record in manifest.files.values():
        if record.role == "labeled":
            heights[record.client] = record.class_counts
    _stack(axis, heights, manifest, "client", "labelled examples")
    axis.set_title("labelled examples of each client, by class", loc="left")


def _streaming_figure(manifest: Manifest) -> Figure:
    clients, steps = manifest.spec.num_clients, manifest.spec.num_steps
    counts = _counts(manifest, "unlabeled").reshape(clients, steps, manifest.num_classes)
    shown = min(clients, MAX_CLIENTS_STREAMING)
    columns = min(5, shown)
    rows = -(-shown // columns)
    height, uneven = 1.9 * rows + 0.8, _labels_differ(manifest)
    whole = Figure(figsize=(2.4 * columns + 1.6, height + (3.0 if uneven else 0.0)), layout="constrained")
    figure: Any = whole
    if uneven:
        figure, labeled = whole.subfigures(2, 1, height_ratios=(height, 3.0))
        _labeled_sets(labeled.subplots(), manifest)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat
    for client, axis in enumerate(axes):
        if client >= shown:
            axis.set_visible(False)
            continue
        _stack(axis, counts[client], manifest)
        axis.set_title(f"client {client}", fontsize=9)
    axes[0].set_ylim(0, 1.04 * counts.sum(axis=-1).max())  # the axes share it
    more = f" (the first {shown} of {clients} clients)" if shown < clients else ""
    title = f"{manifest.spec.task}: unlabelled examples of each client and streaming step, by class{more}"
    figure.suptitle(title, x=0.01, ha="left")
    figure.supxlabel("step")
    figure.supylabel("unlabelled examples")
    if manifest.num_classes <= MAX_NAMES:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside right center", fontsize=8, frameon=False)
    return whole


def _other_sets(axis: Axes, manifest: Manifest) -> None:
    some = manifest.spec.labeled_clients
    at_clients = "all clients" if some is None else "1 client" if some == 1 else f"{some} clients"
    owner = at_clients if manifest.spec.scenario == "lc" else "server"
    sets = np.array([_counts(manifest, role).sum(axis=0) for role in ("labeled", "valid", "test")])
    sizes = sets.sum(axis=1)
    _stack(axis, 100 * sets / sizes[:, np.newaxis], manifest, "", "% of the set")
    names = [f"labelled,\n{owner}\n{sizes[0]:,}", f"valid\n{sizes[1]:,}", f"test\n{sizes[2]:,}"]
    axis.set_xticks(range(3), names)
    axis.set_title("other sets", loc="left")


def _stack(axis: Axes, heights: np.ndarray, manifest: Manifest, x_label: str = "", y_label: str = "") -> None:
    """A bar for each row at 0, 1, 2, ..., one colour per class, the first class at the bottom. One artist per class."""
    colors = colormaps["viridis"](np.linspace(0.02, 0.98, manifest.num_classes))
    half = 0.425 if len(heights) <= 40 else 0.5
    top = heights.cumsum(axis=1)
    for label, name in enumerate(manifest.class_names):
        low, high = top[:, label] - heights[:, label], top[:, label]
        bars = [[(x - half, a), (x + half, a), (x + half, b), (x - half, b)] for x, (a, b) in enumerate(zip(low, high))]
        # With a space: a name that begins with `_` would hide its entry in the legend.
        axis.add_collection(PolyCollection(bars, facecolors=[colors[label]], label=f" {plain(name)}"))
    axis.set(xlim=(-0.6, len(heights) - 0.4), ylim=(0, 1.04 * top.max()))
    finish(axis, x_label, y_label, legend=False)
