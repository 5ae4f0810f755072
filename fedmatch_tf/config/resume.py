"""Settings of a run that goes on: what may change, and what would make it another run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.base.plugins import is_keras_file
from fedmatch_tf.config.defaults import by_name, make_config
from fedmatch_tf.config.record import Config, settings
from fedmatch_tf.config.rules import check_value, flag

MAY_CHANGE = frozenset(name for name, setting in settings().items() if setting.may_change is True)
INPUT_PATHS = frozenset(name for name, setting in settings().items() if setting.input_path)
OF_MACHINE = frozenset(name for name, setting in settings().items() if setting.of_machine)


def recorded_config(values: Mapping[str, Any]) -> Config:
    """The Config that a run's files have; a setting that they lack had its default."""
    if "task" not in values:
        raise ConfigError("expected the setting task, found none")
    return make_config(**values)


def continued(recorded: Config, given: Mapping[str, Any]) -> Config:
    """The config of a run that goes on with these flags: machine settings may change, and there may be more rounds."""
    conflicts = []
    given = _absolute(by_name(given))
    for name, value in given.items():
        setting = settings()[name]
        check_value(flag(name), value, setting)
        before, may = getattr(recorded, name), setting.may_change
        why = may(recorded, value) if callable(may) else ""
        if value != before and (why or not may):
            conflicts.append(f"{flag(name)}: the run has {before}, received {value}" + (f"; {why}" if why else ""))
    if conflicts:
        raise ConfigError(
            "--resume: expected the settings of the run, received others:\n  " + "\n  ".join(conflicts) + "\n"
            "Leave these flags out, or start a new run"
        )
    if {"gpu", "clients_per_gpu", "backend", "ray_address"} & set(given) and "workers" not in given:
        given = {**given, "workers": None}  # as many as the new backend would have
    return dataclasses.replace(recorded, **given)


def with_absolute_paths(config: Config) -> Config:
    """The config as it means the same from every directory; results stay where --output-path says."""
    return dataclasses.replace(config, **_absolute({name: getattr(config, name) for name in (*INPUT_PATHS, "arch")}))


def _absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    def is_path(name: str, value: Any) -> bool:
        return value is not None and (name in INPUT_PATHS or (name == "arch" and is_keras_file(str(value))))

    return {name: str(Path(value).absolute()) if is_path(name, value) else value for name, value in values.items()}
