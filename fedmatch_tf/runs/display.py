"""Progress of long work: a bar in a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from logging import INFO, WARNING, Logger
from typing import Any, Callable

from fedmatch_tf.base.errors import printable
from fedmatch_tf.config import Config
from fedmatch_tf.federation.records import RoundRecord
from fedmatch_tf.federation.server import task_step
from fedmatch_tf.runs.records import Sink

# (items, their number or 0 if unknown, what is done) -> the same items, shown as they go by
Progress = Callable[[Iterable[Any], int, str], Iterable[Any]]

LINE_EVERY_SECONDS = 5.0
CLIENTS_EVERY_SECONDS = 10.0  # at least between two lines on the clients of a round
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


class RoundDisplay(Sink):
    """The rounds of a run as they end, on stderr: a live table in a terminal, one line per round elsewhere."""

    def __init__(
        self, config: Config, quiet: bool, records: Sequence[RoundRecord] = (), logger: Logger | None = None
    ) -> None:
        """`records`: of the rounds that are done already, when a run goes on. `logger`: gets remarks, not stderr."""
        self._config, self._quiet, self._logger = config, quiet, logger
        self._begin, self._before = time.monotonic(), len(records)
        self._accuracies = [record.test_acc for record in records]
        self._class_shares: Mapping[str, float] = {}
        self._said_one_class = False
        self._clients_done = 0
        self._rows: list[dict[str, str]] = []
        self._shown = self._said = self._begin
        self._tenths = 0  # of the present round's clients, when they were last told of; `_said` is when that was
        self._first_done = 0.0  # when the first round of this sitting ended
        self._live: Any = None

    def know_classes(self, shares: Mapping[str, float]) -> None:
        """Takes in each class's share of the test data: what a model reaches that knows no other."""
        self._class_shares = shares

    def __enter__(self) -> RoundDisplay:
        self._begin = self._shown = self._said = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(get_renderable=self._table, console=Console(stderr=True), refresh_per_second=2)
            self._live.start()
        return self

    def close(self, failed: bool) -> None:
        """The table stays as it is."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def client_done(self) -> None:
        """A client of the present round has been trained."""
        self._clients_done += 1
        if self._live is not None or self._quiet or self._clients_done >= self._config.clients_per_round:
            return
        now, tenths = time.monotonic(), 10 * self._clients_done // self._config.clients_per_round
        if tenths > self._tenths and now - self._said >= CLIENTS_EVERY_SECONDS:
            self._tenths, self._said = tenths, now
            number = len(self._accuracies) + 1
            _say(
                f"round {number}/{self._config.num_rounds}: {self._clients_done} of {self._config.clients_per_round} "
                f"clients, {duration(now - self._shown)}"
            )

    def on_round(self, record: RoundRecord) -> None:
        """Shows the round."""
        self._accuracies.append(record.test_acc)
        self._shown, self._clients_done, self._tenths = time.monotonic(), 0, 0
        self._said = self._shown
        self._first_done = self._first_done or self._shown
        config, local, done = self._config, record.local_test_acc, record.round + 1
        left = config.num_rounds - done
        cells = {
            "round": f"{done}/{config.num_rounds}",
            "step": f"{record.task_step + 1}/{config.num_steps}" if config.num_steps > 1 else "-",
            "test acc": f"{100 * record.test_acc:5.2f} %",
            "highest": f"{100 * max(self._accuracies):5.2f} %",
            "local": "-" if local is None else f"{100 * local:.2f} %",
            "S2C": f"{100 * record.s2c.sum:3.0f} %",
            "C2S": f"{100 * record.c2s.sum:3.0f} %",
            "confident": f"{100 * record.confident:3.0f} %",
            "lost": f"{len(record.dropped)} of {len(record.clients)}" if record.dropped else "-",
            "time": f"{record.seconds:.1f} s",
            "left": duration(self._seconds_per_round(done) * left),
        }
        self._rows = [*self._rows[-(ROWS - 1) :], cells]
        if self._live is None and not self._quiet:
            _say("  ".join(f"{name} {value}" for name, value in cells.items() if value != "-"))
        self._note_one_class()

    def _note_one_class(self) -> None:
        """Says it once if every accuracy of the last rounds was the share of a class in the test data."""
        last = self._accuracies[-SAME_ROUNDS:]
        shares = self._class_shares.values()
        if self._said_one_class or len(last) < SAME_ROUNDS:
            return
        if all(any(abs(share - accuracy) < 1e-6 for share in shares) for accuracy in last):
            self._said_one_class = True
            told = ", ".join(f"{100 * accuracy:.2f}" for accuracy in last)
            self.note(
                f"note: the last test accuracies ({told} %) are shares of single classes in the test data: the model "
                f"seems to predict one class for nearly every image. {WHAT_HELPS}"
            )

    def _seconds_per_round(self, done: int) -> float:
        """Of the rounds of this sitting; the first one, which compiles the steps, counts only if it is alone."""
        if done == self._before + 1:
            return self._shown - self._begin
        return (self._shown - self._first_done) / (done - self._before - 1)

    def _table(self) -> Any:
        """The last rounds, and how far the present one has got."""
        from rich.table import Table

        config = self._config
        title = f"{config.task} {config.model}, {config.clients_per_round} of {config.num_clients} clients per round"
        table = Table(title=title, title_justify="left", box=None, pad_edge=False)
        table.caption, table.caption_justify = CAPTION, "left"
        left_out = {"lost"} | ({"step"} if config.num_steps == 1 else set())
        names = [name for name in COLUMNS if name not in left_out]
        for name in names:
            table.add_column(ABBREVIATED.get(name, name), justify="right", no_wrap=True)
        for row in self._rows:
            table.add_row(*(row[name] for name in names))
        done = int(self._rows[-1]["round"].split("/")[0]) if self._rows else self._before
        if done < config.num_rounds:
            clients = f"{min(self._clients_done, config.clients_per_round)}/{config.clients_per_round} clients"
            running = {"round": f"{done + 1}/{config.num_rounds}", "test acc": clients}
            running["step"] = f"{task_step(config, done) + 1}/{config.num_steps}"
            running["time"] = duration(time.monotonic() - self._shown)
            table.add_row(*(running.get(name, "...") for name in names[:-1]), "", style="dim")
        return table

    def note(self, text: str, level: int = INFO) -> None:
        """A remark between the rounds."""
        text = printable(text)
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
SAME_ROUNDS = 3  # in which an accuracy is a class's share, before that is called odd
COLUMNS = ("round", "step", "test acc", "highest", "local", "S2C", "C2S", "confident", "lost", "time", "left")
ABBREVIATED = {"test acc": "test acc.", "confident": "conf."}  # in the live table
CAPTION = "highest: of all rounds, chosen on test data; S2C, C2S: % of one parameter set"


def _say(text: str) -> None:
    """A line on stderr; a reader who has gone away doesn't end a run."""
    with suppress(BrokenPipeError):
        print(text, file=sys.stderr, flush=True)


def duration(seconds: float) -> str:
    """1:02:03, or 2:03 if less than an hour."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def in_words(seconds: float) -> str:
    """4 h 20 min, 25 min or 40 s."""
    minutes = round(seconds / 60)
    if minutes < 2:
        return f"{round(seconds)} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
