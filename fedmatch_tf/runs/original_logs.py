"""The original's log files, server.txt and client-<id>.txt, made from our records."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedmatch_tf.base.atomic import write_text
from fedmatch_tf.config import SCENARIOS, Config, settings
from fedmatch_tf.federation.records import ClientRecord, RoundRecord
from fedmatch_tf.federation.tasks import Score
from fedmatch_tf.runs.records import mean_cost

_CLIENT_SCORES = ("train_loss", "train_acc", "valid_loss", "valid_acc", "test_loss", "test_acc")


class OriginalLogs:
    """One file per actor, complete after every round: a pure function of settings and records."""

    def __init__(self, folder: Path, check_pts: Path, config: Config, records: Sequence[RoundRecord]) -> None:
        """Takes in the rounds so far; a log of a client that is in none of them goes."""
        self._folder = folder
        self._options = original_options(config, folder, check_pts)
        self._server: dict[str, Any] = {
            "c2s": {"sum": [], "sig": [], "psi": []},
            "s2c": {"sum": [], "sig": [], "psi": [], "hlp": []},
            "scores": {name: [] for name in (*_CLIENT_SCORES, "aggr_acc", "aggr_lss")},
            "options": self._options,
        }
        self._clients: dict[int, dict[str, Any]] = {}
        for record in records:
            self._collect(record)
        if records or (folder / "server.txt").exists():
            self._write(self._clients)
        for path in folder.glob("client-*.txt"):
            if re.fullmatch(r"client-\d+\.txt", path.name) and path.name not in {
                f"client-{client}.txt" for client in self._clients
            }:
                path.unlink()

    def add(self, record: RoundRecord) -> None:
        """Writes the server's log anew, and those of the round's clients."""
        self._collect(record)
        self._write([client.client for client in record.clients])

    def _write(self, clients: Iterable[int]) -> None:
        write_text(self._folder / "server.txt", json.dumps(self._server))
        for client in clients:
            write_text(self._folder / f"client-{client}.txt", json.dumps(self._clients[client]))

    def _collect(self, record: RoundRecord) -> None:
        log = self._server
        costs = {
            "s2c": mean_cost([client.s2c for client in record.clients]),
            "c2s": mean_cost([client.c2s for client in record.clients]),
        }
        for way, cost in costs.items():
            for ours, theirs in (("sum", "sum"), ("sigma", "sig"), ("psi", "psi"), ("helpers", "hlp")):
                if theirs in log[way]:
                    log[way][theirs].append(cost[ours])
        _append_scores(log["scores"], record.server_valid, record.server_test)
        log["scores"]["aggr_acc"].append(record.global_test.accuracy)
        log["scores"]["aggr_lss"].append(record.global_test.loss)
        for client in record.clients:
            self._collect_client(client)

    def _collect_client(self, client: ClientRecord) -> None:
        log = self._clients.setdefault(
            client.client,
            {
                "s2c": {"ratio": [], "sig_ratio": [], "psi_ratio": [], "hlp_ratio": []},
                "c2s": {"ratio": [], "psi_ratio": [], "sig_ratio": []},
                "scores": {name: [] for name in _CLIENT_SCORES},
                "options": self._options,
            },
        )
        for way, cost in (("s2c", client.s2c), ("c2s", client.c2s)):
            ratios = {"ratio": cost.sum, "sig_ratio": cost.sigma, "psi_ratio": cost.psi, "hlp_ratio": cost.helpers}
            for name in log[way]:
                log[way][name].append(ratios[name])
        _append_scores(log["scores"], client.valid, client.test)


def _append_scores(scores: dict[str, list[float]], valid: Score | None, test: Score | None) -> None:
    for name, score in (("valid", valid), ("test", test)):
        if score is not None:
            scores[f"{name}_loss"].append(score.loss)
            scores[f"{name}_acc"].append(score.accuracy)


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
