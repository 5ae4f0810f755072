"""--work-type predict: classes and probabilities of image files of any size, as a CSV file."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmatch_tf.base.atomic import writing_to
from fedmatch_tf.base.errors import ConfigError, DataError
from fedmatch_tf.data.raw import Progress
from fedmatch_tf.data.readers import IMAGE_SUFFIXES
from fedmatch_tf.data.sources import read_image_like
from fedmatch_tf.results import models
from fedmatch_tf.results.models import Predictor

COLUMNS = ("file", "class", "probability")


class Predicted(NamedTuple):
    """What was written."""

    path: Path
    predicted: int
    skipped: int


def predict(
    run: Path,
    images: Sequence[str],
    output: Path | None,
    output_path: Path,
    progress: Progress,
    note: Callable[[str], None],
    precision: str | None = None,
) -> Predicted:
    """Writes a CSV with a row per image: file, class, probability, and the probability of every class.

    Args:
        images: files and folders, which are searched to any depth.
        output: the CSV; None: `<output_path>/predictions/<time>.csv`.
        note: is told of every file that could not be read.
        precision: to compute in; None: the run's own.
    """
    found = models.read(run, precision=precision)
    if len(found.data.image_shape) == 1:
        raise ConfigError("--images: the run is of vectors; from Python, fedmatch_tf.load_model(run).predict(x)")
    files = find_images(images)
    path = output or output_path / "predictions" / f"{datetime.now():%Y%m%d-%H%M%S}.csv"
    names, predictor, count = found.data.class_names, Predictor(found), 0
    shown = progress(files, len(files), "Predicting")
    batches = _batches(shown, found.config.dataset, found.data.image_shape[0], predictor.batch_size, note)
    first = next(batches, None)
    if first is None:
        raise DataError(f"--images: expected images that can be read; none of {len(files)} files is one")
    with writing_to(path, "--output", _row(*COLUMNS).rstrip()) as file:
        file.write(_row(*COLUMNS, *(f"p_{name}" for name in names)))
        for batch, x in chain([first], batches):
            for name, probs in zip(batch, predictor.predict(x)):
                best, numbers = int(probs.argmax()), [f"{value:.6g}" for value in probs]
                file.write(_row(name, names[best], numbers[best], *numbers))
            count += len(batch)
    return Predicted(path, count, len(files) - count)


def _row(*cells: str) -> bytes:
    """A line of the CSV; a file's name that is not UTF-8 stays as it is on disk."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode("utf-8", "surrogateescape")


def _batches(
    files: Iterable[str],
    dataset: str,
    image_size: int,
    batch_size: int,
    note: Callable[[str], None],
) -> Iterator[tuple[list[str], np.ndarray]]:
    """(file names, images uint8 [n, h, w, 3]) of the files that can be read."""
    names: list[str] = []
    images: list[np.ndarray] = []
    for file in files:
        try:
            images.append(read_image_like(dataset, Path(file), image_size))
        except DataError as error:
            note(f"skipped: {error}")
            continue
        names.append(file)
        if len(names) == batch_size:
            yield names, np.stack(images)
            names, images = [], []
    if names:
        yield names, np.stack(images)


def find_images(given: Sequence[str]) -> list[str]:
    """The files: those given, and images in folders given, to any depth, in the order of their names."""
    found: list[str] = []
    for text in given:
        path = Path(text)
        if path.is_dir():
            inside = [
                str(Path(folder) / name)
                for folder, _, names in os.walk(path)
                for name in names
                if Path(name).suffix.lower() in IMAGE_SUFFIXES
            ]
            if not inside:
                raise DataError(f"--images: expected images ({', '.join(IMAGE_SUFFIXES)}) in {path}, found none")
            found += sorted(inside)
        elif path.exists():
            found.append(text)
        else:
            raise DataError(f"--images: expected a file or folder, found nothing at {path}")
    return list(dict.fromkeys(found))
