"""Confusion matrices of runs, which are untrusted files: what they tell of each class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

LONGEST_NAME = 30  # letters


class Confusion(NamedTuple):
    """How the images of each class were predicted."""

    matrix: np.ndarray  # [truth, predicted]
    class_names: list[str]

    @property
    def recall(self) -> np.ndarray:
        """Accuracy of each class: share of its images that were predicted as it; 0 where it has none."""
        return np.asarray(np.diag(self.matrix) / np.maximum(self.matrix.sum(axis=1), 1))

    @property
    def f1(self) -> np.ndarray:
        """F1 of each class; 0 where a class neither has images nor is predicted."""
        return np.asarray(2 * np.diag(self.matrix) / np.maximum(self.matrix.sum(axis=0) + self.matrix.sum(axis=1), 1))

    @property
    def only_class(self) -> str | None:
        """The class that every image is predicted as, if there is such a one."""
        predicted = np.flatnonzero(self.matrix.sum(axis=0))
        return self.class_names[predicted[0]] if len(predicted) == 1 else None


def read_confusion(content: Mapping[str, Any] | None) -> Confusion | None:
    """The content of confusion.json; None if it is anything else."""
    found = counts_by_class(content, "matrix")
    if found is None or found[0].shape[0] != found[0].shape[1] or found[0].min() < 0:
        return None
    return Confusion(*found)


def counts_by_class(content: Mapping[str, Any] | None, name: str) -> tuple[np.ndarray, list[str]] | None:
    """(counts [rows, classes] of this name, class names), or None if it is anything else."""
    content = content or {}
    names = content.get("class_names")
    try:
        values = np.array(content.get(name), dtype=int)
    except (TypeError, ValueError, OverflowError):
        return None
    if values.ndim != 2 or not isinstance(names, list) or values.shape[1] != len(names) or not values.size:
        return None
    return values, [_readable(str(each)[:LONGEST_NAME]) for each in names]


def _readable(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)
