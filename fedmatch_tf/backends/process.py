"""Tasks in worker processes: a dead, failing or hanging worker is replaced and its task runs again.

1. Every worker is a spawned process with its own environment, set before it loads anything; it ends with this process.
2. An idle worker is given a task. The next one is packed into shared memory while the workers are busy.
3. A worker that dies, raises or takes too long is killed, a new one takes its place, and the task is tried again, up to
   a limit. Workers keep nothing between tasks, so killing one loses nothing, and another computes the same result.
"""

from __future__ import annotations

import ctypes
import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import connection, resource_tracker
from typing import Any, NamedTuple

from fedmatch_tf.backends import sharing
from fedmatch_tf.backends.failure import Failure
from fedmatch_tf.tasks import TrainingError, name_of

_GRACE = 10.0  # seconds that a process which is ending may take for it
_SPAWN = multiprocessing.get_context("spawn")


class Ready(NamedTuple):
    """A worker has started."""


class Done(NamedTuple):
    """A task's result."""

    result: Any


class _Job:
    """A task on its way to a result."""

    def __init__(self, task: Any) -> None:
        self.task, self.tries = task, 0


class _Slot:
    """A worker's place: the process in it now, and what that is doing."""

    def __init__(self, number: int, environment: Mapping[str, str]) -> None:
        self.number, self.environment = number, environment
        self.process: Any = None
        self.connection: Any = None
        self.ready = False
        self.job: _Job | None = None
        self.deadline = 0.0
        self.failed_starts = 0

    @property
    def idle(self) -> bool:
        return self.ready and self.job is None


