"""Tasks in actors of a Ray cluster (cluster.py).

Ray places the actors, one for each GPU or so many CPUs, where there is room; and it carries the weights: an array that
several tasks need is stored once and reaches a node once. Another actor takes the place of one that died, and the task
is not left to wait for that, as there may be no room: whoever is idle takes it (pool.py).
"""

from __future__ import annotations

import os
import pickle
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayActorError, RayError

from fedmatch_tf.base import temporary, untrusted
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.data.loader import open_partitions
from fedmatch_tf.federation.tasks import TrainingError
from fedmatch_tf.workers import cluster, sharing
from fedmatch_tf.workers.environment import worker_variables
from fedmatch_tf.workers.failure import RAISED, Failure
from fedmatch_tf.workers.pool import Done, Pool, Ready, Slot

MakeWorker = Callable[..., Any]
_CARRIED = ("TF_", "XLA_", "FEDMATCH_")  # variables of the command that its workers have, wherever they are
_SLICE = 0.2  # seconds to wait in one go: Ctrl-C is heard in between
_NOTICE = 30.0  # seconds without a worker before the user is told why nothing happens


def num_workers(config: Config) -> int:
    """How many workers the cluster that is running has room for, as far as the run has use for them."""
    threads = config.threads_per_worker or 1
    with cluster.connected(config):
        room = cluster.room(threads, cluster.workers_per_gpu(config))
        cpus = [int(node.get("CPU", 0)) for node in cluster.resources()]
    if not room:
        raise ConfigError(
            f"--threads-per-worker: expected a GPU, or no more threads than a node has CPUs; {threads} are wanted (if "
            f"not given: this machine's cores / clients per round), the nodes have {', '.join(map(str, cpus))} CPUs"
        )
    return min(room, config.clients_per_round)


class RayBackend(Pool["_Slot"]):
    """Actors with workers in them, as many as the config says.

    Args:
        worker: makes a worker from a config, in the actor's process; given the partitions if those are shipped.
    """

    def __init__(self, config: Config, worker: MakeWorker, note: Callable[[str], None]) -> None:
        super().__init__([_Slot(number) for number in range(config.workers or 1)], _Packer(), config.task_tries, note)
        self._config, self._worker = config, worker
        self._connection = ExitStack()
        self._folder = ""  # on every node
        self._cut_off = False
        self._actors: Any = None  # makes an actor
        self._make: Callable[[], Any] | None = None  # holds what is shipped
        self._no_room_since: float | None = None

    def __enter__(self) -> RayBackend:
        with ExitStack() as stack:
            self._folder = stack.enter_context(cluster.connected(self._config))
            on_gpus = bool(ray.cluster_resources().get("GPU"))
            threads, sharing_gpu = self._config.threads_per_worker or 1, cluster.workers_per_gpu(self._config)
            needs = {"num_cpus": 0, "num_gpus": 1 / sharing_gpu} if on_gpus else {"num_cpus": threads}
            self._actors = ray.remote(_Actor).options(**needs)
            self._variables = _variables(on_gpus, os.environ)
            self._make = self._make_worker()
            for slot in self._slots:
                self._start(slot)
            if self._config.ray_address:
                gpu = "a GPU" if sharing_gpu == 1 else f"1/{sharing_gpu} of a GPU"
                each = gpu if on_gpus else f"{threads} CPU{'s' if threads > 1 else ''}"
                num_nodes, room = len(cluster.resources()), cluster.room(threads, sharing_gpu)
                limit = f", of which {room} have room" if room < len(self._slots) else ""
                self._note(f"Ray cluster of {num_nodes} nodes: {len(self._slots)} workers with {each} each{limit}")
            self._connection = stack.pop_all()
        return self

    def __exit__(self, *_: Any) -> None:
        if self._cut_off:  # Ray would end this process in the middle of a call
            return
        with self._connection, suppress(RayError, ConnectionError):
            for slot in self._slots:
                ray.kill(slot.actor)
            if self._config.ray_address:
                cluster.remove_everywhere(self._folder)

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results, each as soon as it is there."""
        try:
            yield from super().map(tasks)
        except (RayError, ConnectionError) as error:
            self._cut_off = True
            raise TrainingError(
                f"the run lost its Ray cluster ({type(error).__name__}: {error}). `ray status` says whether this "
                f"machine's node is there"
            ) from error

    def _make_worker(self) -> Callable[[], Any]:
        """What makes a worker wherever it is started, with the run's data."""
        config = self._config
        if config.ray_data == "shared":
            return partial(self._worker, config)
        partitions = open_partitions(Path(config.dataset_path), config.task)
        given = [Path(path) for path in (config.init_weights, config.probe_image) if path]
        paths = [*partitions.folder.glob("*.npy"), *given]
        shipped = partial(_read_shipped, {str(path): ray.put(untrusted.read_bytes(path)) for path in paths})
        return partial(self._worker, config, partitions=replace(partitions, read=shipped))

    def _start(self, slot: _Slot) -> None:
        """A new actor, asked for an answer as soon as it has a place, however long that takes."""
        slot.actor = self._actors.remote(self._variables, self._folder)
        slot.call, slot.step = slot.actor.hello.remote(), "hello"
        slot.ready, slot.deadline = False, float("inf")

    def _give(self, slot: _Slot, packed: tuple[bytes, list[Any]]) -> bool:
        body, arrays = packed
        slot.call, slot.step = slot.actor.run.remote(body, *arrays), "run"
        slot.deadline = time.monotonic() + self._config.task_timeout
        return True

    def _answers(self) -> Iterator[tuple[_Slot, Done | Ready | Failure]]:
        calls = {slot.call: slot for slot in self._slots if slot.call is not None}
        patience = min(slot.deadline for slot in calls.values()) - time.monotonic()
        done, _ = ray.wait(list(calls), timeout=max(0.0, min(patience, _SLICE)))
        self._tell_if_no_room(patience == float("inf") and not done)
        for call in done:
            answer = self._answer(calls[call])
            if answer is not None:
                yield calls[call], answer
        now = time.monotonic()
        for slot in calls.values():
            if slot.call is not None and slot.deadline <= now and not ray.wait([slot.call], timeout=0)[0]:
                slot.call = None
                text = f"no answer for {self._config.task_timeout:g} seconds (--task-timeout)"
                yield slot, Failure("TimeoutError", text, "")

    def _tell_if_no_room(self, waiting: bool) -> None:
        now = time.monotonic()
        if not waiting:
            self._no_room_since = None
        elif self._no_room_since is None:
            self._no_room_since = now
        elif now > self._no_room_since + _NOTICE:
            self._no_room_since = float("inf")
            self._note("Waiting for a worker: the cluster has no room for one yet; `ray status` says what it has")

    def _answer(self, slot: _Slot) -> Done | Ready | Failure | None:
        """What the call gave; None if it was only a step on the way to being ready."""
        call, slot.call = slot.call, None
        try:
            answer = ray.get(call)
        except RayActorError as error:
            slot.lost = True
            return Failure("WorkerDied", _cause_of_death(error), "")
        except RayError as error:
            return Failure.of(error)
        if slot.step != "hello":
            return answer  # type: ignore[no-any-return]
        if slot.lost:
            self._note(f"Worker {slot.number} has a place again")
            slot.lost = False
        slot.call, slot.step = slot.actor.start.remote(self._make), "start"
        slot.deadline = time.monotonic() + self._config.task_timeout
        return None

    def _stop(self, slot: _Slot) -> None:
        ray.kill(slot.actor)
        self._start(slot)


