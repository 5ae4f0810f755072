"""How long several runs will take: a rough estimate each, put right by what the runs that are done have taken."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedmatch_tf.config import Config
from fedmatch_tf.config.models import learner_of
from fedmatch_tf.federation.scoring import clients_test

GFLOP = {"resnet9": 0.76, "alexnet": 0.76 / 16, "wrn28_2": 0.42, "resnet8": 0.39}  # forward, one 32x32 image
TRAINING = 3.0  # a training pass over a forward pass
RATE = 215.0  # GFLOP per second that rounds reach on two cores of an AMD EPYC
DATASET_SIZES = {
    "c10": 60000,
    "c100": 60000,
    "svhn": 99289,
    "cinic10": 270000,
    "fmnist": 70000,
    "covid": 2905,
    "digits": 1797,
}
START_UP = 30.0  # seconds, until a run has shown otherwise: partitions, TensorFlow, the first compiled steps


def hours(config: Config) -> float:
    """A rough estimate for two cores: arithmetic of training and evaluation over a measured rate."""
    size = DATASET_SIZES.get(config.dataset, 10000) - config.num_test - config.num_valid
    share = min(size / config.num_clients, config.unlabeled_per_client or size) / config.num_steps
    tests = config.num_valid + (config.num_test if clients_test(config) else 0)
    client = TRAINING * share * learner_of(config.model).passes * config.num_epochs_client + tests
    server = TRAINING * 10 * config.labels_per_class if config.scenario == "ls" else 0.0
    images = config.num_rounds * (config.clients_per_round * client + server + config.num_test)
    return images * GFLOP.get(config.arch, GFLOP["resnet9"]) * (config.image_size / 32) ** 2 / RATE / 3600


class TimeLeft:
    """Learns from every run that was done here."""

    def __init__(self) -> None:
        self._estimated = self._taken = 0.0  # seconds of rounds
        self._start_ups: list[float] = []

    def of(self, runs: Iterable[tuple[Config, int]]) -> float:
        """Seconds for what is left of these runs, each with the number of rounds that are done."""
        pace = self._taken / self._estimated if self._estimated else 1.0
        start_up = math.fsum(self._start_ups) / len(self._start_ups) if self._start_ups else START_UP
        left = [_seconds(config, config.num_rounds - done) for config, done in runs if done < config.num_rounds]
        return math.fsum(left) * pace + start_up * len(left)

    def learn(self, config: Config, num_rounds: int, seconds: float, wall: float) -> None:
        """So many rounds of the run took these seconds; with all around them, `wall`."""
        self._estimated += _seconds(config, num_rounds)
        self._taken += seconds
        self._start_ups.append(max(wall - seconds, 0.0))


def _seconds(config: Config, num_rounds: int) -> float:
    """The estimate for so many rounds of the run."""
    return 3600 * hours(config) * num_rounds / config.num_rounds
