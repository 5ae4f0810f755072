"""Settings of a run that goes on: what may change, and what would make it another run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.config.models import learner_of
from fedmatch_tf.config.record import Config, by_name, make_config, settings
from fedmatch_tf.config.rules import check_value, flag

MAY_CHANGE = frozenset(name for name, setting in settings().items() if setting.may_change)
INPUT_PATHS = frozenset(name for name, setting in settings().items() if setting.input_path)
OF_MACHINE = frozenset(name for name, setting in settings().items() if setting.of_machine)


def recorded_config(values: Mapping[str, Any]) -> Config:
    """The Config that a run's files have. Earlier versions of this program had fewer settings, or other names."""
    before = {name: setting.before for name, setting in settings().items() if setting.before is not None}
    gpu = values.get("gpu")
    return make_config(**{**before, **values, "gpu": tuple(gpu) if isinstance(gpu, list) else gpu})


# Settings that checkpoints of version 0.4.0 do not have.
_ADDED = frozenset(
    {
        "alpha",
        "alpha_labeled",
        "classes_per_client",
        "clients_per_gpu",
        "drop_rate",
        "gpu_memory",
        "init_draws",
        "keep_best",
        "labeled_acc",
        "labeled_clients",
        "labeled_fraction",
        "lr_devices",
        "lr_memory",
        "test_split",
        "unlabeled_per_client",
        "wandb",
    }
)


def missing_settings(values: Mapping[str, Any]) -> list[str]:
    """Settings that every checkpoint has, and this one doesn't."""
    aliases = {alias: name for name, setting in settings().items() for alias in setting.aliases}
    return sorted(set(settings()) - _ADDED - {aliases.get(name, name) for name in values})


def continued(recorded: Config, given: Mapping[str, Any]) -> Config:
    """The config of a run that goes on with these flags: machine settings may change, and there may be more rounds."""
    conflicts = []
    given = _absolute(by_name(given))
    for name, value in given.items():
        check_value(flag(name), value, settings()[name])
        before = getattr(recorded, name)
        more_rounds = name == "num_rounds" and value >= before and not _depends_on_end(recorded)
        other_gpus = name == "gpu" and before is not None
        if value != before and not (name in MAY_CHANGE or more_rounds or other_gpus):
            why = ""
            if name == "num_rounds":
                why = f"; {_depends_on_end(recorded) or 'it may only grow'}"
            conflicts.append(f"{flag(name)}: the run has {before}, received {value}{why}")
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
    return dataclasses.replace(config, **_absolute({name: getattr(config, name) for name in INPUT_PATHS}))


def _absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: str(Path(value).absolute()) if name in INPUT_PATHS and value is not None else value
        for name, value in values.items()
    }


def _depends_on_end(config: Config) -> str:
    """Why a round of this run depends on how many there are; empty if it doesn't."""
    if config.num_steps > 1:
        return "rounds are spread over the streaming steps"
    if learner_of(config.model).depends_on_end:
        return f"the loss of {config.learner} may depend on the share of rounds that is done"
    return ""
