"""A run's records: config.json, rounds.jsonl, and the checkpoint's, from which all logs can be made again."""

from __future__ import annotations

import dataclasses
import functools
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from itertools import zip_longest
from pathlib import Path
from typing import Any

from fedmatch_tf.algorithms.wire import Cost
from fedmatch_tf.base.atomic import not_through_links, write_text
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.version import VERSION
from fedmatch_tf.config import Config
from fedmatch_tf.federation.records import ClientRecord, RoundRecord
from fedmatch_tf.federation.tasks import LabeledAcc, Score
from fedmatch_tf.runs import schema


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
    measured = [client.labeled_acc for client in clients if client.labeled_acc is not None]
    extra: dict[str, Any] = {f"test_acc_{part}": score.accuracy for part, score in record.part_tests.items()}
    if record.dropped is not None:
        extra["dropped"] = list(record.dropped)
    if record.global_valid is not None:
        extra["global_valid_loss"] = record.global_valid.loss
    if record.server_lr is not None:
        extra["server_lr"] = record.server_lr
    if measured:
        by_step = zip_longest(*(acc.steps for acc in measured))  # clients may differ in their number of steps
        extra["labeled_acc"] = {
            "before": _mean([acc.before for acc in measured]),
            "after": _mean([acc.after for acc in measured]),
            "steps": [_mean([value for value in step if value is not None]) for step in by_step],
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


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_valid_loss(record: RoundRecord) -> float:
    """Mean over the clients that validate; else the global model's."""
    losses = [client.valid.loss for client in record.clients if client.valid is not None]
    return _mean(losses) if losses or record.global_valid is None else record.global_valid.loss


def encode(record: RoundRecord) -> bytes:
    """The record as a line of what a checkpoint has of them."""
    return json.dumps(record._asdict()).encode() + b"\n"


def decode(lines: bytes) -> list[RoundRecord]:
    """The records that a checkpoint has."""
    return [_decode(json.loads(line)) for line in lines.splitlines()]


def check_lines(content: bytes, num_rounds: int, num_clients: int) -> None:
    """Raises DataError unless these are the records of so many rounds."""
    lines = content.splitlines()
    if len(lines) != num_rounds:
        raise DataError(f"records: expected {num_rounds} rounds, received {len(lines)} lines")
    for number, line in enumerate(lines):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"records: line {number + 1}: expected JSON ({str(error)[:100]})") from error
        schema.check_record(fields, number, num_clients)


def _decode(fields: dict[str, Any]) -> RoundRecord:
    score = lambda values: None if values is None else Score(*values)  # noqa: E731
    clients = tuple(
        ClientRecord(client, Cost(*s2c), Cost(*c2s), score(valid), score(test), lr, acc and _labeled_acc(*acc))
        for client, s2c, c2s, valid, test, lr, acc in fields["clients"]
    )
    helpers = {int(client): tuple(chosen) for client, chosen in fields["helpers"].items()}
    scores = {name: score(fields[name]) for name in ("global_test", "global_valid", "server_valid", "server_test")}
    parts = {name: Score(*values) for name, values in fields["part_tests"].items()}
    dropped = None if fields.get("dropped") is None else tuple(fields["dropped"])
    read = {"clients": clients, "helpers": helpers, "part_tests": parts, "dropped": dropped}
    return RoundRecord(**{**fields, **scores, **read})


def _labeled_acc(before: float, after: float, steps: Sequence[float] = ()) -> LabeledAcc:
    return LabeledAcc(before, after, tuple(steps))  # version 0.4.0 had no steps


def append(path: Path, content: bytes, size: int) -> None:
    """Writes behind the first `size` bytes of a file; if that fails (a full disk), it has `size` bytes again."""
    with open(path, "ab", buffering=0, opener=not_through_links) as file:  # no buffer that a later close would write
        try:
            file.truncate(size)
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except BaseException:
            file.truncate(size)
            raise


class RoundLog:
    """config.json and rounds.jsonl of a run, complete after every round: a pure function of settings and records."""

    def __init__(self, folder: Path, config: Config, lines: list[dict[str, Any]]) -> None:
        """Writes the files for the rounds so far, whose objects are these; more are added to them."""
        self._folder, self._path, self.lines = folder, folder / ROUNDS, lines
        self.write_settings(config)
        text = "".join(_json_line(line) for line in self.lines)
        self._size = len(text.encode())
        if lines or self._path.exists():
            write_text(self._path, text)

    def write_settings(self, config: Config) -> None:
        """Writes config.json anew."""
        settings = {"settings": dataclasses.asdict(config), "versions": versions()}
        write_text(self._folder / "config.json", json.dumps(settings, indent=1) + "\n")

    def add(self, record: RoundRecord) -> None:
        """Writes the round's line."""
        self.lines.append(to_line(record))
        line = _json_line(self.lines[-1]).encode()
        append(self._path, line, self._size)
        self._size += len(line)


ROUNDS = "rounds.jsonl"


def _json_line(line: Mapping[str, Any]) -> str:
    return json.dumps(line, allow_nan=False) + "\n"


@functools.cache
def versions() -> Mapping[str, str]:
    """What the run was made with; tensorflow-addons or tf-keras tell the base (docs/INSTALL.md)."""
    found = {}
    for name in ("tensorflow", "tensorflow-addons", "tf-keras", "numpy", "scikit-learn"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {"fedmatch_tf": VERSION, "python": platform.python_version(), "platform": sys.platform, **found}
