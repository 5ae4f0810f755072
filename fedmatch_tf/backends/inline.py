"""Tasks in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fedmatch_tf.backends.failure import Failure
from fedmatch_tf.simulation.tasks import name_of


class InlineBackend:
    """One worker in this process."""

    def __init__(self, make_worker: Callable[[], Any]) -> None:
        self._worker = make_worker()

    def __enter__(self) -> InlineBackend:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results, each as soon as it is there. An exception says which task it came from."""
        for task in tasks:
            try:
                result = self._worker.run(task)
            except Exception as error:
                raise Failure.of(error).error(name_of(task)) from error
            yield result
