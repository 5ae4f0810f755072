"""How long several runs will take: a rough estimate each, put right by what the runs that are done have taken."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from fedmatch_tf.config import Config
from fedmatch_tf.results.experiments import hours
from fedmatch_tf.results.results import FINISHED, Result

START_UP = 30.0  # seconds, until a run has shown otherwise: partitions, TensorFlow, the first compiled steps


class TimeLeft:
    """Learns from every run that was done here."""

    def __init__(self) -> None:
        self._estimated = self._taken = 0.0  # seconds of rounds
        self._start_ups: list[float] = []

    def of(self, runs: Iterable[tuple[Config, Result | None]]) -> float:
        """Seconds for what is left of these runs, each with what there is of it."""
        pace = self._taken / self._estimated if self._estimated else 1.0
        start_up = sum(self._start_ups) / len(self._start_ups) if self._start_ups else START_UP
        left = [self._share_left(config, result) * 3600 * hours(config) for config, result in runs if not _done(result)]
        return math.fsum(left) * pace + start_up * len(left)

    @contextmanager
    def measuring(self, config: Config, before: Result | None) -> Iterator[list[Result]]:
        """While a run is done; what became of it is put into the list."""
        begin, after = time.monotonic(), list[Result]()
        yield after
        lines = after[0].lines[len(before.lines) if before else 0 :]
        if lines:
            self.learn(config, len(lines), math.fsum(line["seconds"] for line in lines), time.monotonic() - begin)

    def learn(self, config: Config, num_rounds: int, seconds: float, wall: float) -> None:
        """So many rounds of the run took these seconds; with all around them, `wall`."""
        self._estimated += 3600 * hours(config) * num_rounds / config.num_rounds
        self._taken += seconds
        self._start_ups.append(max(wall - seconds, 0.0))

    @staticmethod
    def _share_left(config: Config, result: Result | None) -> float:
        return 1.0 - (len(result.lines) if result else 0) / config.num_rounds


def _done(result: Result | None) -> bool:
    return result is not None and result.state == FINISHED
