"""Records of a run: rounds.jsonl, the original's server.txt and client-<id>.txt, config.json."""

from __future__ import annotations

import dataclasses
import functools
import json
import platform
import sys
import zlib
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.config import SCENARIOS, Config
from fedmatch_tf.config.version import VERSION
from fedmatch_tf.core.wire import Cost
from fedmatch_tf.runs.atomic import write_text
from fedmatch_tf.simulation.tasks import Score


class ClientRecord(NamedTuple):
    """One client's round."""

    client: int
    s2c: Cost
    c2s: Cost
    valid: Score | None  # None where the global model's validation decides on lr
    test: Score | None
    lr: float
    known_acc: tuple[float, float] | None = None  # on labelled data, before and after the unsupervised phases


class RoundRecord(NamedTuple):
    """One round; costs are means over its clients."""

    round_num: int
    task_step: int
    clients: tuple[ClientRecord, ...]
    global_test: Score  # mean over clients where they share nothing
    global_valid: Score | None  # where it decides on lr
    part_tests: Mapping[str, Score]  # with sigma only and with psi only, if the run asks for it
    server_valid: Score | None  # labels-at-server: after the server's own epochs
    server_test: Score | None
    confident: float  # share of unlabelled rows that got a pseudo-label
    pseudo_label_acc: float | None  # None if there was no pseudo-label
    helpers: Mapping[int, Sequence[int]]  # client -> who helped it
    seconds: float


def mean_cost(costs: Sequence[Cost]) -> dict[str, float]:
    """Means over clients, as rounds.jsonl has them."""
    count = len(costs)
    return {
        "sum": sum(cost.sum for cost in costs) / count,
        "sigma": sum(cost.sigma for cost in costs) / count,
        "psi": sum(cost.psi for cost in costs) / count,
        "helpers": sum(cost.helpers for cost in costs) / count,
        "bytes": sum(cost.num_bytes for cost in costs) / count,
    }


def to_line(record: RoundRecord) -> dict[str, Any]:
    """The round's object in rounds.jsonl."""
    clients = record.clients
    tests = [client.test.accuracy for client in clients if client.test is not None]
    known = [client.known_acc for client in clients if client.known_acc is not None]
    extra: dict[str, Any] = {f"test_acc_{part}": score.accuracy for part, score in record.part_tests.items()}
    if known:
        extra["labeled_acc"] = {
            "before": sum(before for before, _ in known) / len(known),
            "after": sum(after for _, after in known) / len(known),
        }
    return {
        "round": record.round_num,
        "task_step": record.task_step,
        "clients": [client.client for client in clients],
        "test_acc": record.global_test.accuracy,
        "test_loss": record.global_test.loss,
        "local_test_acc": sum(tests) / len(tests) if tests else None,
        "valid_loss": _mean_valid_loss(record),
        "s2c": mean_cost([client.s2c for client in clients]),
        "c2s": mean_cost([client.c2s for client in clients]),
        "confident": record.confident,
        "pseudo_label_acc": record.pseudo_label_acc,
        "helpers": {str(client): list(helpers) for client, helpers in record.helpers.items()},
        "lr": sum(client.lr for client in clients) / len(clients),
        "seconds": round(record.seconds, 3),
        **extra,
    }


def _mean_valid_loss(record: RoundRecord) -> float:
    """Mean over the clients that validate; else the global model's."""
    losses = [client.valid.loss for client in record.clients if client.valid is not None]
    losses += [record.global_valid.loss] if record.global_valid else []
    return sum(losses) / len(losses)


class Mark(NamedTuple):
    """How much of a file of records is meant, and the checksum of that."""

    num_bytes: int
    crc: int


class RecordFile:
    """Every round's full record, a line each: what logs are made from again when a run goes on."""

    def __init__(self, path: Path, mark: Mark) -> None:
        """What lies behind the mark is cut off: rounds that no checkpoint knows of."""
        self._path, self.mark = path, mark
        with path.open("ab") as file:
            file.truncate(mark.num_bytes)

    def add(self, record: RoundRecord) -> None:
        """Writes the record behind the mark and moves the mark."""
        line = json.dumps(record._asdict()).encode() + b"\n"
        append(self._path, line, self.mark.num_bytes)
        self.mark = Mark(self.mark.num_bytes + len(line), zlib.crc32(line, self.mark.crc))

    def read(self) -> list[RoundRecord]:
        """The records up to the mark."""
        return [_decode(json.loads(line)) for line in self._path.read_bytes().splitlines()]


