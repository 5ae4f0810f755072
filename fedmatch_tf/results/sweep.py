"""Several runs, one after the other: what is done is not done again, what was broken off goes on."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedmatch_tf.config import Config
from fedmatch_tf.config.resume import INPUT_PATHS, MAY_CHANGE, with_absolute_paths
from fedmatch_tf.results import results
from fedmatch_tf.results.names import run_words
from fedmatch_tf.results.outcome import Row, describe, in_rows
from fedmatch_tf.results.references import References
from fedmatch_tf.results.results import FINISHED, Result
from fedmatch_tf.results.summary import Summary, summarise
from fedmatch_tf.results.tables import percent, plus_minus
from fedmatch_tf.results.time_left import TimeLeft
from fedmatch_tf.runs.display import Progress, duration


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
    """A run that is finished, or that has a checkpoint to go on from."""
    folder = Path(result.folder)
    return result.state == FINISHED or (folder.parent.parent / "check_pts" / folder.name).is_dir()


def is_done(result: Result | None) -> bool:
    """Whether nothing is left to do of the run."""
    return result is not None and result.state == FINISHED


def sweep(
    runs: Sequence[Config],
    existing: Sequence[Result | None],
    given: Mapping[str, Any],
    quiet: bool,
    progress: Progress,
    references: References | None = None,
) -> Iterator[tuple[Config, Path]]:
    """Each run and its folder: those that are not done yet are trained, those that were broken off go on.

    Args:
        existing: what there is of each run.
        given: settings that the user gave: runs that go on take over those of the machine.
    """
    from fedmatch_tf.runs.training import Watch, resume, train

    how = {name: value for name, value in given.items() if name in MAY_CHANGE - INPUT_PATHS}
    watch, time_left = Watch(quiet, progress), TimeLeft()
    rounds_done = [len(result.lines) if result else 0 for result in existing]
    for number, (config, result) in enumerate(zip(runs, existing)):
        state = "done" if is_done(result) else "going on" if result else "starting"
        seconds_left = time_left.of(zip(runs[number:], rounds_done[number:]))
        left = "an unknown time" if seconds_left is None else f"about {duration(seconds_left)}"
        about = f"[{number + 1} of {len(runs)}, {left} left] {config.task} {', '.join(run_words(config))}"
        if not quiet:
            print(f"{about}, seed {config.seed}: {state}", file=sys.stderr, flush=True)
        if result is not None and is_done(result):
            yield config, Path(result.folder)
            continue
        begin = time.monotonic()
        try:
            folder = train(config, watch) if result is None else resume(Path(result.folder), how, watch)
        except KeyboardInterrupt:
            rest = f"{number + 1} to {len(runs)}"
            print(f"For this run and those after it ({rest}): the same command again", file=sys.stderr)
            raise
        seconds = [line["seconds"] for line in results.read(folder).lines[rounds_done[number] :]]
        if seconds:
            time_left.learn(config, len(seconds), math.fsum(seconds), time.monotonic() - begin)
        print(describe(results.read(folder), references))
        yield config, folder


def sweep_seeds(
    config: Config,
    seeds: Sequence[int],
    given: Mapping[str, Any],
    quiet: bool,
    progress: Progress,
    references: References | None = None,
) -> tuple[list[Path], str]:
    """(a run's folder for every seed, mean and deviation over them in a few lines)."""
    runs = [replace(with_absolute_paths(config), seed=seed) for seed in seeds]
    folders = [folder for _, folder in sweep(runs, find(runs), given, quiet, progress, references)]
    (group,) = results.group([results.read(folder) for folder in folders])
    return folders, describe_seeds(summarise(group, references))


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
