"""Tasks in worker processes of this machine.

Every worker is a spawned process with its own environment, set before it loads anything; it ends with this process.
Tasks and results go through shared memory. A worker that is to be replaced is killed, and another one spawned.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import connection, resource_tracker
from typing import Any

from fedmatch_tf.base import signals, temporary
from fedmatch_tf.workers import sharing
from fedmatch_tf.workers.environment import keep_memory
from fedmatch_tf.workers.failure import RAISED, Failure
from fedmatch_tf.workers.pool import Done, Pool, Ready, Slot

_LONGEST_WAIT = 3600.0  # seconds in one go: the system can't wait for weeks, but it can be asked again
_GRACE = 10.0  # seconds that a process which is ending may take for it
_SPAWN = multiprocessing.get_context("spawn")


@dataclass(eq=False)
class _Slot(Slot):
    """A place with a process in it."""

    environment: Mapping[str, str] = field(default_factory=dict)
    process: Any = None
    connection: Any = None


class ProcessBackend(Pool[_Slot]):
    """A worker process for every environment given.

    Args:
        make_worker: makes a worker, an object with `run(task)`, in its process; it is pickled to get there.
        environments: variables to set in each process before anything else is loaded there.
        timeout: seconds that a task, or a worker's start, may take.
    """

    def __init__(
        self,
        make_worker: Callable[[], Any],
        environments: Sequence[Mapping[str, str]],
        timeout: float,
        tries: int,
        note: Callable[[str], None],
    ) -> None:
        slots = [_Slot(number, environment=given) for number, given in enumerate(environments)]
        super().__init__(slots, sharing.Packer(), tries, note)
        self._make_worker, self._timeout, self._receiver = make_worker, timeout, sharing.Receiver()
        self._temporary, self._stack = "", ExitStack()

    def __enter__(self) -> ProcessBackend:
        _allow_descriptors()
        self._temporary = self._stack.enter_context(temporary.new_folder())
        try:
            for slot in self._slots:
                self._start(slot)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: Any) -> None:
        for slot in self._slots:
            self._stop(slot)
        self._stack.close()

    def _start(self, slot: _Slot) -> None:
        """A new process in the slot."""
        environment = {**slot.environment, "TMPDIR": self._temporary}  # TensorFlow's files, which it can't remove
        name = f"fedmatch-worker-{slot.number}"
        slot.process, slot.connection = spawn(_serve, environment, self._make_worker, name=name, daemon=True)
        slot.ready, slot.deadline = False, time.monotonic() + self._timeout

    def _give(self, slot: _Slot, packed: list[sharing.Part]) -> bool:
        try:
            sharing.send(slot.connection, packed)
        except OSError:
            return False
        slot.deadline = time.monotonic() + self._timeout
        return True

    def _answers(self) -> Iterator[tuple[_Slot, Done | Ready | Failure]]:
        for slot in self._wait():
            yield slot, self._answer(slot)

    def _wait(self) -> list[_Slot]:
        """Slots with an answer, a dead process or a task that takes too long."""
        for slot in self._slots:
            if slot.process is None:
                self._start(slot)
        deadlines = [slot.deadline for slot in self._slots if not slot.idle]
        patience = min(_LONGEST_WAIT, max(0.0, min(deadlines) - time.monotonic())) if deadlines else None
        handles = {slot.connection: slot for slot in self._slots}
        handles.update({slot.process.sentinel: slot for slot in self._slots})
        ready = {handles[handle].number for handle in connection.wait(list(handles), patience)}
        now = time.monotonic()
        late = {slot.number for slot in self._slots if not slot.idle and slot.deadline <= now}
        return [slot for slot in self._slots if slot.number in ready | late]

    def _answer(self, slot: _Slot) -> Done | Ready | Failure:
        """What the worker said, or what has become of it."""
        if connection.wait([slot.process.sentinel], 0):
            slot.process.join(_GRACE)  # it is ending; what it has said is in the pipe
        if not slot.connection.poll():
            return Failure("TimeoutError", f"no answer for {self._timeout:g} seconds (--task-timeout)", "")
        try:
            return self._receiver.receive(slot.connection)  # type: ignore[no-any-return]
        except (EOFError, OSError):
            slot.process.join(_GRACE)
            return Failure("WorkerDied", _cause_of_death(slot.process.exitcode), "")

    def _stop(self, slot: _Slot) -> None:
        """It has nothing to put in order, so it is killed."""
        if slot.process is not None and slot.process.pid is not None:
            slot.process.kill()
            slot.process.join(_GRACE)  # the system ends it as soon as it can
            self._packer.renew()
        if slot.connection is not None:
            slot.connection.close()
        slot.process, slot.connection, slot.ready = None, None, False


def spawn(target: Callable[..., None], *arguments: Any, name: str, daemon: bool = False) -> tuple[Any, Any]:
    """(a new process, our end of a pipe to it); its target is called with the other end and these arguments.

    Ctrl-C is for this process alone: the new one is born with it blocked.
    """
    resource_tracker.ensure_running()
    ours, theirs = _SPAWN.Pipe()
    process = _SPAWN.Process(target=target, args=(theirs, *arguments), name=name, daemon=daemon)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with signals.delayed():  # one that is half started would complain
            process.start()
    except BaseException:
        if process.pid is not None:
            process.kill()
            process.join(_GRACE)
        raise
    finally:
        theirs.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
    return process, ours


def _allow_descriptors() -> None:
    """As many as the system lets us have: every large array that came from a worker holds one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


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
    keep_memory()
    end_with_parent()
    packer, receiver = sharing.Packer(), sharing.Receiver()

    def say(answer: Any) -> None:
        try:
            packed = packer.pack(answer)
        except (MemoryError, OSError) as error:  # no room for it; there is for a few words
            packed = packer.pack(Failure.of(error))
        sharing.send(pipe, packed)
        packer.forget()

    try:
        worker = make_worker()
    except RAISED as error:
        say(Failure.of(error))
        return
    say(Ready())
    task: Any = None
    while True:
        answer: Any = None  # so that it is gone when another task comes
        try:
            try:
                task = receiver.receive(pipe)
            except EOFError:
                return
            answer = Done(worker.run(task))
        except RAISED as error:
            answer = Failure.of(error)
        task = None
        say(answer)


def end_with_parent() -> None:
    """Whatever this process is doing, even if it is stopped or stuck, it ends when its parent does."""
    parent = multiprocessing.parent_process()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None:  # elsewhere, and if the parent has died before that call
        threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: Any) -> None:
    parent.join()
    os._exit(1)


_PR_SET_PDEATHSIG = 1  # from Linux' sys/prctl.h
