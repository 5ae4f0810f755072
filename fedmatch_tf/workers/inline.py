"""Tasks in this process, one after the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from fedmatch_tf.workers.failure import Failure


class InlineBackend:
    """One worker in this process.

    Args:
        environment: variables that the worker needs; they are as before when the context ends.
    """

    def __init__(self, make_worker: Callable[[], Any], environment: Mapping[str, str] = MappingProxyType({})) -> None:
        self._make_worker, self._environment = make_worker, environment
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> InlineBackend:
        self._before = {name: os.environ.get(name) for name in self._environment}
        os.environ.update(self._environment)
        try:
            self._worker = self._make_worker()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results, each as soon as it is there. An exception says which task it came from."""
        for task in tasks:
            if task is None:  # the results so far are with the caller already
                continue
            try:
                result = self._worker.run(task)
            except Exception as error:
                raise Failure.of(error).error(str(task)) from error
            yield result
