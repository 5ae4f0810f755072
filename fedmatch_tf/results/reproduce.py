"""--work-type reproduce: the runs of an experiment one after the other; what is done is not done again."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable

from fedmatch_tf.config import Config, ConfigError, changed_settings, flag
from fedmatch_tf.config.resume import INPUT_PATHS, MAY_CHANGE, with_absolute_paths
from fedmatch_tf.results import evidence, evidence_pages, experiments, results
from fedmatch_tf.results.build import report
from fedmatch_tf.results.experiments import EXPERIMENTS, PAPER_EXPERIMENTS, configs, hours, run_words, ships
from fedmatch_tf.results.outcome import describe
from fedmatch_tf.results.time_left import TimeLeft
from fedmatch_tf.runs.display import Progress, duration
from fedmatch_tf.runs.partition_folder import with_own_partitions

DEFAULT_SEEDS = (1, 2, 3)


def seeds_of(name: str, given: Sequence[int] | None) -> Sequence[int]:
    """The seeds of an experiment's runs; those of runs that ship with the code are fixed."""
    if given is not None and ships(name):
        raise ConfigError(f"--seeds: the runs of --experiment {name} have the seeds of its records; leave it out")
    return given or DEFAULT_SEEDS


def list_experiments(seeds: Sequence[int], given: Mapping[str, Any]) -> str:
    """What there is, and a rough estimate of its cost."""
    lines = [f"{'experiment':<24}{'runs':>5}{'hours':>8}  what"]
    for name, experiment in EXPERIMENTS.items():
        try:
            runs = configs(name, seeds, given)
        except ConfigError as error:
            lines.append(f"{name:<24}{'-':>5}{'-':>8}  not with these settings: {error}")
            continue
        lines.append(f"{name:<24}{len(runs):>5}{sum(hours(run) for run in runs):>8.1f}  {experiment.what}")
    every = {config: None for name in PAPER_EXPERIMENTS for config in _possible(name, seeds, given)}
    lines.append(f"{'all of the paper':<24}{len(every):>5}{sum(map(hours, every)):>8.1f}  each run once")
    lines.append(
        f"Hours are a rough estimate for two CPU cores, with {len(seeds)} seeds (those of evidence and field are "
        f"fixed); runs in several of them are done once."
    )
    return "\n".join(lines)


def _possible(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> list[Config]:
    try:
        return configs(name, seeds, given)
    except ConfigError:
        return []


def plan(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> experiments.Plan:
    """The experiment's runs, each with a folder of partitions that fits it, and what is to be said of them."""
    planned = experiments.plan(name, seeds, given)
    return planned._replace(configs=[with_own_partitions(with_absolute_paths(config)) for config in planned.configs])


def command(config: Config) -> str:
    """The command line that does this run."""
    parts = ["python", "main.py", "--task", config.task, "--model", config.model, "--profile", config.profile]
    changed = {"source": config.source, **changed_settings(config)}
    if "labeled_fraction" in changed and config.labeled_fraction is None:
        changed["labels_per_class"] = config.labels_per_class  # what replaces the profile's share
    for name, value in changed.items():
        text = ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
        if value is not None:
            parts += [flag(name)] if value is True else [flag(name), text]
    return shlex.join(parts)


def find_run(config: Config) -> results.Result | None:
    """The run with these settings in its output folder that has got furthest; None if there is none."""
    wanted = results.identity(asdict(config))
    found = [
        results.read(folder) for folder in sorted((Path(config.output_path) / "logs").glob("*")) if folder.is_dir()
    ]
    readable = [result for result in found if result.settings]
    same = [result for result in readable if results.identity(result.settings) == wanted and _usable(result)]
    return max(same, key=lambda result: len(result.lines), default=None)


def _shipped_or_run(config: Config) -> results.Result | None:
    """The record of a run that ships with the code, or the run itself."""
    return evidence.find(config) or find_run(config)


def _finder(name: str) -> Callable[[Config], results.Result | None]:
    """Where the runs of this experiment are looked up."""
    return _shipped_or_run if ships(name) else find_run


def are_done(name: str, runs: Sequence[Config]) -> list[bool]:
    """Which of an experiment's runs need not be done again."""
    return [_is_done(result) for result in map(_finder(name), runs)]


def _is_done(result: results.Result | None) -> bool:
    return result is not None and result.state == results.FINISHED


def _usable(result: results.Result) -> bool:
    """A run that is finished, or that has a checkpoint to go on from."""
    folder = Path(result.folder)
    return _is_done(result) or (folder.parent.parent / "check_pts" / folder.name).is_dir()


def reproduce(name: str, seeds: Sequence[int], given: Mapping[str, Any], quiet: bool, progress: Progress) -> Path:
    """Does the runs that are not done yet, goes on with those that were broken off, then reports on all.

    Of the evidence, records in results/ are done already; new ones are added, and the pages are made from them.
    """
    runs, notes = plan(name, seeds, given)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    if ships(name):
        evidence.check_root()
    folders, find = [], _finder(name)
    how = {name: value for name, value in given.items() if name in MAY_CHANGE and name not in INPUT_PATHS}
    for config, folder in do_all(runs, how, quiet, progress, find):
        folders.append(folder)
        if ships(name) and evidence.find(config) is None:
            evidence.keep(Path(folder), config)
    if ships(name):
        evidence_pages.write_pages()
        return evidence_pages.page_of(name)
    return report(_literal(folders), Path(runs[0].output_path))


def do_all(
    runs: Sequence[Config],
    how: Mapping[str, Any],
    quiet: bool,
    progress: Progress,
    find: Callable[[Config], results.Result | None] = find_run,
) -> Iterator[tuple[Config, str]]:
    """Each run and its folder: those that are not done yet are trained, those that were broken off go on.

    Args:
        how: settings of the machine for runs that go on.
    """
    from fedmatch_tf.runs.training import Watch, resume, train

    watch, time_left = Watch(quiet, progress), TimeLeft()
    for number, config in enumerate(runs, start=1):
        found = [find(run) for run in runs[number - 1 :]]
        existing = found[0]
        left = time_left.of(zip(runs[number - 1 :], found))
        about = f"[{number} of {len(runs)}, about {duration(left)} left] {config.task} {', '.join(run_words(config))}"
        state = "done" if _is_done(existing) else "going on" if existing else "starting"
        if not quiet:
            print(f"{about}, seed {config.seed}: {state}", file=sys.stderr, flush=True)
        if existing is not None and _is_done(existing):
            yield config, existing.folder
            continue
        try:
            with time_left.measuring(config, existing) as measured:
                folder = train(config, watch) if existing is None else resume(Path(existing.folder), how, watch)
                measured.append(results.read(folder))
        except KeyboardInterrupt:
            print(f"For this run and those after it ({number} to {len(runs)}): the same command again", file=sys.stderr)
            raise
        print(describe(folder))
        yield config, str(folder)


def _literal(folders: Sequence[str]) -> list[str]:
    """Patterns that match these folders and nothing else."""
    import glob

    return [glob.escape(folder) for folder in folders]
