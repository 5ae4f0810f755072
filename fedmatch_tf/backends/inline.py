"""Tasks in this process, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fedmatch_tf.config import Config
from fedmatch_tf.environment import prepare


class InlineBackend:
    """One worker in this process."""

    def __init__(self, config: Config) -> None:
        prepare(config.threads_per_worker)
        from fedmatch_tf.worker import Worker

        self._worker = Worker(config)

    def map(self, tasks: Sequence[Any]) -> Iterable[Any]:
        """The results, each as soon as it is there."""
        return (self._worker.run(task) for task in tasks)
