"""Tasks in this process, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any

from fedmatch_tf.workers.environment import variables
from fedmatch_tf.workers.failure import RAISED, Failure


class InlineBackend:
    """One worker in this process.

    Args:
        environment: variables that the worker needs; they are as before when the context ends.
    """

    def __init__(self, make_worker: Callable[[], Any], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._make_worker, self._environment = make_worker, environment

    def __enter__(self) -> InlineBackend:
        with ExitStack() as stack:
            stack.enter_context(variables(self._environment))
            self._worker = self._make_worker()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stack.close()

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results, each as soon as it is there. An exception says which task it came from."""
        for task in tasks:
            if task is None:  # the results so far are with the caller already
                continue
            try:
                result = self._worker.run(task)
            except RAISED as error:
                raise Failure.of(error).error(str(task)) from error
            yield result
