"""--seeds: one run per seed, then mean and deviation over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from fedmatch_tf.config import Config
from fedmatch_tf.config.resume import MAY_CHANGE, with_absolute_paths
from fedmatch_tf.results import results
from fedmatch_tf.results.reproduce import do_all
from fedmatch_tf.results.summary import Summary, summarise
from fedmatch_tf.results.tables import percent, plus_minus
from fedmatch_tf.runs.display import Progress


class Trained(NamedTuple):
    """The runs of several seeds, and their result in a few lines."""

    folders: list[Path]
    text: str


def train_seeds(config: Config, seeds: Sequence[int], given: set[str], quiet: bool, progress: Progress) -> Trained:
    """Trains with every seed what is not trained yet, and goes on with what was broken off.

    Args:
        given: names of the settings that the user gave: where and how runs that go on are worked on.
    """
    runs = [replace(with_absolute_paths(config), seed=seed) for seed in seeds]
    how = {name: getattr(config, name) for name in given & (MAY_CHANGE - {"dataset_path", "source"})}
    folders = [Path(folder) for _, folder in do_all(runs, how, quiet, progress)]
    read = [results.read(folder) for folder in folders]
    (group,) = results.group(read)
    return Trained(folders, describe(summarise(group)))


def describe(summary: Summary) -> str:
    """Means over the seeds, a line each."""
    runs = summary.group.finished
    seeds = ", ".join(str(result.settings["seed"]) for result in runs)
    rows = [
        (f"mean of {len(runs)} seeds", f"(seeds {seeds}; ± is the sample standard deviation)"),
        ("test accuracy", f"{plus_minus(summary.final)} % at the end"),
        ("highest", f"{plus_minus(summary.best)} % (chosen on test data)"),
        ("best model", summary.validated and f"{plus_minus(summary.validated)} % at the lowest validation loss"),
        ("macro-F1", summary.macro_f1 and f"{plus_minus(summary.macro_f1)} %"),
        ("mean of the clients", summary.local and f"{plus_minus(summary.local)} % at the end"),
        ("the paper", summary.paper and f"{summary.paper.accuracy:.2f} %"),
        ("cost to a client", f"{percent(summary.s2c)} % of one parameter set per round"),
        ("cost from a client", f"{percent(summary.c2s)} %"),
    ]
    return "\n".join(f"  {name:<19} {value}" for name, value in rows if value)
