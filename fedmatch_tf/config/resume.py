"""Settings of a run that goes on: what may change, and what would make it another run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmatch_tf.config.config import Config, ConfigError, flag

# Where and how a run is worked on; they may change when it goes on, as no result depends on them.
FREE = {
    "workers", "backend", "ray_address", "ray_data", "profile_run", "task_timeout", "task_tries", "checkpoint_every",
    "store", "dataset_path", "source",
}  # fmt: skip


def continued(recorded: Config, given: Mapping[str, Any]) -> Config:
    """The config of a run that goes on with these flags: machine settings may change, and there may be more rounds."""
    conflicts = []
    given = _absolute(given)
    for name, value in given.items():
        there = getattr(recorded, name)
        more_rounds = name == "num_rounds" and value >= there and not _depends_on_end(recorded)
        other_gpus = name == "gpu" and there is not None
        if value != there and not (name in FREE or more_rounds or other_gpus):
            why = ""
            if name == "num_rounds":
                why = f"; {_depends_on_end(recorded) or 'it may only grow'}"
            conflicts.append(f"{flag(name)}: the run has {there}, received {value}{why}")
    if conflicts:
        raise ConfigError(
            "--resume: expected the settings of the run, received others:\n  " + "\n  ".join(conflicts) + "\n"
            "Leave these flags out, or start a new run"
        )
    if {"gpu", "backend", "ray_address"} & set(given) and "workers" not in given:
        given = {**given, "workers": None}  # as many as the new backend would have
    return dataclasses.replace(recorded, **given)


def with_absolute_paths(config: Config) -> Config:
    """The config as it means the same from every directory; results stay where --output-path says."""
    return dataclasses.replace(config, **_absolute({name: getattr(config, name) for name in _INPUT_PATHS}))


_INPUT_PATHS = ("source", "dataset_path", "init_weights", "probe_image")


def _absolute(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: str(Path(value).absolute()) if name in _INPUT_PATHS and value is not None else value
        for name, value in values.items()
    }


def _depends_on_end(config: Config) -> str:
    """Why a round of this run depends on how many there are; empty if it doesn't."""
    if config.num_steps > 1:
        return "rounds are spread over the streaming steps"
    if config.learner not in ("fedmatch", "sl", "fixmatch"):
        return f"the loss of {config.learner} may depend on the share of rounds that is done"
    return ""