def _decode(fields: dict[str, Any]) -> RoundRecord:
    score = lambda values: None if values is None else Score(*values)  # noqa: E731
    clients = tuple(
        ClientRecord(client, Cost(*s2c), Cost(*c2s), score(valid), score(test), lr, known and (known[0], known[1]))
        for client, s2c, c2s, valid, test, lr, known in fields["clients"]
    )
    helpers = {int(client): tuple(chosen) for client, chosen in fields["helpers"].items()}
    scores = {name: score(fields[name]) for name in ("global_test", "global_valid", "server_valid", "server_test")}
    parts = {name: Score(*values) for name, values in fields["part_tests"].items()}
    return RoundRecord(**{**fields, **scores, "clients": clients, "helpers": helpers, "part_tests": parts})


def append(path: Path, content: bytes, size: int) -> None:
    """Writes behind the first `size` bytes of a file; if that fails (a full disk), it has `size` bytes again."""
    with path.open("ab", buffering=0) as file:  # no buffer that a later close would write
        try:
            file.truncate(size)
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except BaseException:
            file.truncate(size)
            raise


class RunLog:
    """The files of one run, complete after every round: a pure function of its settings and records."""

    def __init__(self, folder: Path, check_pts: Path, config: Config, records: Sequence[RoundRecord] = ()) -> None:
        """Writes the files for the rounds so far; a log of a client that is in none of them goes."""
        self._folder = folder
        self._options = original_options(config, folder, check_pts)
        self._server: dict[str, Any] = {
            "c2s": {"sum": [], "sig": [], "psi": []},
            "s2c": {"sum": [], "sig": [], "psi": [], "hlp": []},
            "scores": {name: [] for name in (*_CLIENT_SCORES, "aggr_acc", "aggr_lss")},
            "options": self._options,
        }
        self._clients: dict[int, dict[str, Any]] = {}
        self.lines: list[dict[str, Any]] = []
        settings = {"settings": dataclasses.asdict(config), "versions": versions()}
        write_text(folder / "config.json", json.dumps(settings, indent=1) + "\n")
        for record in records:
            self._collect(record)
        text = "".join(_json_line(line) for line in self.lines)
        self._size = len(text.encode())
        if records or (folder / ROUNDS).exists():
            write_text(folder / ROUNDS, text)
            self._write_logs(self._clients)
        for path in folder.glob("client-*.txt"):
            if path.name not in {f"client-{client}.txt" for client in self._clients}:
                path.unlink()

    def add(self, record: RoundRecord) -> None:
        """Writes the round: a line of rounds.jsonl, and the original's logs anew."""
        self._collect(record)
        line = _json_line(self.lines[-1]).encode()
        append(self._folder / ROUNDS, line, self._size)
        self._size += len(line)
        self._write_logs([client.client for client in record.clients])

    def _collect(self, record: RoundRecord) -> None:
        self.lines.append(to_line(record))
        self._add_server(record, self.lines[-1])
        for client in record.clients:
            self._add_client(client)

    def _write_logs(self, clients: Iterable[int]) -> None:
        write_text(self._folder / "server.txt", json.dumps(self._server))
        for client in clients:
            write_text(self._folder / f"client-{client}.txt", json.dumps(self._clients[client]))

    def _add_server(self, record: RoundRecord, line: Mapping[str, Any]) -> None:
        log = self._server
        for way in ("s2c", "c2s"):
            for ours, theirs in (("sum", "sum"), ("sigma", "sig"), ("psi", "psi"), ("helpers", "hlp")):
                if theirs in log[way]:
                    log[way][theirs].append(line[way][ours])
        _append_scores(log["scores"], record.server_valid, record.server_test)
        log["scores"]["aggr_acc"].append(record.global_test.accuracy)
        log["scores"]["aggr_lss"].append(record.global_test.loss)

    def _add_client(self, client: ClientRecord) -> None:
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


ROUNDS = "rounds.jsonl"


def _json_line(line: Mapping[str, Any]) -> str:
    return json.dumps(line, allow_nan=False) + "\n"


_CLIENT_SCORES = ("train_loss", "train_acc", "valid_loss", "valid_acc", "test_loss", "test_acc")


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
        "archi": config.arch,
        "num_labels_per_class": config.labels_per_class,
        "h_interval": config.helper_interval,
        "log_dir": str(folder),
        "check_pts": str(check_pts),
    }


@functools.cache
def versions() -> Mapping[str, str]:
    """What the run was made with."""
    packages = ("tensorflow", "tensorflow-addons", "numpy", "scikit-learn")
    found = {name: metadata.version(name) for name in packages}
    return {"fedmatch_tf": VERSION, "python": platform.python_version(), "platform": sys.platform, **found}
