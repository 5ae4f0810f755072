"""Means and deviations over the seeds of a group of runs, and what others report beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedmatch_tf.federation.records import Figure
from fedmatch_tf.results.confusions import Confusion, read_confusion
from fedmatch_tf.results.references import Reference, References
from fedmatch_tf.results.results import Group


class Mean(NamedTuple):
    """A mean over runs; the deviation is that of a sample, None with one run."""

    value: float
    deviation: float | None


class Summary(NamedTuple):
    """A group's figures; None where no finished run has any."""

    group: Group
    final: Mean | None  # percent
    best: Mean | None  # percent: the highest of all rounds, chosen on test data
    validated: Mean | None  # percent: of the model with the lowest validation loss, where that was measured
    validation: Mean | None  # loss in the last round: of the global model where that was measured, else of the clients
    local: Mean | None  # percent: mean of the clients after their training, in the last round
    s2c: Mean | None  # share of one parameter set, mean over rounds
    s2c_returning: Mean | None  # the same, mean over visits of clients that have been there before
    c2s: Mean | None
    megabytes: Mean | None  # a client's round, both ways
    full_megabytes: Mean | None  # the same if all weights were sent; None where they are
    minutes: Mean | None
    macro_f1: Mean | None  # percent: of the final global model, mean over classes
    confusions: list[Confusion]  # of the final global models
    reference: Reference  # what others report

    @property
    def difference(self) -> float | None:
        """Our accuracy minus the paper's, in points, of the same measure; None unless settings and rounds agree."""
        paper = self.reference.paper
        ours = self.local if paper and paper.local else self.final
        if paper is None or ours is None or self.reference.other_settings:
            return None
        return ours.value - paper.accuracy


def mean(values: Sequence[float]) -> Mean | None:
    """The mean and sample deviation."""
    if not values:
        return None
    centre = math.fsum(values) / len(values)
    if len(values) == 1:
        return Mean(centre, None)
    variance = math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)
    return Mean(centre, math.sqrt(variance))


def summarise(group: Group, references: References | None = None) -> Summary:
    """The figures of the group's finished runs."""
    runs = [result.lines for result in group.finished]
    local = [lines[-1]["local_test_acc"] for lines in runs]
    read = [read_confusion(result.confusion) for result in group.finished]
    confusions = [confusion for confusion in read if confusion is not None]
    return Summary(
        group,
        final=mean([100 * lines[-1]["test_acc"] for lines in runs]),
        best=mean([100 * max(line["test_acc"] for line in lines) for lines in runs]),
        validated=mean([100 * line["test_acc"] for lines in runs if (line := best_validated(lines)) is not None]),
        validation=mean([_validation(lines[-1]) for lines in runs]),
        local=mean([100 * value for value in local if value is not None]),
        s2c=mean([average(lines, "s2c", "sum") for lines in runs]),
        s2c_returning=mean([cost for lines in runs if (cost := returning_cost(lines)) is not None]),
        c2s=mean([average(lines, "c2s", "sum") for lines in runs]),
        megabytes=mean([(average(lines, "s2c", "bytes") + average(lines, "c2s", "bytes")) / 1e6 for lines in runs]),
        full_megabytes=mean([full / 1e6 for lines in runs if (full := full_bytes(lines)) is not None]),
        minutes=mean([math.fsum(line["seconds"] for line in lines) / 60 for lines in runs]),
        macro_f1=mean([100 * float(confusion.f1.mean()) for confusion in confusions]),
        confusions=confusions,
        reference=references(group.settings) if references else Reference(),
    )


def _validation(line: Mapping[str, Any]) -> float:
    found = line["global_valid_loss"]
    return float(line["valid_loss"] if found is None else found)


def best_validated(lines: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The first round with the lowest validation loss of the global model; None where that was not measured."""
    if any(line["global_valid_loss"] is None for line in lines):
        return None
    return min(lines, key=lambda line: float(line["global_valid_loss"]))


def full_bytes(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Bytes of a client's round, both ways, if every weight of sigma, psi and helpers were sent; None without a psi.

    In the first round all of sigma and psi goes to every client, so it says how large they are.
    """
    first = lines[0]["s2c"]
    if not first["psi"]:
        return None
    psi = first["bytes"] * first["psi"] / (first["sigma"] + first["psi"])
    both_ways = any(line["c2s"]["sigma"] for line in lines)  # clients train sigma, too
    visits = sum(len(line["clients"]) for line in lines)
    helpers = sum(len(chosen) for line in lines for chosen in line["helpers"].values())
    up = (first["bytes"] if both_ways else psi) * (1 - sum(len(line["dropped"] or ()) for line in lines) / visits)
    return float(first["bytes"] + up + psi * helpers / visits)


def returning_cost(lines: Sequence[Mapping[str, Any]]) -> float | None:
    """Mean S2C over visits of clients that have been there before; None if there was none.

    A first visit costs as much as every visit of the first round, so it can be taken out of the means of the rounds.
    A client whose update was lost is one that has not been there: it is sent everything again.
    """
    visits = sum(len(line["clients"]) for line in lines)
    first_visits, visited = 0, set[int]()
    for line in lines:
        first_visits += len(set(line["clients"]) - visited)
        visited |= set(line["clients"]) - set(line["dropped"] or ())
    if visits == first_visits:
        return None
    total = math.fsum(len(line["clients"]) * line["s2c"]["sum"] for line in lines)
    return (total - first_visits * float(lines[0]["s2c"]["sum"])) / (visits - first_visits)


def average(lines: Sequence[Mapping[str, Any]], way: str, what: str) -> float:
    """The mean over rounds of a cost."""
    return math.fsum(line[way][what] for line in lines) / len(lines)


def band(group: Group, name: str, part: str = "", factor: float = 100) -> tuple[list[int], list[float], list[float]]:
    """(rounds from 1, means, deviations) over the group's finished runs, of a figure or of a part of it; in percent.

    If none is finished: over those that are on their way, as far as all of them have got.
    """
    runs = [result.lines for result in group.finished or group.results if result.lines]
    figure = Figure((name, part) if part else (name,), None)
    rounds, centres, widths = [], [], []
    for number, lines in enumerate(zip(*runs)):
        centre = mean([factor * value for line in lines if (value := figure.of(line)) is not None])
        if centre is not None:
            rounds.append(number + 1)
            centres.append(centre.value)
            widths.append(centre.deviation or 0.0)
    return rounds, centres, widths
