"""A training run from start to end: partitions, backend, rounds, records, result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from logging import Logger
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.atomic import replacing, write_text
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.plugins import is_keras_file
from fedmatch_tf.base.signals import Interrupts
from fedmatch_tf.config import Config, ConfigError, flag
from fedmatch_tf.config.resume import with_absolute_paths
from fedmatch_tf.data.generator import in_use
from fedmatch_tf.data.loader import Partitions
from fedmatch_tf.data.manifest import note_on_skipped
from fedmatch_tf.federation import loop, server
from fedmatch_tf.federation.crew import Backend
from fedmatch_tf.federation.tasks import (
    CheckTask,
    ClientTask,
    ConfusionTask,
    InitTask,
    ModelTask,
    PaceTask,
    ProfileTask,
    TrainingError,
)
from fedmatch_tf.networks import files
from fedmatch_tf.runs import checkpoint, expected, folders
from fedmatch_tf.runs.display import Progress, RoundDisplay, in_words
from fedmatch_tf.runs.folders import Run
from fedmatch_tf.runs.inputs import WithInputs, checksums
from fedmatch_tf.runs.mirror import Mirror, check_installed
from fedmatch_tf.runs.partition_folder import (
    beside_others,
    check_complete,
    check_for_vectors,
    class_counts,
    client_sizes,
    data_about,
    ensure_partitions,
    note_on_order,
    shares_of_test,
)
from fedmatch_tf.workers.choose import check_backend, decide, make_worker, open_backend

MakeWorker = Callable[..., Any]
OnRound = Callable[[dict[str, Any]], object]
CONFUSION = "confusion.json"


class Watch(NamedTuple):
    """Who sees a run while it goes on."""

    quiet: bool  # no display of rounds
    progress: Progress  # of what takes long before and after them
    logger: Logger | None = None  # gets remarks; None: they are printed on stderr
    on_round: OnRound | None = None  # is given every round's object of rounds.jsonl; False stops the run


def train(config: Config, watch: Watch, worker: MakeWorker = make_worker) -> Path:
    """Runs the whole training; returns the run's folder.

    Args:
        worker: makes what runs the tasks, in the process where they run.
    """
    config = decide(with_absolute_paths(config))
    check_backend(config)
    check_installed(config)
    expected.check_workers(config)
    network = _check_paths(config)
    config, note, source = beside_others(config, watch.progress)
    display = RoundDisplay(config, watch.quiet, logger=watch.logger)
    if note:
        display.note(f"note: {note}")
    ensure_partitions(config, watch.progress, source)
    del source
    with in_use(config.partition_folder), ExitStack() as stack:
        partitions, inputs = check_complete(config), checksums(config)
        check_for_vectors(config, partitions)
        for note in filter(None, (note_on_order(partitions), note_on_skipped(partitions.skipped))):
            display.note(f"note: {note}")
        for _ in watch.progress([None], 0, "Starting TensorFlow"):
            backend = _open(stack, config, partitions, inputs, network, display, worker)
            (start,) = backend.map([InitTask()])
        expected.check_parameters(config, start.params)
        state = server.initial_state(config, start.params)
        about = data_about(partitions)
        run = folders.create(config, state, partitions.fingerprint, about, inputs, start.kernels, network)
        train_rounds(stack.enter_context(run), backend, partitions, display, watch)
    return run.folder


def resume(folder: Path, given: Mapping[str, Any], watch: Watch, worker: MakeWorker = make_worker) -> Path:
    """Goes on with a run where its last checkpoint is; returns its folder."""
    run, notes = folders.reopen(folder, given)
    with run, ExitStack() as stack:
        config = run.config
        display = RoundDisplay(config, watch.quiet, run.past, watch.logger)
        for note in notes:
            display.note(f"note: {note}")
        if run.state.rounds_done < config.num_rounds or not all(path.exists() for path in _results(run)):
            check_backend(config)
            check_installed(config)
            partitions = stack.enter_context(_partitions_of(run, watch.progress))
            inputs = check_same(run, partitions, display.note)
            expected.check_workers(config)
            network = checkpoint.network_of(run.check_pts, config.arch)
            backend = _open(stack, config, partitions, inputs, network, display, worker)
            list(backend.map([CheckTask(run.state.params)]))  # before anything of the run is changed
            run.begin()
            display.note(f"Going on after {run.state.rounds_done} of {config.num_rounds} rounds")
            train_rounds(run, backend, partitions, display, watch)
        else:
            run.begin(keep_settings=False)
            display.note(f"Nothing to do: all {config.num_rounds} rounds are done; --num-rounds may ask for more")
    return run.folder


def _open(
    stack: ExitStack,
    config: Config,
    partitions: Partitions,
    inputs: Mapping[str, str],
    network: bytes | None,
    display: RoundDisplay,
    worker: MakeWorker,
) -> Backend:
    """The backend, whose workers read the same as this process."""
    make = WithInputs(worker, partitions.fingerprint, inputs, network)
    return stack.enter_context(open_backend(config, display.warn, make))


def train_rounds(
    run: Run,
    backend: Backend,
    partitions: Partitions,
    display: RoundDisplay,
    watch: Watch,
    sizes: Mapping[int, int] | None = None,
) -> None:
    """The rounds that are left; however they end, the user learns how to go on.

    Args:
        sizes: examples of each client, unless the partitions say that.
    """
    stopped, num_rounds = run.folder / "stopped.txt", run.config.num_rounds
    counts = class_counts(partitions)
    if counts is not None:
        write_text(run.folder / "partition.json", json.dumps(counts))
    display.know_classes(shares_of_test(partitions))
    tells = sizes is None and not watch.quiet
    sizes = client_sizes(partitions) if sizes is None else sizes
    try:
        with Interrupts(display.note) as interrupts, Mirror(run.config, run.folder, display.warn) as mirror, display:
            if tells:
                _tell_time(run, backend, sizes, display)
            traced = _Traced(backend, run) if run.config.profile_run else backend
            for record, state in loop.run(run.config, run.state, traced, run.store, sizes, display.client_done):
                for path in (stopped, *_results(run)):  # of fewer rounds
                    path.unlink(missing_ok=True)
                run.add(record, state)
                for sink in (*run.sinks, display, mirror):
                    sink.on_round(record)
                answer = True if watch.on_round is None else watch.on_round(record.line())
                enough = isinstance(answer, (bool, np.bool_)) and not answer
                if state.rounds_done < num_rounds and (enough or interrupts.asked):
                    run.save()
                    if interrupts.asked:
                        interrupts.stop()
                    write_text(stopped, "on_round")
                    break
            if run.state.rounds_done == num_rounds:
                stopped.unlink(missing_ok=True)
            _write_results(run, backend, display.note)
            run.finish()
    except BaseException as error:
        display.note(run.resume_command())
        with suppress(OSError):
            write_text(stopped, _cause(error))
        raise


def _tell_time(run: Run, backend: Backend, sizes: Mapping[int, int], display: RoundDisplay) -> None:
    """Says how long the rounds that are left will take, from what the network takes for an image here and now."""
    config = run.config
    left, workers = config.num_rounds - run.state.rounds_done, config.workers or 1
    if left and sizes:
        paces = list(backend.map([PaceTask() for _ in range(workers)]))
        unlabeled = sum(sizes.values()) / len(sizes) / config.num_steps
        passes = expected.passes_per_round(config, unlabeled)
        seconds = left * passes * sum(paces) / len(paces) / min(workers, config.clients_per_round)
        what = f"{left} of {config.num_rounds} rounds" if left < config.num_rounds else f"{left} rounds"
        display.note(f"{what}, about {in_words(seconds)} on this machine once the steps are compiled")


def _cause(error: BaseException) -> str:
    """Why a run stopped, for stopped.txt."""
    if isinstance(error, KeyboardInterrupt):
        return "Ctrl-C, SIGTERM or SIGHUP"
    told = isinstance(error, (ConfigError, DataError, TrainingError))
    return f"{error}\n" if told else f"{type(error).__name__}: {error}\n"


class _Traced:
    """A backend that has one client's task traced: in the second round, as the first one compiles the steps."""

    def __init__(self, backend: Backend, run: Run) -> None:
        self._backend, self._folder = backend, str((run.folder / "tensorboard").absolute())
        self._round = min(run.state.rounds_done + 1, run.config.num_rounds - 1)
        self._done = False

    def map(self, tasks: Iterable[Any]) -> Iterable[Any]:
        """The results of the tasks."""
        return self._backend.map(self._wrap(task) for task in tasks)

    def _wrap(self, task: Any) -> Any:
        if self._done or not isinstance(task, ClientTask) or task.round_num != self._round:
            return task
        self._done = True
        return ProfileTask(task, self._folder)


