"""Several runs, in turn or beside each other: what is done is not done again, what was broken off goes on."""

from __future__ import annotations

import glob
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, Callable, NamedTuple, Union

from fedmatch_tf.base import signals, untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.plugins import is_keras_file
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.config.resume import INPUT_PATHS, MAY_CHANGE, with_absolute_paths
from fedmatch_tf.federation.tasks import TrainingError
from fedmatch_tf.results import results
from fedmatch_tf.results.names import run_words
from fedmatch_tf.results.outcome import Row, describe, in_rows
from fedmatch_tf.results.references import References
from fedmatch_tf.results.results import FINISHED, Result
from fedmatch_tf.results.summary import Summary, summarise
from fedmatch_tf.results.tables import percent, plus_minus
from fedmatch_tf.results.time_left import TimeLeft
from fedmatch_tf.runs.checkpoint import NETWORK
from fedmatch_tf.runs.display import duration, progress_for
from fedmatch_tf.runs.expected import runs_beside
from fedmatch_tf.runs.partition_folder import beside_others, ensure_partitions
from fedmatch_tf.runs.training import MakeWorker, Watch, resume, train
from fedmatch_tf.workers.choose import decide, make_worker
from fedmatch_tf.workers.own_code import check_script
from fedmatch_tf.workers.process import end_with_parent, spawn


def find(runs: Sequence[Config]) -> list[Result | None]:
    """What their output folders have of each run: the one with its settings that has got furthest, or None."""
    furthest: dict[Any, Result] = {}
    for logs in {Path(config.output_path) / "logs": None for config in runs}:
        for result in (results.read(folder) for folder in sorted(logs.glob("*")) if folder.is_dir()):
            if result.settings and _can_be_used(result):
                best = furthest.setdefault(results.identity(result.settings), result)
                if len(result.lines) > len(best.lines):
                    furthest[results.identity(result.settings)] = result
    return [furthest.get(results.identity(asdict(config))) for config in runs]


def _can_be_used(result: Result) -> bool:
    """A run that is finished, or that has a checkpoint to go on from; of the Keras file as it is now."""
    folder, arch = Path(result.folder), result.settings["arch"]
    check_pts = folder.parent.parent / "check_pts" / folder.name
    if is_keras_file(arch) and Path(arch).is_file():  # which may be another one by now
        kept = check_pts / NETWORK
        if not kept.is_file() or untrusted.read_bytes(kept) != untrusted.read_bytes(Path(arch)):
            return False
    return result.state == FINISHED or check_pts.is_dir()


def is_done(result: Result | None) -> bool:
    """Whether nothing is left to do of the run."""
    return result is not None and result.state == FINISHED


@dataclass(eq=False)
class _Job:
    """A run that is to be done."""

    number: int  # among all runs
    config: Config
    folder: Path | None  # of a run that goes on
    rounds_done: int
    begin: float = 0.0


Outcome = Union[Path, Exception]  # the run's folder, or why it has none


