"""Progress of long work: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Callable

from fedmatch_tf.config import Config

# (items, their number or 0 if unknown, what is done) -> the same items, shown as they go by
Progress = Callable[[Iterable[Any], int, str], Iterable[Any]]

LINE_EVERY_SECONDS = 5.0


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
    """The rounds of a run as they end, on stderr: one live line in a terminal, a line a round elsewhere."""

    def __init__(self, config: Config, quiet: bool, lines: Sequence[Mapping[str, Any]] = ()) -> None:
        """`lines`: of the rounds that are done already, when a run goes on."""
        self._total, self._quiet = config.num_rounds, quiet
        self._begin, self._before = time.monotonic(), len(lines)
        self._best = max((line["test_acc"] for line in lines), default=0.0)
        self._live: Any = None

    def __enter__(self) -> RoundDisplay:
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = [TextColumn("{task.description}"), BarColumn(bar_width=20), TextColumn("{task.fields[left]}")]
            self._live = Progress(*columns, console=Console(stderr=True))
            first = f"round {self._before + 1}"
            self._task = self._live.add_task(first, total=self._total, completed=self._before, left="")
            self._live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, line: Mapping[str, Any]) -> None:
        """A round's object of rounds.jsonl."""
        done = line["round"] + 1
        self._best = max(self._best, line["test_acc"])
        text = (
            f"round {done}/{self._total}  test acc {100 * line['test_acc']:5.2f} % (best {100 * self._best:5.2f})  "
            f"S2C {line['s2c']['sum']:.3f}  C2S {line['c2s']['sum']:.3f}  confident {100 * line['confident']:3.0f} %"
        )
        each = (time.monotonic() - self._begin) / (done - self._before)
        left = f"{duration(each * (self._total - done))} left"
        if self._live is not None:
            self._live.update(self._task, completed=done, description=text, left=left)
        elif not self._quiet:
            _say(f"{text}  {line['seconds']:.1f} s  {left}")

    def note(self, text: str) -> None:
        """A remark between the rounds."""
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            _say(text)


def _say(text: str) -> None:
    """A line on stderr; a reader who has gone away doesn't end a run."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """1:02:03, or 2:03 if less than an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def summary(lines: Sequence[Mapping[str, Any]], config: Config) -> str:
    """The result of a run as a small table."""
    best = max(lines, key=lambda line: line["test_acc"])
    mean = {way: sum(line[way]["sum"] for line in lines) / len(lines) for way in ("s2c", "c2s")}
    megabytes = {way: sum(line[way]["bytes"] for line in lines) / len(lines) / 1e6 for way in ("s2c", "c2s")}
    rows = [
        ("task, model", f"{config.task}, {config.model} ({config.arch}, profile {config.profile}, seed {config.seed})"),
        ("rounds", f"{len(lines)} of {config.clients_per_round} of {config.num_clients} clients"),
        ("test accuracy", f"{100 * lines[-1]['test_acc']:.2f} % at the end, best {100 * best['test_acc']:.2f} % "
                          f"in round {best['round'] + 1}"),
        ("cost to a client", f"{100 * mean['s2c']:.0f} % of one parameter set a round, {megabytes['s2c']:.1f} MB"),
        ("cost from a client", f"{100 * mean['c2s']:.0f} %, {megabytes['c2s']:.1f} MB"),
        ("time", f"{duration(sum(line['seconds'] for line in lines))}"),
    ]  # fmt: skip
    return "\n".join(f"  {name:<19} {value}" for name, value in rows)