def _results(run: Run) -> list[Path]:
    """What is made of the final global model, if there is one."""
    if not run.config.has_global_model:
        return []
    best = [run.check_pts / checkpoint.BEST_MODEL] if run.config.keep_best else []
    return [run.folder / CONFUSION, run.check_pts / checkpoint.MODEL, *best]


def _write_results(run: Run, backend: Backend, note: Callable[[str], None]) -> None:
    """Writes the confusion matrix of the final global model, its file, and the best model's, where there are any."""
    if not run.config.has_global_model:
        return
    (matrix,) = backend.map([ConfusionTask(run.state.params)])
    names = list(run.data.class_names)
    write_text(run.folder / CONFUSION, json.dumps({"class_names": names, "matrix": matrix.tolist()}))
    models = {checkpoint.MODEL: run.state.params.theta(run.config.l1_thres)}
    if run.state.best is not None:
        models[checkpoint.BEST_MODEL] = run.state.best.theta
    for name, theta in models.items():
        (content,) = backend.map([ModelTask(theta)])
        with replacing(run.check_pts / name) as file:
            file.write(content)
        if foreign := files.only_in_keras_2(content):
            note(f"note: {name} opens in Keras 2 alone, because of {', '.join(foreign)} in the network")


def _check_paths(config: Config) -> bytes | None:
    """Raises now what would be raised when partitions are written and TensorFlow is started; writes nothing.

    The content of the Keras file that the network is made of comes back, if it is made of one.
    """
    path = Path(config.output_path)
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ConfigError(f"--output-path: expected a folder that can be written to, received {path}")
    for name, given in (("init_weights", config.init_weights), ("probe_image", config.probe_image)):
        if given is not None and not Path(given).is_file():
            raise DataError(f"{flag(name)}: expected a file, found none at {given}")
    try:
        return untrusted.read_bytes(Path(config.arch)) if is_keras_file(config.arch) else None
    except OSError as error:
        raise DataError(f"--arch: expected a Keras model's file at {config.arch} ({error.strerror})") from error


@contextmanager
def _partitions_of(run: Run, progress: Progress) -> Iterator[Partitions]:
    """Those of its folder, which nothing of ours replaces meanwhile; made again if they are gone."""
    folder = run.config.partition_folder
    if not folder.is_dir():
        ensure_partitions(run.config, progress)
    with in_use(folder):
        yield check_complete(run.config)


def check_same(run: Run, partitions: Partitions, note: Callable[[str], None]) -> dict[str, str]:
    """Checksums of its other inputs, with a note if they have changed; DataError if the partitions are others."""
    if partitions.fingerprint != run.partitions:
        raise DataError(
            f"{partitions.folder}: expected the partitions that the run began with, found others. "
            f"Say where they are with --dataset-path, or make them again with --work-type gen_data --force"
        )
    inputs = checksums(run.config)
    if changed := [name for name in sorted(inputs) if inputs[name] != run.inputs.get(name)]:
        note(
            f"note: {' and '.join(changed)}: not the content that the run began with, so results may differ "
            f"from an unbroken run"
        )
    return inputs