def sweep(
    runs: Sequence[Config],
    existing: Sequence[Result | None],
    given: Mapping[str, Any],
    watch: Watch,
    references: References | None = None,
    jobs: int = 1,
    worker: MakeWorker = make_worker,
) -> Iterator[tuple[Config, Path]]:
    """Each run and its folder, as they end: first those that are done, then the others are trained or go on.

    A run whose training fails keeps no other from being done; the TrainingError comes at the end.

    Args:
        existing: what there is of each run.
        given: settings that the user gave: runs that go on take over those of the machine.
        jobs: so many runs beside each other, each in a process of its own.
    """
    how = {name: value for name, value in given.items() if name in MAY_CHANGE - INPUT_PATHS}
    time_left, failures = TimeLeft(), []

    def say(number: int, state: str, more: str = "") -> None:
        config = runs[number]
        if not watch.quiet:
            about = f"[{number + 1} of {len(runs)}{more}] {config.task} {', '.join(run_words(config))}"
            print(f"{about}, seed {config.seed}: {state}", file=sys.stderr, flush=True)

    left: list[_Job] = []
    for number, (config, result) in enumerate(zip(runs, existing)):
        if result is not None and is_done(result):
            say(number, "done")
            yield config, Path(result.folder)
        else:
            folder = None if result is None else Path(result.folder)
            left.append(_Job(number, config, folder, len(result.lines) if result else 0))
    waiting = list(left)

    def begin(job: _Job) -> None:
        seconds = time_left.of((each.config, each.rounds_done) for each in waiting)
        waiting.remove(job)
        told = "an unknown time" if seconds is None else f"about {duration(seconds / jobs)}"
        say(job.number, "going on" if job.folder else "starting", f", {told} left")
        job.begin = time.monotonic()

    try:
        do = _in_turn(left, begin, how, watch, worker)
        for job, outcome in do if jobs == 1 else _beside(left, begin, how, watch, jobs, worker):
            if isinstance(outcome, TrainingError):
                failures.append(f"[{job.number + 1} of {len(runs)}] {outcome}")
                say(job.number, "failed")
                continue
            if isinstance(outcome, Exception):
                raise outcome
            seconds = [line["seconds"] for line in results.read(outcome).lines[job.rounds_done :]]
            if seconds:
                time_left.learn(job.config, len(seconds), math.fsum(seconds), time.monotonic() - job.begin)
            (print if watch.logger is None else watch.logger.info)(describe(results.read(outcome), references))
            yield job.config, outcome
    except KeyboardInterrupt:
        if watch.logger is None:
            print("To go on with all that is not done: the same command again", file=sys.stderr)
        raise
    if failures:
        raise TrainingError("\n".join([f"{len(failures)} of {len(runs)} runs failed:", *failures]))


def _work(job: _Job, how: Mapping[str, Any], watch: Watch, worker: MakeWorker) -> Path:
    return train(job.config, watch, worker) if job.folder is None else resume(job.folder, how, watch, worker)


def _in_turn(
    left: Iterable[_Job], begin: Callable[[_Job], None], how: Mapping[str, Any], watch: Watch, worker: MakeWorker
) -> Iterator[tuple[_Job, Outcome]]:
    """What became of each, one after the other in this process."""
    for job in left:
        begin(job)
        try:
            yield job, _work(job, how, watch, worker)
        except TrainingError as error:
            yield job, error


def _beside(
    left: Sequence[_Job],
    begin: Callable[[_Job], None],
    how: Mapping[str, Any],
    watch: Watch,
    jobs: int,
    worker: MakeWorker,
) -> Iterator[tuple[_Job, Outcome]]:
    """What became of each, so many beside each other; they share the cores if nobody says how many workers each has."""
    check_script()
    shares = {config: config.workers or _share(config, jobs) for config in (job.config for job in left)}
    room = min((runs_beside(workers or 1) for workers in shares.values()), default=jobs)
    if room < jobs and not watch.quiet:
        print(f"Memory has room for {room} of {jobs} runs beside each other", file=sys.stderr, flush=True)
    waiting, running = deque(left), dict[Any, tuple[_Job, Any]]()  # by the pipe that the answer comes from
    try:
        while waiting or running:
            while waiting and len(running) < min(jobs, room):
                job = waiting.popleft()
                begin(job)
                if job.folder is None:  # two runs at once would find the same folder free
                    config, _, source = beside_others(with_absolute_paths(job.config), watch.progress)
                    ensure_partitions(config, watch.progress, source)
                workers = shares[job.config]
                own = replace(job, config=replace(job.config, workers=workers))
                machine = how if workers is None else {**how, "workers": workers}
                level = logging.INFO if watch.logger is None else logging.WARNING
                process, pipe = spawn(_serve, own, machine, worker, level, name=f"fedmatch-run-{job.number + 1}")
                running[pipe] = job, process
            ready = connection.wait(list(running))
            for pipe in [pipe for pipe in running if pipe in ready]:
                job, process = running.pop(pipe)
                with pipe:
                    try:
                        outcome = pipe.recv()
                    except EOFError:
                        outcome = TrainingError("its process died; what it said is above")
                process.join()
                yield job, outcome
    finally:
        for _, process in running.values():
            process.terminate()
        for _, process in running.values():
            process.join()


