"""Tasks to workers that may die, fail or hang: what every backend with workers of its own does the same way.

An idle worker is given a task; the next one is packed while the workers are busy. A worker that dies, raises or takes
too long is replaced, and its task is tried again, up to a limit, by whoever is idle. Workers keep nothing between
tasks, so losing one loses nothing, and another computes the same result.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from fedmatch_tf.federation.tasks import TrainingError
from fedmatch_tf.workers.failure import Failure


class Ready(NamedTuple):
    """A worker has started."""


class Done(NamedTuple):
    """A task's result."""

    result: Any


@dataclass(eq=False)
class Job:
    """A task on its way to a result."""

    task: Any
    tries: int = 0


@dataclass(eq=False)
class Slot:
    """A worker's place, and what the worker that is in it now is doing."""

    number: int
    ready: bool = False
    job: Job | None = None
    deadline: float = 0.0
    failed_starts: int = 0

    @property
    def idle(self) -> bool:
        """Whether it can be given a task."""
        return self.ready and self.job is None


S = TypeVar("S", bound=Slot)
_NO_MORE = object()  # instead of a task


class Pool(ABC, Generic[S]):
    """Maps tasks to results; those who inherit know what a worker is.

    Args:
        slots: one for each worker.
        packer: `pack(task)` makes what a worker is given, `drop(packed)` says that nobody will be given it, `forget()`
            lets go of what was kept from one task to the next.
        tries: how often a task, or a worker's start, is tried.
        note: is told of every fault.
    """

    def __init__(self, slots: Sequence[S], packer: Any, tries: int, note: Callable[[str], None]) -> None:
        self._slots, self._packer, self._tries, self._note = slots, packer, tries, note

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results, each as soon as it is there."""
        source, again = iter(tasks), deque[Job]()
        packed: tuple[Job, Any] | None = None
        try:
            while True:
                packed = packed or self._pack_next(again, source)
                for slot in self._slots:
                    if packed is not None and slot.idle and self._give(slot, packed[1]):
                        slot.job, packed = packed[0], None  # it is the worker's, whatever becomes of the next
                        packed = self._pack_next(again, source)
                if packed is None and not any(slot.job for slot in self._slots):
                    return
                for slot, answer in self._answers():
                    if isinstance(answer, Done):
                        slot.job = None
                        if packed is not None and self._give(slot, packed[1]):  # before the result is worked on
                            slot.job, packed = packed[0], None
                        yield answer.result
                    elif isinstance(answer, Failure):
                        again.extend(self._replace(slot, answer))
                    else:
                        slot.ready, slot.failed_starts = True, 0
        finally:
            for slot in self._slots:
                if slot.job is not None:  # nobody waits for it any more
                    self._stop(slot)
                    slot.job = None
            if packed is not None:
                self._packer.drop(packed[1])
            self._packer.forget()

    def _pack_next(self, again: deque[Job], source: Iterator[Any]) -> tuple[Job, Any] | None:
        """The next job, ready to be given, one that has failed before the new ones; None if there is none now."""
        if again:
            job = again.popleft()
        else:
            task = next(source, _NO_MORE)
            if task is None and not any(slot.job for slot in self._slots):  # there is no result to wait for
                task = next(source, _NO_MORE)
            if task is None or task is _NO_MORE:
                return None
            job = Job(task)
        return job, self._packer.pack(job.task)

    def _replace(self, slot: S, failure: Failure) -> list[Job]:
        """Ends the worker, and says which job is to run again; raises if there is no sense in that."""
        job, was_ready = slot.job, slot.ready
        self._stop(slot)
        slot.job = None
        where = str(job.task) if job else f"start of worker {slot.number}"
        if failure.final:
            raise failure.error(where)
        if job is None and was_ready:
            self._note(f"Worker {slot.number} {failure.text} between two tasks; a new one takes its place")
            return []
        if job is None:
            slot.failed_starts += 1
        else:
            job.tries += 1
        tries = job.tries if job else slot.failed_starts
        if tries >= self._tries:
            error = failure.error(where)
            raise TrainingError(f"{error}\n{where} failed {tries} times (--task-tries)")
        self._note(f"{where}: {failure.describe()}; trying again in a new worker ({tries} of {self._tries} tries)")
        if failure.trace:
            self._note(failure.trace.rstrip())
        return [job] if job else []

    @abstractmethod
    def _give(self, slot: S, packed: Any) -> bool:
        """Whether the worker could be given it; if it has died meanwhile, its answer will say that."""

    @abstractmethod
    def _answers(self) -> Iterable[tuple[S, Done | Ready | Failure]]:
        """Waits; then what workers said, or what has become of them."""

    @abstractmethod
    def _stop(self, slot: S) -> None:
        """Ends the slot's worker, whatever it is doing; another takes its place when it is needed."""
