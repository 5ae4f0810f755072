"""How long several runs will take: a rough estimate each, put right by what the runs that are done have taken."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedmatch_tf.base.plugins import networks
from fedmatch_tf.config import Config
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.runs.expected import passes_per_round

START_UP = 30.0  # seconds, until a run has shown otherwise: partitions, TensorFlow, the first compiled steps


def hours(config: Config) -> float | None:
    """A rough estimate for two idle cores of an AMD EPYC (Zen 5): passes over the rate of the network's rounds.

    None for a network whose cost is not known, or images that nobody has counted.
    """
    num_images, network = DATASETS[config.dataset].num_images, networks().get(config.arch)
    if num_images is None or network is None or network.gflop is None:
        return None
    size = num_images - config.num_test - config.num_valid
    share = min(size / config.num_clients, config.unlabeled_per_client or size) / config.num_steps
    gflop = network.gflop * (config.image_size / 32) ** 2
    return config.num_rounds * passes_per_round(config, share) * gflop / network.rate / 3600


def total_hours(configs: Iterable[Config]) -> float | None:
    """The estimates added up; None if one is not known."""
    each = [hours(config) for config in configs]
    return None if None in each else math.fsum(filter(None, each))


class TimeLeft:
    """Learns from every run that was done here."""

    def __init__(self) -> None:
        self._estimated = self._taken = 0.0  # seconds of rounds
        self._start_ups: list[float] = []

    def of(self, runs: Iterable[tuple[Config, int]]) -> float | None:
        """Seconds for what is left of these runs, each with the number of rounds done; None: not known yet."""
        runs = [(config, done) for config, done in runs if done < config.num_rounds]
        if not self._taken and any(hours(config) is None for config, _ in runs):
            return None
        pace = self._taken / self._estimated if self._estimated else 1.0
        start_up = math.fsum(self._start_ups) / len(self._start_ups) if self._start_ups else START_UP
        left = [_seconds(config, config.num_rounds - done) for config, done in runs]
        return math.fsum(left) * pace + start_up * len(left)

    def learn(self, config: Config, num_rounds: int, seconds: float, wall: float) -> None:
        """So many rounds of the run took these seconds; with all around them, `wall`."""
        self._estimated += _seconds(config, num_rounds)
        self._taken += seconds
        self._start_ups.append(max(wall - seconds, 0.0))


def _seconds(config: Config, num_rounds: int) -> float:
    """The estimate for so many rounds of the run; one each where nothing is known, which finished runs put right."""
    whole = hours(config)
    return num_rounds if whole is None else 3600 * whole * num_rounds / config.num_rounds