def _share(config: Config, jobs: int) -> int | None:
    """Workers of a run that is one of so many; None where they are not this machine's cores."""
    own = config.backend == "process" and config.gpu is None
    return max(1, (decide(config).workers or 1) // jobs) if own else None


def _serve(pipe: Any, job: _Job, how: Mapping[str, Any], worker: MakeWorker, level: int) -> None:
    """A run in a process of its own. SIGTERM ends it as Ctrl-C would; its remarks say which run they are of."""
    signals.interrupt([])
    end_with_parent()
    logger = logging.getLogger("fedmatch_tf.sweep")
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(f"[{job.number + 1}] %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level)
    with suppress(KeyboardInterrupt):
        try:
            pipe.send(_work(job, how, Watch(True, progress_for(True), logger), worker))
        except (ConfigError, DataError, TrainingError, OSError) as error:
            pipe.send(error)


class Swept(NamedTuple):
    """What came out of several runs."""

    folders: list[Path]
    text: str  # means and deviations, for people
    report: Path | None  # where settings differ


def sweep_all(
    runs: Sequence[Config],
    given: Mapping[str, Any],
    watch: Watch,
    references: References | None = None,
    jobs: int = 1,
    worker: MakeWorker = make_worker,
) -> Swept:
    """Does what is not done of the runs, and says what they reached; with different settings there is a report."""
    runs = [with_absolute_paths(config) for config in runs]
    folders: dict[Config, Path] = {}
    failed = None
    try:
        folders.update(sweep(runs, find(runs), given, watch, references, jobs, worker))
    except TrainingError as error:
        failed = error
    in_order = [folders[config] for config in runs if config in folders]
    report = None
    if in_order and len({replace(config, seed=0) for config in runs}) > 1:
        from fedmatch_tf.results.build import report as write_report

        patterns = [glob.escape(str(folder)) for folder in in_order]
        report = write_report(patterns, Path(runs[0].output_path), watch.progress, references)
    if failed is not None:
        raise TrainingError(f"{failed}" + (f"\nThe report on the others: {report}" if report else "")) from failed
    groups = results.group([results.read(folder) for folder in in_order])
    return Swept(in_order, _describe([summarise(group, references) for group in groups]), report)


def _describe(summaries: Sequence[Summary]) -> str:
    """Of several settings, the accuracy of each; of one, all there is to say."""
    if len(summaries) == 1:
        return describe_seeds(summaries[0])
    width = max(len(summary.group.label) for summary in summaries)
    return "\n".join(
        f"  {summary.group.label:<{width}}  {plus_minus(summary.final)} % at the end, n = {len(summary.group.finished)}"
        for summary in summaries
    )


def describe_seeds(summary: Summary) -> str:
    """Means over the seeds, a line each."""
    runs, paper = summary.group.finished, summary.reference.paper
    seeds = ", ".join(str(result.settings["seed"]) for result in runs)
    rows: list[Row] = [
        (f"mean of {len(runs)} seeds", f"(seeds {seeds}; ± is the sample standard deviation)"),
        ("test accuracy", f"{plus_minus(summary.final)} % at the end"),
        ("highest", f"{plus_minus(summary.best)} % (chosen on test data)"),
        ("best model", summary.validated and f"{plus_minus(summary.validated)} % at the lowest validation loss"),
        ("macro-F1", summary.macro_f1 and f"{plus_minus(summary.macro_f1)} %"),
        ("mean of the clients", summary.local and f"{plus_minus(summary.local)} % at the end"),
        ("the paper", paper and f"{paper.accuracy:.2f} %"),
        ("cost to a client", f"{percent(summary.s2c)} % of one parameter set per round"),
        ("cost from a client", f"{percent(summary.c2s)} %"),
    ]
    return in_rows(rows)
