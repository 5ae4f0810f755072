"""From what the user gives to a Config: defaults of settings, then those of task, profile and learner."""

from __future__ import annotations

import difflib
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from fedmatch_tf.base.errors import ConfigError, short
from fedmatch_tf.base.plugins import learners
from fedmatch_tf.config.models import learner_of
from fedmatch_tf.config.profiles import PROFILES
from fedmatch_tf.config.record import Config, settings, without_effect
from fedmatch_tf.config.rules import SCENARIOS, check_value, flag, parse_task
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS


def make_config(task: str, **given: Any) -> Config:
    """A Config for the task: what is given, and the defaults of the rest."""
    given = by_name({**given, "task": task})
    for name, value in given.items():  # before defaults are worked out from them
        check_value(flag(name), value, settings()[name])
    choice = {name: given.get(name, settings()[name].default) for name in ("profile", "model")}
    scenario, kind, dataset = parse_task(task)
    data, profile = DATASETS[dataset], PROFILES[choice["profile"]]
    values = {
        **{name: setting.by.get(scenario, setting.default) for name, setting in settings().items()},
        **data.defaults,
        **data.overrides.get(scenario, {}),
        **KINDS[kind].defaults,
        **profile.base,
        **learner_of(choice["model"]).defaults,
        **profile.settings,
        **data.overrides.get(choice["profile"], {}),
        **data.overrides.get(f"{choice['profile']}-{scenario}", {}),
        **choice,
        **given,
    }
    if "labels_per_class" in given and "labeled_fraction" not in given:
        values["labeled_fraction"] = None  # a profile's share of labels gives way to a number of labels
    return Config(**{name: value(values) if callable(value) else value for name, value in values.items()})


MOST_SEEDS = 1000


def combinations(
    grid: Mapping[str, Sequence[Any]], seeds: int | Sequence[int], given: Mapping[str, Any]
) -> list[Config]:
    """A Config for every combination of the grid's values, with every seed.

    Args:
        grid: the values of each setting that differs; it may be empty.
        seeds: their number, from 1 on, or which.
        given: what all of them share, the task among it.
    """
    if isinstance(seeds, int) and not 1 <= seeds <= MOST_SEEDS:
        raise ConfigError(f"seeds: expected a number of seeds from 1 to {MOST_SEEDS}, or a list; received {seeds}")
    every = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    if not 1 <= len(every) <= MOST_SEEDS or len(set(every)) < len(every):
        raise ConfigError(f"seeds: expected 1 to {MOST_SEEDS} different seeds, received {short(list(every))}")
    if "seed" in given:
        raise ConfigError(f"seed: expected none beside seeds, which says them all; received {short(given['seed'])}")
    for name, values in by_name(grid).items():
        if name in ("task", "seed") or settings()[name].of_machine:
            reason = "--seeds does that" if name == "seed" else "it is one for the whole sweep"
            raise ConfigError(f"sweep: {name} can't be swept: {reason}")
        if name in given:
            raise ConfigError(f"sweep: {name} is given twice: in the sweep, and for all of its runs")
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ConfigError(f"sweep: expected a list of values of {name}, received {short(values)}")
        if len({repr(value) for value in values}) < len(values):
            raise ConfigError(f"sweep: expected different values of {name}, received {short(values)}")
    each = [
        make_config(**{**given, **dict(zip(grid, values)), "seed": seed})
        for values in itertools.product(*grid.values())
        for seed in every
    ]
    for name in grid:
        reasons = [without_effect(config).get(name) for config in each]
        if all(reasons):
            raise ConfigError(f"sweep: {name} has no effect in any of the runs: {reasons[0]}")
    return each


def by_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their names, as plain values; ConfigError if there is no such setting."""
    unknown = sorted(set(given) - set(settings()))
    if unknown:
        close = difflib.get_close_matches(unknown[0], settings(), n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"expected names of settings, received {', '.join(unknown)}{meant}")
    return {name: _plain_value(value) for name, value in given.items()}


def _plain_value(value: Any) -> Any:
    """Paths as texts, lists (of GPUs) as tuples."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return tuple(value) if isinstance(value, list) else value


def changed_settings(config: Config) -> dict[str, Any]:
    """The settings that differ from the defaults of the config's own task, model and profile."""
    usual = make_config(config.task, model=config.model, profile=config.profile, source=config.source)
    return {name: getattr(config, name) for name in settings() if getattr(config, name) != getattr(usual, name)}


def depends_on(name: str) -> list[str]:
    """What a setting's default depends on, of task, profile and model."""
    setting = settings()[name]
    overrides = [item for data in DATASETS.values() for item in data.overrides.items()]
    of_tasks = [entry.defaults for table in (KINDS, DATASETS) for entry in table.values()]
    of_profiles = [table for profile in PROFILES.values() for table in profile]
    of_profiles += [table for key, table in overrides if key not in SCENARIOS]
    by = {
        "task": bool(setting.by) or callable(setting.default) or any(name in table for table in of_tasks),
        "profile": any(name in table for table in of_profiles),
        "model": any(name in entry.defaults for entry in learners().values()),
    }
    return [what for what, does in by.items() if does]
