"""Progress of long work: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from logging import INFO, WARNING, Logger
from typing import Any, Callable

from fedmatch_tf.config import Config

# (items, their number or 0 if unknown, what is done) -> the same items, shown as they go by
Progress = Callable[[Iterable[Any], int, str], Iterable[Any]]

LINE_EVERY_SECONDS = 5.0
WHAT_HELPS = "What helps: more rounds (--num-rounds), another learning rate (--lr), more labels"


def progress_for(quiet: bool) -> Progress:
    """Shows progress on stderr."""
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


class RoundDisplay:
    """The rounds of a run as they end, on stderr: a live table in a terminal, one line per round elsewhere."""

    def __init__(
        self, config: Config, quiet: bool, lines: Sequence[Mapping[str, Any]] = (), logger: Logger | None = None
    ) -> None:
        """`lines`: of the rounds that are done already, when a run goes on. `logger`: gets remarks, not stderr."""
        self._config, self._quiet, self._logger = config, quiet, logger
        self._begin, self._before = time.monotonic(), len(lines)
        self._best = max((line["test_acc"] for line in lines), default=0.0)
        self._rows: list[list[str]] = []
        self._shown = self._begin
        self._live: Any = None

    def __enter__(self) -> RoundDisplay:
        self._begin = self._shown = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(get_renderable=self._table, console=Console(stderr=True), refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def show(self, line: Mapping[str, Any]) -> None:
        """A round's object of rounds.jsonl."""
        self._best = max(self._best, line["test_acc"])
        local = line["local_test_acc"]
        cells = {
            "round": f"{line['round'] + 1}/{self._config.num_rounds}",
            "test acc": f"{100 * line['test_acc']:5.2f} %",
            "best": f"{100 * self._best:5.2f}",
            "local": "-" if local is None else f"{100 * local:.2f}",
            "S2C": f"{line['s2c']['sum']:.3f}",
            "C2S": f"{line['c2s']['sum']:.3f}",
            "confident": f"{100 * line['confident']:3.0f} %",
            "lost": f"{len(line['dropped'])} of {len(line['clients'])}" if line.get("dropped") else "-",
            "time": f"{line['seconds']:.1f} s",
            "left": self._left(line["round"] + 1),
        }
        self._shown = time.monotonic()
        self._rows = [*self._rows[-(ROWS - 1) :], [value for name, value in cells.items() if name != "lost"]]
        if self._live is None and not self._quiet:
            _say("  ".join(f"{name} {value}" for name, value in cells.items() if value != "-"))

    def _left(self, done: int) -> str:
        each = (time.monotonic() - self._begin) / (done - self._before)
        return duration(each * (self._config.num_rounds - done))

    def _table(self) -> Any:
        """The last rounds, and how long the present one has been going on."""
        from rich.table import Table

        config = self._config
        table = Table(title=f"{config.task} {config.model}", title_justify="left", box=None, pad_edge=False)
        for name in ("round", "acc", "best", "local", "S2C", "C2S", "conf.", "time", "left"):
            table.add_column(name, justify="right", no_wrap=True)
        for row in self._rows:
            table.add_row(*row)
        done = int(self._rows[-1][0].split("/")[0]) if self._rows else self._before
        if done < config.num_rounds:
            running = duration(time.monotonic() - self._shown)
            table.add_row(f"{done + 1}/{config.num_rounds}", *["..."] * 6, running, "", style="dim")
        return table

    def note(self, text: str, level: int = INFO) -> None:
        """A remark between the rounds."""
        if self._logger is not None:
            self._logger.log(level, text)
        elif self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            _say(text)

    def warn(self, text: str) -> None:
        """A fault that the run survives."""
        self.note(text, WARNING)


ROWS = 12  # rounds that the live table shows


def _say(text: str) -> None:
    """A line on stderr; a reader who has gone away doesn't end a run."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """1:02:03, or 2:03 if less than an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
