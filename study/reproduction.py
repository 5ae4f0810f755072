"""--work-type reproduce: the runs of an experiment one after the other, then a report or the pages on them."""

from __future__ import annotations

import glob
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import study
from fedmatch_tf.base.program import short_program
from fedmatch_tf.config import Config, ConfigError, changed_settings, flag
from fedmatch_tf.config.resume import with_absolute_paths
from fedmatch_tf.results import sweep
from fedmatch_tf.results.build import report
from fedmatch_tf.results.results import Result
from fedmatch_tf.results.time_left import total_hours
from fedmatch_tf.runs.display import Progress
from fedmatch_tf.runs.partition_folder import with_own_partitions
from fedmatch_tf.runs.training import Watch
from study import experiments, pages, records
from study.experiments import EXPERIMENTS, PAPER_EXPERIMENTS, configs


def _hours(runs: Iterable[Config]) -> str:
    hours = total_hours(runs)
    return f"{'-' if hours is None else f'{hours:.1f}':>8}"


def list_experiments(seeds: Sequence[int], given: Mapping[str, Any]) -> str:
    """What there is, and a rough estimate of its cost."""
    lines = [f"{'experiment':<24}{'runs':>5}{'hours':>8}  what"]
    of_paper: dict[Config, None] = {}
    for name, experiment in EXPERIMENTS.items():
        try:
            runs = configs(name, seeds, given)
        except ConfigError as error:
            lines.append(f"{name:<24}{'-':>5}{'-':>8}  not with these settings: {error}")
            continue
        lines.append(f"{name:<24}{len(runs):>5}{_hours(runs)}  {experiment.what}")
        of_paper.update(dict.fromkeys(runs if name in PAPER_EXPERIMENTS else ()))
    lines.append(f"{'all of the paper':<24}{len(of_paper):>5}{_hours(of_paper)}  each run once")
    lines.append(
        f"Hours are a rough estimate for two cores of an AMD EPYC (Zen 5), with {len(seeds)} seeds (those of "
        f"evidence and field are fixed); runs in several of them are done once."
    )
    return "\n".join(lines)


def plan(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> experiments.Plan:
    """The experiment's runs, each with a folder of partitions that fits it, and what is to be said of them."""
    planned = experiments.plan(name, seeds, given)
    return planned._replace(configs=[with_own_partitions(with_absolute_paths(config)) for config in planned.configs])


def existing(name: str, runs: Sequence[Config]) -> list[Result | None]:
    """What there is of each run: its record, where the experiment keeps records, or the run itself."""
    found = sweep.find(runs)
    if EXPERIMENTS[name].page is None:
        return found
    return [records.find(config) or result for config, result in zip(runs, found)]


def command(config: Config) -> str:
    """The command line that does this run."""
    parts = ["python", "main.py", "--task", config.task, "--model", config.model, "--profile", config.profile]
    source = {} if config.source is None else {"source": config.source}
    for name, value in {**source, **changed_settings(config)}.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else "unset" if value is None else str(value)
        parts += [flag(name)] if value is True else [flag(name), text]
    return shlex.join(parts)


def dry_run(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> None:
    """Prints the command of every run, and which are done."""
    planned = plan(name, seeds, given)
    done = [sweep.is_done(result) for result in existing(name, planned.configs)]
    _say([*planned.notes, *([f"done already: {sum(done)} of {len(done)} runs"] if any(done) else [])])
    for config, is_done in zip(planned.configs, done):
        print(command(config) + ("  # done" if is_done else ""))


def _say(notes: Sequence[str]) -> None:
    for note in notes:
        print(f"{short_program()}: note: {note}", file=sys.stderr)


def run(
    name: str, seeds: Sequence[int], given: Mapping[str, Any], quiet: bool, progress: Progress, jobs: int = 1
) -> Path:
    """Does the runs that are not done yet, goes on with those that were broken off; returns the report on all.

    Where the experiment keeps records, new ones are added, and the page is made from them.
    """
    (runs, notes), page, folders = plan(name, seeds, given), EXPERIMENTS[name].page, []
    _say(notes)
    for config, folder in sweep.sweep(
        runs, existing(name, runs), given, Watch(quiet, progress), study.references, jobs
    ):
        folders.append(glob.escape(str(folder)))
        if page is not None and records.find(config) is None:
            records.keep(folder, config)
    if page is None:
        return report(folders, Path(runs[0].output_path), references=study.references)
    pages.write_pages()
    return records.ROOT / page
