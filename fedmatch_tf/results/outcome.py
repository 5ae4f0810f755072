"""A run's result in a few lines, beside what others report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmatch_tf.config import Config
from fedmatch_tf.results.confusions import Confusion, read_confusion
from fedmatch_tf.results.references import Reference, References
from fedmatch_tf.results.results import FINISHED, Result
from fedmatch_tf.results.summary import average, best_validated, returning_cost
from fedmatch_tf.runs.display import WHAT_HELPS, duration

Row = tuple[str, Any]  # name, text; without a text, the row is left out


def in_rows(rows: Sequence[Row]) -> str:
    """A line for each row that has a text."""
    return "\n".join(f"  {name:<19} {text}" for name, text in rows if text)


def _beside(reference: Reference, profile: str) -> list[Row]:
    """What the paper, other papers and shipped records have, and what is not as they have it."""
    paper, published = reference.paper, reference.published
    value = "has no value for these settings"
    if paper is not None:
        deviation = "" if paper.deviation is None else f" ± {paper.deviation:.2f}"
        value = f"{paper.accuracy:.2f}{deviation} %{', mean of the clients' if paper.local else ''} ({paper.where})"
    theirs = ", ".join(f"{each.model} {each.accuracy:g} %" for each in published)
    return [
        ("the paper", value),
        ("published", published and f"{theirs} ({published[0].where})"),
        (f"unlike profile {profile}", reference.unlike_profile),
        ("shipped records", reference.shipped),
        ("not the paper's", reference.other_settings),
    ]


def _size(num_bytes: float) -> str:
    """In MB, or in kB if that is less than one."""
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"


MOST_CLASSES = 12  # that a line can hold


def _by_class(confusion: Confusion | None) -> list[Row]:
    """Accuracy by class where there are few, macro-F1, and what looks wrong."""
    if confusion is None:
        return []
    each = [f"{name}: {100 * right:.0f} %" for name, right in zip(confusion.class_names, confusion.recall)]
    of_classes = f"{', '.join(each)}; " if len(each) <= MOST_CLASSES else ""
    only = confusion.only_class
    return [
        ("by class", f"{of_classes}macro-F1 {100 * confusion.f1.mean():.2f} %"),
        ("note", only is not None and f"the model predicts {only} for every image. {WHAT_HELPS}"),
    ]


def describe(result: Result, references: References | None = None) -> str:
    """A run's result as a small table."""
    if not result.lines:
        return f"  no result: {result.remark}"
    lines, config = result.lines, Config(**result.settings)
    best, validated = max(lines, key=lambda line: line["test_acc"]), best_validated(lines)
    share, sent = ({way: average(lines, way, what) for way in ("s2c", "c2s")} for what in ("sum", "bytes"))
    local = lines[-1]["local_test_acc"]
    gone, visits = (sum(len(line[name] or ()) for line in lines) for name in ("dropped", "clients"))
    cost = returning_cost(lines)
    differs = cost is not None and abs(cost - share["s2c"]) >= 0.005
    returning = f" ({100 * (cost or 0):.0f} % without first visits)" if differs else ""
    rate = lines[-1]["server_lr"] or config.lr  # of the server's own epochs; earlier versions have none on record
    rows: list[Row] = [
        ("task, model", f"{config.task}, {config.model} ({config.arch}, profile {config.profile}, seed {config.seed})"),
        ("rounds", f"{len(lines)}, {config.clients_per_round} of {config.num_clients} clients per round"),
        ("not finished", result.state != FINISHED and result.remark),
        (
            "test accuracy",
            f"{100 * lines[-1]['test_acc']:.2f} % at the end, highest {100 * best['test_acc']:.2f} % "
            f"in round {best['round'] + 1} (chosen on test data)",
        ),
        (
            "best model",
            validated
            and f"{100 * validated['test_acc']:.2f} % in round {validated['round'] + 1}, of the lowest validation "
            f"loss, {validated['global_valid_loss']:.4f}",
        ),
        ("mean of the clients", local is not None and f"{100 * local:.2f} % at the end, after local training"),
        *_by_class(read_confusion(result.confusion)),
        *(_beside(references(result.settings), config.profile) if references else []),
        (
            "cost to a client",
            f"{100 * share['s2c']:.0f} % of one parameter set per round{returning}, {_size(sent['s2c'])}",
        ),
        ("lost updates", gone and f"{gone} of {visits}, which count as 0 in the cost from a client"),
        ("cost from a client", f"{100 * share['c2s']:.0f} %, {_size(sent['c2s'])}"),
        # A very small rate trains nothing.
        ("server's rate", rate != config.lr and f"{config.lr:.3g} at the start, {rate:.3g} at the end"),
        ("time", duration(sum(line["seconds"] for line in lines))),
    ]
    return in_rows(rows)