class _Packer:
    """Tasks for actors; an array that several of them need is put into Ray's store once."""

    def __init__(self) -> None:
        self._stored = sharing.Recent(lambda buffer: ray.put(np.frombuffer(buffer.raw(), np.uint8)))
        self.forget = self._stored.forget

    def pack(self, task: Any) -> tuple[bytes, list[Any]]:
        """The task without its large arrays, and Ray's references to those."""
        body, arrays = sharing.split(task)
        return body, [self._stored.get(array) for array in arrays]

    def drop(self, packed: tuple[bytes, list[Any]]) -> None:
        """Nothing to do: Ray lets go of what nobody refers to."""


@dataclass(eq=False)
class _Slot(Slot):
    """A place with an actor in it."""

    actor: Any = None
    call: Any = None  # what it is asked for
    step: str = ""  # hello, start or run
    lost: bool = False  # whether the actor before has died


class _Actor:
    """A worker's process. Its methods answer with what went wrong, as text, so that any driver can read it."""

    def __init__(self, environment: Mapping[str, str], folder: str) -> None:
        os.environ.update(environment)
        temporary.hold(Path(folder))
        temporary.sweep(Path(folder).parent)
        tempfile.tempdir = folder  # for TensorFlow, which leaves files when it is killed

    def hello(self) -> None:
        """It has a place."""

    def start(self, make_worker: Callable[[], Any]) -> Ready | Failure:
        """Makes the worker."""
        try:
            self._worker = make_worker()
        except RAISED as error:
            return Failure.of(error)
        return Ready()

    def run(self, body: bytes, *arrays: np.ndarray) -> Done | Failure:
        """The task's result."""
        try:
            return Done(self._worker.run(pickle.loads(body, buffers=arrays)))
        except RAISED as error:
            return Failure.of(error)


def _read_shipped(stored: Mapping[str, Any], path: Path) -> bytes:
    """A file of the machine that gave the command: from the object store, which brings it to a node once."""
    if str(path) not in stored:
        raise FileNotFoundError(2, "it was not there when the run began", str(path))
    return ray.get(stored[str(path)])  # type: ignore[no-any-return]


def _variables(on_gpus: bool, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker; with GPUs, Ray itself says which one it sees."""
    ours = worker_variables(0 if on_gpus else None, given)
    if on_gpus:
        del ours["CUDA_VISIBLE_DEVICES"]
    return {**{name: value for name, value in given.items() if name.startswith(_CARRIED)}, **ours}


def _cause_of_death(error: RayActorError) -> str:
    """What Ray knows about it, in one line."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
    return f"died ({' '.join(text.split())})"