class ProcessBackend:
    """A worker process for every environment given.

    Args:
        make_worker: makes a worker, an object with `run(task)`, in its process; it is pickled to get there.
        environments: variables to set in each process before anything else is loaded there.
        timeout: seconds that a task, or a worker's start, may take.
        tries: how often a task is tried.
        note: is told of every fault.
    """

    def __init__(
        self,
        make_worker: Callable[[], Any],
        environments: Sequence[Mapping[str, str]],
        timeout: float,
        tries: int,
        note: Callable[[str], None],
    ) -> None:
        self._make_worker, self._timeout, self._tries, self._note = make_worker, timeout, tries, note
        self._slots = [_Slot(number, environment) for number, environment in enumerate(environments)]

    def __enter__(self) -> ProcessBackend:
        _allow_descriptors()
        try:
            for slot in self._slots:
                self._start(slot)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for slot in self._slots:
            _stop(slot)

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results, each as soon as it is there."""
        source, again = iter(tasks), deque[_Job]()
        packer = sharing.Packer()
        packed: tuple[_Job, list[int]] | None = None
        try:
            while True:
                packed = packed or _pack_next(again, source, packer)
                for slot in self._slots:
                    if packed is not None and slot.idle and self._hand_over(slot, *packed):
                        packed = None  # its descriptors are closed, whatever becomes of the next
                        packed = _pack_next(again, source, packer)
                if packed is None and not any(slot.job for slot in self._slots):
                    return
                for slot in self._wait():
                    answer = self._answer(slot)
                    if isinstance(answer, Done):
                        slot.job = None
                        yield answer.result
                    elif isinstance(answer, Failure):
                        again.extend(self._replace(slot, answer))
        finally:
            for slot in self._slots:
                if slot.job is not None:  # nobody waits for it any more
                    _stop(slot)
                    slot.job = None
            packer.forget()
            if packed is not None:
                sharing.close(packed[1])

    def _start(self, slot: _Slot) -> None:
        """A new process in the slot. Ctrl-C is for this process alone: the worker is born with it blocked."""
        resource_tracker.ensure_running()
        slot.connection, theirs = _SPAWN.Pipe()
        slot.process = _SPAWN.Process(
            target=_serve,
            args=(theirs, dict(slot.environment), self._make_worker),
            name=f"fedmatch-worker-{slot.number}",
            daemon=True,
        )
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            slot.process.start()
        finally:
            theirs.close()
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        slot.ready, slot.deadline = False, time.monotonic() + self._timeout

    def _hand_over(self, slot: _Slot, job: _Job, memories: Sequence[int]) -> bool:
        """Whether the worker could be given the task; if it has died meanwhile, the next wait will see that."""
        try:
            sharing.send(slot.connection, memories)
        except OSError:
            return False
        sharing.close(memories)
        slot.job, slot.deadline = job, time.monotonic() + self._timeout
        return True

    def _wait(self) -> list[_Slot]:
        """Slots with an answer, a dead process or a task that takes too long."""
        for slot in self._slots:
            if slot.process is None:
                self._start(slot)
        deadlines = [slot.deadline for slot in self._slots if not slot.idle]
        patience = max(0.0, min(deadlines) - time.monotonic()) if deadlines else None
        handles = {slot.connection: slot for slot in self._slots}
        handles.update({slot.process.sentinel: slot for slot in self._slots})
        ready = {handles[handle].number for handle in connection.wait(list(handles), patience)}
        now = time.monotonic()
        late = {slot.number for slot in self._slots if not slot.idle and slot.deadline <= now}
        return [slot for slot in self._slots if slot.number in ready | late]

    def _answer(self, slot: _Slot) -> Done | Failure | None:
        """What the worker said, or what has become of it."""
        if connection.wait([slot.process.sentinel], 0):
            slot.process.join(_GRACE)  # it is ending; what it has said is in the pipe
        if not slot.connection.poll():
            return Failure("TimeoutError", f"no answer for {self._timeout:g} seconds (--task-timeout)", "")
        try:
            answer = sharing.receive(slot.connection)
        except (EOFError, OSError):
            slot.process.join(_GRACE)
            return Failure("WorkerDied", _cause_of_death(slot.process.exitcode), "")
        if isinstance(answer, Ready):
            slot.ready, slot.failed_starts = True, 0
            return None
        return answer  # type: ignore[no-any-return]

    def _replace(self, slot: _Slot, failure: Failure) -> list[_Job]:
        """Kills the worker, and says which job is to run again; raises if there is no sense in that."""
        job, was_ready = slot.job, slot.ready
        _stop(slot)
        slot.job = None
        where = name_of(job.task) if job else f"start of worker {slot.number}"
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


def _pack_next(again: deque[_Job], source: Iterator[Any], packer: sharing.Packer) -> tuple[_Job, list[int]] | None:
    """The next job and its task in shared memory: one that has failed before the new ones."""
    if again:
        job = again.popleft()
    else:
        try:
            job = _Job(next(source))
        except StopIteration:
            return None
    return job, packer.pack(job.task)


def _allow_descriptors() -> None:
    """As many as the system lets us have: every large array that came from a worker holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _stop(slot: _Slot) -> None:
    """Ends the slot's process. It has nothing to put in order, so it is killed."""
    if slot.process is not None and slot.process.pid is not None:
        slot.process.kill()
        slot.process.join(_GRACE)  # the system ends it as soon as it can
    if slot.connection is not None:
        slot.connection.close()
    slot.process, slot.connection, slot.ready = None, None, False


def _cause_of_death(exit_code: int | None) -> str:
    if exit_code is None:
        return "closed its pipe"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    name = signal.Signals(-exit_code).name
    return f"was killed by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")


def _serve(pipe: connection.Connection, environment: Mapping[str, str], make_worker: Callable[[], Any]) -> None:
    """A worker's life: start, then a result for every task, until the pipe ends."""
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.enable()
    _end_with_parent()
    try:
        worker = make_worker()
    except Exception as error:
        _say(pipe, Failure.of(error))
        return
    _say(pipe, Ready())
    while True:
        try:
            task = sharing.receive(pipe)
        except EOFError:
            return
        try:
            answer: Any = Done(worker.run(task))
        except Exception as error:
            answer = Failure.of(error)
        _say(pipe, answer)


def _say(pipe: connection.Connection, answer: Any) -> None:
    packer = sharing.Packer()
    memories = packer.pack(answer)
    packer.forget()
    sharing.send(pipe, memories)
    sharing.close(memories)


def _end_with_parent() -> None:
    """Whatever this worker is doing, even if it is stopped or stuck, it ends when its parent does."""
    parent = multiprocessing.parent_process()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None:  # elsewhere, and if the parent has died before that call
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


_PR_SET_PDEATHSIG = 1  # from Linux' sys/prctl.h
