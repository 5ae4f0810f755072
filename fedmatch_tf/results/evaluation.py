"""--work-type evaluate: how good a run's model is, on its test set or on labelled images that a user gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.loader import load_test, open_partitions
from fedmatch_tf.data.manifest import fingerprint
from fedmatch_tf.data.raw import Progress
from fedmatch_tf.data.sources import read_labelled
from fedmatch_tf.results import measures, models
from fedmatch_tf.results.measures import Written
from fedmatch_tf.results.models import Predictor, Trained


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
    measured = measures.measure(y, probs, found.data.class_names)
    return measures.write(measured, f"{run}, on {origin}", output)


def _examples(found: Trained, source: str | None, progress: Progress) -> tuple[np.ndarray, np.ndarray, str]:
    """(images uint8, labels, what they are)."""
    config, data = found.config, found.data
    if source is not None:
        size = data.image_shape[0]
        x, y = read_labelled(Path(source), config.dataset, size, data.class_names, progress)
        return x, y, source
    if fingerprint(config.partition_folder) != found.partitions:
        raise DataError(
            f"{config.partition_folder}: expected the partitions that the run began with, found others or none. Say "
            f"where they are with --dataset-path, make them again with --work-type gen_data, or give images by --source"
        )
    test = load_test(open_partitions(Path(config.dataset_path), config.task))
    return test.x, test.y.argmax(axis=1), f"the test set of {config.partition_folder}"
