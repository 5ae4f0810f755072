"""A run's result in a few lines, beside what others report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmatch_tf.config import Config
from fedmatch_tf.results.confusions import Confusion, read_confusion
from fedmatch_tf.results.references import Reference, References
from fedmatch_tf.results.results import FINISHED, Result
from fedmatch_tf.results.summary import best_validated, returning_cost
from fedmatch_tf.runs.display import WHAT_HELPS, duration


def _beside(reference: Reference, profile: str) -> list[tuple[str, str]]:
    """What the paper, other papers and shipped records have, and what is not as they have it."""
    paper, published = reference.paper, reference.published
    value = "has no value for these settings"
    if paper is not None:
        deviation = "" if paper.deviation is None else f" ± {paper.deviation:.2f}"
        value = f"{paper.accuracy:.2f}{deviation} %{', mean of the clients' if paper.local else ''} ({paper.where})"
    theirs = ", ".join(f"{each.model} {each.accuracy:g} %" for each in published)
    rows = [
        ("the paper", value),
        ("published", published and f"{theirs} ({published[0].where})"),
        (f"unlike profile {profile}", reference.unlike_profile),
        ("shipped records", reference.shipped),
        ("not the paper's", reference.other_settings),
    ]
    return [(name, text) for name, text in rows if text]


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
    last = lines[-1]["server_lr"] or config.lr  # runs of earlier versions have none on record
    return [] if last == config.lr else [("server's rate", f"{config.lr:.3g} at the start, {last:.3g} at the end")]


def describe(result: Result, references: References | None = None) -> str:
    """A run's result as a small table."""
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
    gone, visits = (sum(len(line[name] or ()) for line in lines) for name in ("dropped", "clients"))
    lost = [("lost updates", f"{gone} of {visits}, which count as 0 in the cost from a client")] if gone else []
    cost = returning_cost(lines)
    told = cost is not None and abs(cost - mean["s2c"]) >= 0.005
    returning = f" ({100 * (cost or 0):.0f} % without first visits)" if told else ""
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
        *(_beside(references(result.settings), config.profile) if references else []),
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
