"""A training run from start to end: partitions, backend, rounds, records, result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from logging import Logger
from pathlib import Path
from typing import Any, Callable, NamedTuple

import numpy as np

from fedmatch_tf.base.atomic import replacing, write_text
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.signals import Interrupts
from fedmatch_tf.config import Config, ConfigError, flag
from fedmatch_tf.config.resume import with_absolute_paths
from fedmatch_tf.data.generator import in_use
from fedmatch_tf.data.manifest import fingerprint
from fedmatch_tf.federation import loop, server
from fedmatch_tf.federation.crew import Backend
from fedmatch_tf.federation.tasks import (
    CheckTask,
    ClientTask,
    ConfusionTask,
    InitTask,
    ModelTask,
    ProfileTask,
    TrainingError,
)
from fedmatch_tf.networks import files
from fedmatch_tf.runs import checkpoint, folders
from fedmatch_tf.runs.display import Progress, RoundDisplay
from fedmatch_tf.runs.folders import Run
from fedmatch_tf.runs.mirror import Mirror, check_installed
from fedmatch_tf.runs.partition_folder import (
    WithPartitions,
    beside_others,
    check_complete,
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
    _check_paths(config)
    config, note = beside_others(config, watch.progress)
    display = RoundDisplay(config, watch.quiet, logger=watch.logger)
    if note:
        display.note(f"note: {note}")
    ensure_partitions(config, watch.progress)
    if order := note_on_order(config):
        display.note(f"note: {order}")
    with ExitStack() as stack:
        for _ in watch.progress([None], 0, "Starting TensorFlow"):
            backend = _open(stack, config, display, worker)
            (start,) = backend.map([InitTask()])
        state = server.initial_state(config, start.params)
        partitions = fingerprint(config.partition_folder)
        run = stack.enter_context(folders.create(config, state, partitions, data_about(config), start.kernels))
        train_rounds(run, backend, display, watch.on_round)
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
            _check_partitions(run, watch.progress)
            backend = _open(stack, config, display, worker)
            list(backend.map([CheckTask(run.state.params)]))  # before anything of the run is changed
            run.begin()
            display.note(f"Going on after {run.state.rounds_done} of {config.num_rounds} rounds")
            train_rounds(run, backend, display, watch.on_round)
        else:
            run.begin(keep_settings=False)
            display.note(f"Nothing to do: all {config.num_rounds} rounds are done; --num-rounds may ask for more")
    return run.folder


def _open(stack: ExitStack, config: Config, display: RoundDisplay, worker: MakeWorker) -> Backend:
    """The backend; while it is open, nothing of ours replaces the partitions, and its workers know them."""
    stack.enter_context(in_use(config.partition_folder))
    return stack.enter_context(open_backend(config, display.warn, WithPartitions(worker, config)))


def train_rounds(
    run: Run,
    backend: Backend,
    display: RoundDisplay,
    on_round: OnRound | None = None,
    sizes: Mapping[int, int] | None = None,
) -> None:
    """The rounds that are left; however they end, the user learns how to go on.

    Args:
        sizes: examples of each client, unless the partitions say that.
    """
    stopped, num_rounds = run.folder / "stopped.txt", run.config.num_rounds
    counts = class_counts(run.config)
    if counts is not None:
        write_text(run.folder / "partition.json", json.dumps(counts))
    display.know_classes(shares_of_test(run.config))
    try:
        with Interrupts(display.note) as interrupts, Mirror(run.config, run.folder, display.warn) as mirror, display:
            traced = _Traced(backend, run) if run.config.profile_run else backend
            sizes = client_sizes(run.config) if sizes is None else sizes
            for record, state in loop.run(run.config, run.state, traced, run.store, sizes, display.client_done):
                for path in (stopped, *_results(run)):  # of fewer rounds
                    path.unlink(missing_ok=True)
                run.add(record, state)
                for sink in (*run.sinks, display, mirror):
                    sink.on_round(record)
                answer = True if on_round is None else on_round(record.line())
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


def _check_paths(config: Config) -> None:
    """Raises now what would be raised when partitions are written and TensorFlow is started; writes nothing."""
    path = Path(config.output_path)
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ConfigError(f"--output-path: expected a folder that can be written to, received {path}")
    for name, given in (("init_weights", config.init_weights), ("probe_image", config.probe_image)):
        if given is not None and not Path(given).is_file():
            raise DataError(f"{flag(name)}: expected a file, found none at {given}")


def _check_partitions(run: Run, progress: Progress) -> None:
    """The data are those that the run began with; made again if they are gone."""
    folder = run.config.partition_folder
    if not folder.is_dir():
        ensure_partitions(run.config, progress)
    check_complete(run.config)
    if fingerprint(folder) != run.partitions:
        raise DataError(
            f"{folder}: expected the partitions that the run began with, found others. "
            f"Say where they are with --dataset-path, or make them again with --work-type gen_data --force"
        )
