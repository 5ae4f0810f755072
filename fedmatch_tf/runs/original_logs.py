"""The original's log files, server.txt and client-<id>.txt, made from our records."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmatch_tf.base.atomic import write_text
from fedmatch_tf.config import SCENARIOS, Config, settings
from fedmatch_tf.federation.records import ActorScores, RoundRecord
from fedmatch_tf.runs.records import Sink

_SCORES = ("train_loss", "train_acc", "valid_loss", "valid_acc", "test_loss", "test_acc")
_COSTS = {"sum": "sum", "sig": "sigma", "psi": "psi", "hlp": "helpers"}  # the original's name -> ours
_RATIOS = {"ratio": "sum", "sig_ratio": "sigma", "psi_ratio": "psi", "hlp_ratio": "helpers"}


def _empty(options: Mapping[str, Any], costs: Mapping[str, str], scores: Sequence[str] = _SCORES) -> dict[str, Any]:
    """A log before the first round; nobody sends helpers to the server."""
    return {
        "c2s": {name: [] for name, ours in costs.items() if ours != "helpers"},
        "s2c": {name: [] for name in costs},
        "scores": {name: [] for name in scores},
        "options": options,
    }


class OriginalLogs(Sink):
    """One file per actor, complete after every round: a pure function of settings and records."""

    def __init__(self, folder: Path, check_pts: Path, config: Config, records: Sequence[RoundRecord]) -> None:
        """Takes in the rounds so far; a log of a client that is in none of them goes."""
        self._folder = folder
        self._options = original_options(config, folder, check_pts)
        self._server = _empty(self._options, _COSTS, (*_SCORES, "aggr_acc", "aggr_lss"))
        self._clients: dict[int, dict[str, Any]] = {}
        for record in records:
            self._collect(record)
        if records or (folder / "server.txt").exists():
            self._write(self._clients)
        for path in folder.glob("client-*.txt"):
            number = re.fullmatch(r"client-(\d+)\.txt", path.name)
            if number and int(number[1]) not in self._clients:
                path.unlink()

    def on_round(self, record: RoundRecord) -> None:
        """Writes the server's log anew, and those of the round's clients."""
        self._collect(record)
        self._write(record.clients)

    def _write(self, clients: Iterable[int]) -> None:
        write_text(self._folder / "server.txt", json.dumps(self._server))
        for client in clients:
            write_text(self._folder / f"client-{client}.txt", json.dumps(self._clients[client]))

    def _collect(self, record: RoundRecord) -> None:
        assert record.actors is not None, "checkpoints have them"
        _append(self._server, record, _COSTS, record.actors.server)
        self._server["scores"]["aggr_acc"].append(record.test_acc)
        self._server["scores"]["aggr_lss"].append(record.test_loss)
        for client in record.actors.clients:
            log = self._clients.setdefault(client.client, _empty(self._options, _RATIOS))
            _append(log, client, _RATIOS, client.scores)


def _append(log: dict[str, Any], costs: Any, names: Mapping[str, str], scores: ActorScores) -> None:
    """Adds a round's costs under these names, and the scores that there are."""
    for way in ("s2c", "c2s"):
        for theirs, values in log[way].items():
            values.append(getattr(getattr(costs, way), names[theirs]))
    for name, value in scores._asdict().items():
        if value is not None:
            log["scores"][name].append(value)


def original_options(config: Config, folder: Path, check_pts: Path) -> dict[str, Any]:
    """Our settings, and the original's names for those that it calls otherwise."""
    return {
        **dataclasses.asdict(config),
        "work_type": "train",
        "scenario": SCENARIOS[config.scenario],
        **{setting.original: getattr(config, name) for name, setting in settings().items() if setting.original},
        "log_dir": str(folder),
        "check_pts": str(check_pts),
    }
