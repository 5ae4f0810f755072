"""Runs as they lie on a disk, without any training."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from fedmatch_tf.config import make_config
from fedmatch_tf.federation.records import RoundRecord, read_round
from fedmatch_tf.results import results


def line(number: int, accuracy: float, **more: Any) -> dict[str, Any]:
    """As the first records that ship have it: without losses, norms and what else came later."""
    cost = {"sum": 1.5, "sigma": 1.0, "psi": 0.25, "helpers": 0.25, "bytes": 2e6}
    return {
        "round": number,
        "task_step": 0,
        "clients": [0, 1],
        "test_acc": accuracy,
        "test_loss": 1.0,
        "local_test_acc": None,
        "valid_loss": 1.0,
        "s2c": {**cost, "sum": 2.0 if number == 0 else 1.0},
        "c2s": {**cost, "sum": 0.5},
        "confident": 0.5,
        "pseudo_label_acc": None,
        "helpers": {},
        "lr": 0.001,
        "seconds": 30.0,
        **more,
    }


def record(number: int, accuracy: float, **more: Any) -> RoundRecord:
    return read_round(line(number, accuracy, **more), number, 100)


def write_run(folder: Path, accuracies: list[float], task: str = "lc-biid-c10", **given: Any) -> Path:
    config = make_config(task, **{"num_rounds": len(accuracies), **given})
    folder.mkdir(parents=True)
    content = {"settings": dataclasses.asdict(config), "versions": {}}
    (folder / "config.json").write_text(json.dumps(content))
    write_rounds(folder, [line(number, accuracy) for number, accuracy in enumerate(accuracies)])
    return folder


def write_rounds(folder: Path, lines: list[dict[str, Any]]) -> None:
    (folder / "rounds.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in lines))


def groups_of(logs: Path) -> list[results.Group]:
    return results.group(results.find([str(logs / "*")]))
