"""A run's result in a few lines, beside what the paper has."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmatch_tf.config import Config
from fedmatch_tf.results.confusions import Confusion, read_confusion
from fedmatch_tf.results.evidence import beside
from fedmatch_tf.results.field import published, unlike_profile
from fedmatch_tf.results.paper import other_settings, reported
from fedmatch_tf.results.results import FINISHED, read
from fedmatch_tf.results.summary import best_validated, returning_cost
from fedmatch_tf.runs.display import WHAT_HELPS, duration


def _published(config: Config) -> list[tuple[str, str]]:
    """What papers of the field report for the run's setting, and what is not as they have it."""
    found = published(dataclasses.asdict(config))
    if not found:
        return []
    text = ", ".join(f"{value.model} {value.accuracy:g} %" for value in found)
    others = unlike_profile(config)
    return [
        ("published", f"{text} ({found[0].where})"),
        *([(f"unlike profile {config.profile}", others)] if others else []),
    ]


def _size(num_bytes: float) -> str:
    """In MB, or in kB if that is less than one."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"


MOST_CLASSES = 12  # that a line can hold


def _by_class(confusion: Confusion | None) -> list[tuple[str, str]]:
    """Accuracy by class where there are few, macro-F1, and what looks wrong."""
    if confusion is None:
        return []
    told = []
    if len(confusion.class_names) <= MOST_CLASSES:
        each = [f"{name}: {100 * right:.0f} %" for name, right in zip(confusion.class_names, confusion.recall)]
        told.append(", ".join(each))
    told.append(f"macro-F1 {100 * confusion.f1.mean():.2f} %")
    rows = [("by class", "; ".join(told))]
    if confusion.only_class is not None:
        rows.append(("note", f"the model predicts {confusion.only_class} for every image. {WHAT_HELPS}"))
    return rows


def _server_rate(config: Config, lines: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """What became of the learning rate of the server's own epochs, if it fell: a very small one trains nothing."""
    last = lines[-1].get("server_lr", config.lr)  # runs of earlier versions have none on record
    return [] if last == config.lr else [("server's rate", f"{config.lr:.3g} at the start, {last:.3g} at the end")]


def describe(folder: Path) -> str:
    """The result of the run in this folder as a small table."""
    result = read(folder)
    if not result.lines:
        return f"  no result: {result.remark}"
    lines, config = result.lines, Config(**result.settings)
    best = max(lines, key=lambda line: line["test_acc"])
    mean = {way: sum(line[way]["sum"] for line in lines) / len(lines) for way in ("s2c", "c2s")}
    sent = {way: sum(line[way]["bytes"] for line in lines) / len(lines) for way in ("s2c", "c2s")}
    last = lines[-1]["local_test_acc"]
    local = [] if last is None else [("mean of the clients", f"{100 * last:.2f} % at the end, after local training")]
    chosen = best_validated(lines)
    validated = []
    if chosen is not None:
        text = f"{100 * chosen['test_acc']:.2f} % in round {chosen['round'] + 1}, of the lowest validation loss"
        validated = [("best model", f"{text}, {chosen['global_valid_loss']:.4f}")]
    gone, visits = (sum(len(line.get(name, ())) for line in lines) for name in ("dropped", "clients"))
    lost = [("lost updates", f"{gone} of {visits}, which count as 0 in the cost from a client")] if gone else []
    cost = returning_cost(lines)
    told = cost is not None and abs(cost - mean["s2c"]) >= 0.005
    returning = f" ({100 * (cost or 0):.0f} % without first visits)" if told else ""
    value = reported(result.settings)
    paper = "has no value for these settings"
    if value is not None:
        deviation = "" if value.deviation is None else f" ± {value.deviation:.2f}"
        paper = f"{value.accuracy:.2f}{deviation} %{', mean of the clients' if value.local else ''} ({value.where})"
    by_class = _by_class(read_confusion(result.confusion))
    rows = [
        ("task, model", f"{config.task}, {config.model} ({config.arch}, profile {config.profile}, seed {config.seed})"),
        ("rounds", f"{len(lines)}, {config.clients_per_round} of {config.num_clients} clients per round"),
        *([] if result.state == FINISHED else [("not finished", result.remark)]),
        (
            "test accuracy",
            f"{100 * lines[-1]['test_acc']:.2f} % at the end, highest {100 * best['test_acc']:.2f} % "
            f"in round {best['round'] + 1} (chosen on test data)",
        ),
        *validated,
        *local,
        *by_class,
        ("the paper", paper),
        *_published(config),
        *([("shipped records", shipped)] if (shipped := beside(result.settings)) else []),
        *([("not the paper's", others)] if value is not None and (others := other_settings(config)) else []),
        (
            "cost to a client",
            f"{100 * mean['s2c']:.0f} % of one parameter set per round{returning}, {_size(sent['s2c'])}",
        ),
        *lost,
        ("cost from a client", f"{100 * mean['c2s']:.0f} %, {_size(sent['c2s'])}"),
        *_server_rate(config, lines),
        ("time", f"{duration(sum(line['seconds'] for line in lines))}"),
    ]
    return "\n".join(f"  {name:<19} {value}" for name, value in rows)
