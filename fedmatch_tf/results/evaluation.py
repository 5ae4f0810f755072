"""--work-type evaluate: how good a run's model is, on its test set or on labelled images that a user gives.

Accuracy, loss, per-class figures, confusion, calibration; and a page that shows them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.loader import load_test, open_partitions
from fedmatch_tf.data.raw import Progress
from fedmatch_tf.data.sources import read_labelled
from fedmatch_tf.results import models, page, plots
from fedmatch_tf.results.models import Predictor, Trained
from fedmatch_tf.results.tables import Cell, Table, Value, table_of

BINS = 15  # of confidence, for calibration
_EPSILON = 1e-7  # as in the losses


class Calibration(NamedTuple):
    """Predictions by how sure they are: in a bin, mean confidence and share that is right; 0 where a bin is empty."""

    edges: np.ndarray  # [bins + 1]
    confidence: np.ndarray  # [bins]
    accuracy: np.ndarray  # [bins]
    counts: np.ndarray  # [bins]

    @property
    def error(self) -> float:
        """Expected calibration error: mean distance between confidence and accuracy, weighted by counts."""
        return float(np.sum(self.counts * np.abs(self.confidence - self.accuracy)) / self.counts.sum())


class Measured(NamedTuple):
    """What predictions on labelled images are worth."""

    class_names: tuple[str, ...]
    accuracy: float
    loss: float
    precision: np.ndarray  # [classes]; 0 where a class was never predicted
    recall: np.ndarray  # 0 where a class has no image
    f1: np.ndarray
    confusion: np.ndarray  # [truth, predicted]
    calibration: Calibration


def measure(y: np.ndarray, probs: np.ndarray, class_names: Sequence[str]) -> Measured:
    """The measures of probabilities [n, classes] for images of these classes [n]."""
    from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

    predicted, labels = probs.argmax(axis=1), np.arange(probs.shape[1])
    precision, recall, f1, _ = precision_recall_fscore_support(y, predicted, labels=labels, zero_division=0)
    return Measured(
        class_names=tuple(class_names),
        accuracy=float(np.mean(predicted == y)),
        loss=float(-np.mean(np.log(np.clip(probs[np.arange(len(y)), y], _EPSILON, 1 - _EPSILON)))),
        precision=precision,
        recall=recall,
        f1=f1,
        confusion=confusion_matrix(y, predicted, labels=labels),
        calibration=calibration(probs.max(axis=1), predicted == y),
    )


def calibration(confidence: np.ndarray, right: np.ndarray, bins: int = BINS) -> Calibration:
    """Predictions by confidence; a bin has its upper edge in it."""
    edges = np.linspace(0.0, 1.0, bins + 1)
    place = np.clip(np.searchsorted(edges, confidence, side="left") - 1, 0, bins - 1)
    counts = np.bincount(place, minlength=bins)
    filled = np.maximum(counts, 1)
    sums = [np.bincount(place, weights=values, minlength=bins) for values in (confidence, right.astype(float))]
    return Calibration(edges, sums[0] / filled, sums[1] / filled, counts)


def as_json(measured: Measured) -> dict[str, Any]:
    """The content of evaluation.json."""
    counts = measured.confusion.sum(axis=1)
    per_class = {
        name: {"precision": float(p), "recall": float(r), "f1": float(f), "images": int(n)}
        for name, p, r, f, n in zip(measured.class_names, measured.precision, measured.recall, measured.f1, counts)
    }
    bins = measured.calibration
    return {
        "accuracy": measured.accuracy,
        "loss": measured.loss,
        "ece": bins.error,
        "macro_f1": float(np.mean(measured.f1)),
        "images": int(counts.sum()),
        "per_class": per_class,
        "class_names": list(measured.class_names),
        "confusion": measured.confusion.tolist(),
        "calibration": {name: values.tolist() for name, values in bins._asdict().items()},
    }


class Written(NamedTuple):
    """An evaluation on disk, and in a sentence."""

    folder: Path
    text: str


def evaluate(
    run: Path,
    source: str | None,
    output: Path,
    progress: Progress,
    dataset_path: str | None = None,
    precision: str | None = None,
) -> Written:
    """Writes evaluation.html, evaluation.json and figures.

    Args:
        source: labelled images, as --source takes them for training; None: the run's own test set.
        dataset_path: where the run's partitions are now, if they were moved.
        precision: to compute in; None: the run's own.
    """
    found = models.read(run, dataset_path=dataset_path, precision=precision)
    x, y, origin = _examples(found, source, progress)
    predictor = Predictor(found)
    parts = progress(predictor.batches(len(x)), 0, "Evaluating")
    probs = np.concatenate([predictor.predict(x[rows]) for rows in parts])
    measured = measure(y, probs, found.data.class_names)
    return write(measured, f"{run}, on {origin}", output)


def _examples(found: Trained, source: str | None, progress: Progress) -> tuple[np.ndarray, np.ndarray, str]:
    """(images uint8, labels, what they are)."""
    config, data = found.config, found.data
    if source is not None:
        size = data.image_shape[0]
        x, y = read_labelled(Path(source), config.dataset, size, data.class_names, progress)
        if x.shape[1:] != tuple(data.image_shape):
            raise DataError(f"{source}: expected inputs of {list(data.image_shape)}, received {list(x.shape[1:])}")
        return x, y, source
    folder = config.partition_folder
    partitions = open_partitions(Path(config.dataset_path), config.task) if folder.is_dir() else None
    if partitions is None or partitions.fingerprint != found.partitions:
        raise DataError(
            f"{folder}: expected the partitions that the run began with, found others or none. Say "
            f"where they are with --dataset-path, make them again with --work-type gen_data, or give images by --source"
        )
    test = load_test(partitions)
    return test.x, test.y.argmax(axis=1), f"the test set of {folder}"


def write(measured: Measured, what: str, output: Path) -> Written:
    """Writes <output>/evaluations/<time>/ whole or not at all."""
    content = as_json(measured)
    lead = (
        f"{what}: {content['images']:,} images, accuracy {100 * measured.accuracy:.2f} %, loss {measured.loss:.4f}, "
        f"macro F1 {100 * content['macro_f1']:.2f} %, expected calibration error {100 * content['ece']:.2f} %"
    )
    folder = page.write(
        output,
        "evaluation.html",
        "Evaluation of a trained model",
        f"{lead}. Calibration looks at the most probable class, in {BINS} bins of confidence.",
        [page.Section("", [_overall(content), _per_class(content)], _figures(measured))],
        parent="evaluations",
        files={"evaluation.json": json.dumps(content, indent=1) + "\n"},
    )
    return Written(folder, lead)


def _overall(content: dict[str, Any]) -> Table:
    row: dict[str, Cell] = {
        "images": f"{content['images']:,}",
        "accuracy (%)": Value(100 * content["accuracy"]),
        "loss": Value(content["loss"], digits=4),
        "macro F1 (%)": Value(100 * content["macro_f1"]),
        "expected calibration error (%)": Value(100 * content["ece"]),
    }
    return table_of("overall", "All classes", [row])


def _per_class(content: dict[str, Any]) -> Table:
    rows: list[list[Cell]] = [
        [name, str(each["images"]), *(Value(100 * each[part]) for part in ("precision", "recall", "f1"))]
        for name, each in content["per_class"].items()
    ]
    head = ["class", "images", "precision (%)", "recall (%)", "F1 (%)"]
    return Table("per-class", "By class", head, rows)


def _figures(measured: Measured) -> Iterator[tuple[str, str, Figure]]:
    title = "Confusion matrix"
    yield "confusion", title, plots.confusion(title, measured.confusion, measured.class_names, "images")
    yield "reliability", "Reliability: a calibrated model lies on the diagonal", plots.reliability(measured.calibration)
