"""A training run from start to end: partitions, backend, rounds, records, result."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Callable

from data.errors import DataError
from data.manifest import fingerprint
from fedmatch_tf.backends.choose import check_backend, decide, make_worker, open_backend
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.config.resume import with_absolute_paths
from fedmatch_tf.runs import folders
from fedmatch_tf.runs.atomic import write_text
from fedmatch_tf.runs.display import Progress, RoundDisplay
from fedmatch_tf.runs.folders import Run
from fedmatch_tf.runs.interrupts import Interrupts
from fedmatch_tf.runs.partition_folder import check_complete, class_counts, ensure_partitions
from fedmatch_tf.simulation import loop, server
from fedmatch_tf.simulation.crew import Backend
from fedmatch_tf.simulation.tasks import ClientTask, ConfusionTask, InitTask, ProfileTask

MakeWorker = Callable[..., Any]
CONFUSION = "confusion.json"


def train(config: Config, quiet: bool, progress: Progress, worker: MakeWorker = make_worker) -> Path:
    """Runs the whole training; returns the run's folder.

    Args:
        worker: makes what runs the tasks, in the process where they run.
    """
    config = decide(with_absolute_paths(config))
    check_backend(config)
    _check_output(Path(config.output_path))
    ensure_partitions(config, progress)
    display = RoundDisplay(config, quiet)
    with ExitStack() as stack:
        for _ in progress([None], 0, "Starting TensorFlow"):
            backend = stack.enter_context(open_backend(config, display.note, worker))
            (start,) = backend.map([InitTask()])
        state = server.initial_state(config, start.params)
        partitions = fingerprint(config.partition_folder)
        run = stack.enter_context(folders.create(config, state, partitions, start.kernels))
        _train_rounds(run, backend, display)
    return _finish(run)


def resume(
    folder: Path, given: Mapping[str, Any], quiet: bool, progress: Progress, worker: MakeWorker = make_worker
) -> Path:
    """Goes on with a run where its last checkpoint is; returns its folder."""
    run, notes = folders.reopen(folder, given)
    with run, ExitStack() as stack:
        config = run.config
        display = RoundDisplay(config, quiet, run.lines)
        for note in notes:
            display.note(f"main.py: note: {note}")
        if run.state.rounds_done < config.num_rounds or _lacks_confusion(run):
            check_backend(config)
            _check_partitions(run, progress)
            run.keep_settings()
            display.note(f"Going on after {run.state.rounds_done} of {config.num_rounds} rounds")
            _train_rounds(run, stack.enter_context(open_backend(config, display.note, worker)), display)
        else:
            display.note(f"Nothing to do: all {config.num_rounds} rounds are done; --num-rounds may ask for more")
    return _finish(run)


def _train_rounds(run: Run, backend: Backend, display: RoundDisplay) -> None:
    """The rounds that are left; however they end, the user learns how to go on."""
    stopped = run.folder / "stopped.txt"
    stopped.unlink(missing_ok=True)
    (run.folder / CONFUSION).unlink(missing_ok=True)  # of fewer rounds
    counts = class_counts(run.config)
    if counts is not None:
        write_text(run.folder / "partition.json", json.dumps(counts))
    try:
        with Interrupts(display.note) as interrupts, display:
            traced = _Traced(backend, run) if run.config.profile_run else backend
            for record, state in loop.run(run.config, run.state, traced, run.store):
                run.add(record, state)
                display.show(run.lines[-1])
                if interrupts.asked and state.rounds_done < run.config.num_rounds:
                    run.save()
                    interrupts.stop()
            _write_confusion(run, backend, counts)
            run.finish()
    except BaseException as error:
        display.note(run.resume_command())
        with suppress(OSError):
            write_text(stopped, "Ctrl-C or SIGTERM" if isinstance(error, KeyboardInterrupt) else f"{error}\n")
        raise


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


def _lacks_confusion(run: Run) -> bool:
    """Whether the confusion matrix of the global model is still to be written."""
    return run.config.has_global_model and not (run.folder / CONFUSION).exists()


def _write_confusion(run: Run, backend: Backend, counts: Mapping[str, Any] | None) -> None:
    """Writes the confusion matrix of the final global model, if there is one."""
    if run.config.has_global_model:
        (matrix,) = backend.map([ConfusionTask(run.state.params)])
        names = counts["class_names"] if counts else [str(number) for number in range(len(matrix))]
        write_text(run.folder / CONFUSION, json.dumps({"class_names": names, "matrix": matrix.tolist()}))


def _check_output(path: Path) -> None:
    """Raises now what writing there would raise after minutes; writes nothing."""
    nearest = next(parent for parent in (path, *path.absolute().parents) if parent.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise ConfigError(f"--output-path: expected a folder that can be written to, received {path}")


def _check_partitions(run: Run, progress: Progress) -> None:
    """The data are those that the run began with; made again if they are gone."""
    config = run.config
    folder = config.partition_folder
    if not folder.is_dir():
        ensure_partitions(config, progress)
    check_complete(config)
    if fingerprint(config.partition_folder) != run.partitions:
        raise DataError(
            f"{folder}: expected the partitions that the run began with, found others. "
            f"Say where they are with --dataset-path, or make them again with --work-type gen_data --force"
        )


def _finish(run: Run) -> Path:
    from fedmatch_tf.runs.curve import draw_curve  # matplotlib takes half a second to load

    config = run.config
    title = f"{config.model} on {config.task}, {config.arch}, seed {config.seed}"
    draw_curve(run.lines, title, run.folder / "curve.png")
    return run.folder
