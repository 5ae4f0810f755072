"""Progress of long work: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, Callable

LINE_EVERY_SECONDS = 5.0


def progress_for(quiet: bool) -> Callable[[Iterable[Any], int, str], Iterable[Any]]:
    """A function (items, their number or 0 if unknown, what is done) -> the same items, shown on stderr."""
    if quiet:
        return lambda items, total, what: items
    return _bar if sys.stderr.isatty() else _lines


def _bar(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn()]
    if total:
        columns.insert(2, MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield from progress.track(items, total=total or None, description=what)


def _lines(items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
    print(f"{what} ...", file=sys.stderr, flush=True)
    shown = time.monotonic()
    for done, item in enumerate(items):
        if total and time.monotonic() - shown > LINE_EVERY_SECONDS:
            print(f"{what}: {done} of {total}", file=sys.stderr, flush=True)
            shown = time.monotonic()
        yield item
