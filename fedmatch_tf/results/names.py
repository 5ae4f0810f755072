"""Names of runs, and of files that are made from labels."""

from __future__ import annotations

import zlib
from collections.abc import Set as AbstractSet

from fedmatch_tf.config import Config, changed_settings
from fedmatch_tf.config.resume import OF_MACHINE

# Settings that change nothing of what a run reaches, and those that tell it from runs of its kind.
ONLY_WATCHES = frozenset({"ablate_eval", "labeled_acc", "keep_best", "eval_clients", "seed", "source"})


def file_name(label: str) -> str:
    """The label with nothing but letters, digits and dashes."""
    plain = "-".join("".join(letter if letter.isalnum() else " " for letter in label).split())
    return plain if len(plain) <= 80 else f"{plain[:70]}-{zlib.crc32(plain.encode()):08x}"


def setting_words(config: Config, leave_out: AbstractSet[str] = frozenset({"arch", "seed", "source"})) -> list[str]:
    """The settings of a run that are not its profile's, in words; where it is worked on is left out."""
    changed = [(name, value) for name, value in changed_settings(config).items() if name not in OF_MACHINE | leave_out]
    return [name.replace("_", "-") + ("" if value is True else f" {value}") for name, value in changed]


def run_words(config: Config) -> list[str]:
    """Model, profile if it isn't the paper's, and what settings are not its profile's."""
    profile = [] if config.profile == "paper" else [f"profile {config.profile}"]
    return [config.model, *profile, *setting_words(config)]
