"""From what the user gives to a Config: defaults of settings, then those of task, profile and learner."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from typing import Any

from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.base.plugins import learners
from fedmatch_tf.config.models import learner_of
from fedmatch_tf.config.profiles import PROFILES
from fedmatch_tf.config.record import Config, settings
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
