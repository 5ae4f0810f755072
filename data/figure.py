"""The picture of a partition: how many examples of each class every client holds."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from data.manifest import Manifest


def draw_partition(manifest: Manifest, path: Path) -> None:
    """Writes a PNG: unlabelled examples per class of every client (and step), and the labelled, test and valid sets."""
    figure = _streaming_figure(manifest) if manifest.spec.kind == "simb" else _batch_figure(manifest)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _counts(manifest: Manifest, role: str) -> np.ndarray:
    """[files of that role, classes], in the manifest's order."""
    return np.array([record.class_counts for record in manifest.files.values() if record.role == role])


def _batch_figure(manifest: Manifest) -> Figure:
    figure, (clients, others) = plt.subplots(1, 2, figsize=(12, 4.2), width_ratios=(4, 1.3), layout="constrained")
    unlabeled = _counts(manifest, "unlabeled")
    _stack(clients, np.arange(len(unlabeled)), unlabeled, manifest, legend=True)
    clients.set(xlabel="client", ylabel="unlabelled examples", xlim=(-0.6, len(unlabeled) - 0.4))
    clients.set_title(f"{manifest.spec.task}: unlabelled examples of each client, by class", loc="left")
    _other_sets(others, manifest)
    return figure


def _streaming_figure(manifest: Manifest) -> Figure:
    clients, steps = manifest.spec.num_clients, manifest.spec.num_steps
    counts = _counts(manifest, "unlabeled").reshape(clients, steps, manifest.num_classes)
    shown = min(clients, 20)
    columns = min(5, shown)
    rows = -(-shown // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(2.4 * columns + 1.6, 1.9 * rows + 0.8), sharex=True, sharey=True, squeeze=False,
        layout="constrained",
    )  # fmt: skip
    for client, axis in enumerate(axes.flat):
        if client >= shown:
            axis.set_visible(False)
            continue
        _stack(axis, np.arange(steps), counts[client], manifest, legend=False)
        axis.set_title(f"client {client}", fontsize=9)
    more = f" (the first {shown} of {clients} clients)" if shown < clients else ""
    title = f"{manifest.spec.task}: unlabelled examples of each client and streaming step, by class{more}"
    figure.suptitle(title, x=0.01, ha="left")
    figure.supxlabel("step")
    figure.supylabel("unlabelled examples")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="outside right center", fontsize=8, frameon=False)
    return figure


def _other_sets(axis: Axes, manifest: Manifest) -> None:
    labeled = _counts(manifest, "labeled")
    owner = "each client" if manifest.spec.scenario == "lc" else "server"
    sets = [labeled[0], _counts(manifest, "valid")[0], _counts(manifest, "test")[0]]
    _stack(axis, np.arange(3), np.array(sets), manifest, legend=False, percent=True)
    sizes = [f"{int(np.sum(counts)):,}" for counts in sets]
    names = [f"labelled,\n{owner}\n{sizes[0]}", f"valid\n{sizes[1]}", f"test\n{sizes[2]}"]
    axis.set_xticks(range(3), names)
    axis.set(ylabel="% of the set")
    axis.set_title("other sets", loc="left")


def _stack(
    axis: Axes, at: np.ndarray, counts: np.ndarray, manifest: Manifest, legend: bool, percent: bool = False
) -> None:
    """Bars at these places, one colour a class, the first class at the bottom."""
    heights = 100 * counts / counts.sum(axis=1, keepdims=True) if percent else counts
    colors = plt.get_cmap("viridis")(np.linspace(0.02, 0.98, manifest.num_classes))
    base = np.zeros(len(at))
    for label, name in enumerate(manifest.class_names):
        axis.bar(at, heights[:, label], bottom=base, width=0.85, color=colors[label], label=_plain(name))
        base += heights[:, label]
    axis.spines[["top", "right"]].set_visible(False)
    if legend and manifest.num_classes <= 20:
        handles, labels = axis.get_legend_handles_labels()
        axis.legend(handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1), fontsize=8, frameon=False)


def _plain(name: str) -> str:
    """A class name as it is: `$` starts no formula, a leading `_` hides no legend entry."""
    return name.replace("$", r"\$").lstrip("_") or "?"
