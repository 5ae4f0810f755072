"""What every reader of a dataset gives back, and the helpers that readers share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Callable, NamedTuple, TypeVar

import numpy as np

from fedmatch_tf.base.errors import DataError

Item = TypeVar("Item")
# Shows progress while something long is gone through: (items, their number, what is being done) -> the same items.
Progress = Callable[[Iterable[Item], int, str], Iterable[Item]]


def silent(items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """No progress display."""
    return items


class Raw(NamedTuple):
    """Images and labels as a file holds them."""

    x: np.ndarray  # uint8 [n, h, w] or [n, h, w, channels]; vectors float32 [n, d]
    y: np.ndarray  # int64 [n]
    origin: str
    class_names: tuple[str, ...] = ()
    num_test: int = 0  # of them, the last: a test set of their own
    published: bool | None = None  # whether its files are the published ones; None if no checksum of files is known
    skipped: tuple[str, ...] = ()  # files that could not be read and were left out


def check_complete(files: Mapping[str, object], expected: Iterable[str], what: str) -> None:
    """Raises DataError unless all files that are expected are there."""
    missing = [name for name in expected if name not in files]
    if missing:
        raise DataError(f"expected {what}; missing {', '.join(missing)}")
