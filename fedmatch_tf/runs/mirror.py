"""--wandb: a run's settings and scalars beside it at Weights & Biases. Nothing else depends on it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.federation.records import RoundRecord, scalars
from fedmatch_tf.runs.records import Sink


def check_installed(config: Config) -> None:
    """Raises ConfigError if the run is to be mirrored and the package isn't there."""
    if config.wandb is not None and importlib.util.find_spec("wandb") is None:
        raise ConfigError(
            "--wandb: expected the package wandb, which is not installed: pip install 'wandb<0.29'; or leave it out"
        )


class Mirror(Sink):
    """A run at Weights & Biases, if its settings ask for one. What fails there is told once and doesn't end the run.

    The package's own variables say how it goes about it; with WANDB_MODE=offline all stays in the run's folder.
    """

    def __init__(self, config: Config, folder: Path, warn: Callable[[str], None]) -> None:
        self._config, self._folder, self._warn = config, folder, warn
        self._run: Any = None
        if config.wandb is not None:
            self._try(self._begin)

    def on_round(self, record: RoundRecord) -> None:
        """Sends the round's scalars."""
        if self._run is not None:
            self._try(lambda: self._run.log(scalars(record.line()), step=record.round + 1))

    def close(self, failed: bool) -> None:
        """Says how it ended."""
        if self._run is not None:
            self._try(lambda: self._run.finish(exit_code=int(failed)))

    def _begin(self) -> None:
        import wandb

        self._run = wandb.init(
            project=self._config.wandb,
            name=self._folder.name,
            id=self._folder.name,
            resume=None if os.environ.get("WANDB_MODE") == "offline" else "allow",  # who goes on is the same run there
            dir=str(self._folder),
            config=asdict(self._config),
            settings=wandb.Settings(silent=True, console="off"),
        )

    def _try(self, action: Callable[[], Any]) -> None:
        try:
            action()
        except Exception as error:  # whatever a service on the other side of a network may raise
            self._run = None
            self._warn(f"Weights & Biases: {type(error).__name__}: {str(error)[:300]}; the run goes on without it")
