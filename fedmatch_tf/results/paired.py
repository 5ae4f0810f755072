"""Differences between groups of runs, paired by seed: how large they are, and whether chance would do."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from fedmatch_tf.results.names import file_name
from fedmatch_tf.results.results import Group
from fedmatch_tf.results.summary import Mean, Summary, mean
from fedmatch_tf.results.tables import Cell, Table, Value, table_of, value

ENOUGH = 5  # seeds: of four, the sign-flip test can say no less than 2 of 16, whatever they are


class Paired(NamedTuple):
    """Final accuracies of two groups in the seeds that both have finished, in percent."""

    seeds: list[int]
    alone: list[int]  # seeds that one of them has and the other has not
    first: Mean | None
    second: Mean | None
    difference: Mean | None
    interval: tuple[float, float] | None = None  # 95 %, of the mean difference; None where it can't be computed
    p_t: float | None = None  # two-sided paired t-test
    p_flips: float | None = None  # two-sided sign-flip test


def paired(first: Group, second: Group) -> Paired:
    """The second's accuracies subtracted from the first's, seed by seed."""
    one, two = (
        {result.settings["seed"]: 100 * result.lines[-1]["test_acc"] for result in group.finished}
        for group in (first, second)
    )
    seeds = sorted(one.keys() & two.keys())
    mine, theirs = ([values[seed] for seed in seeds] for values in (one, two))
    differences = [round(a - b, 9) for a, b in zip(mine, theirs)]  # so that equal ones are equal
    found = Paired(seeds, sorted(one.keys() ^ two.keys()), mean(mine), mean(theirs), mean(differences))
    if found.difference is None or not found.difference.deviation:
        return found
    from scipy import stats  # takes a while to load

    test = stats.ttest_1samp(differences, 0.0)
    low, high = test.confidence_interval(0.95)
    flips = None
    if len(seeds) >= ENOUGH:  # all combinations of signs up to 13 seeds, then a sample of them
        flips = float(
            stats.permutation_test((differences,), np.mean, permutation_type="samples", random_state=0).pvalue
        )
    return found._replace(interval=(float(low), float(high)), p_t=float(test.pvalue), p_flips=flips)


def paired_table(task: str, summaries: Sequence[Summary]) -> Table | None:
    """Each two groups of a task that have two finished runs or more; None if there are no two."""
    groups = [summary.group for summary in summaries if len(summary.group.finished) > 1]
    pairs = [(first, second, paired(first, second)) for first, second in combinations(groups, 2)]
    rows = [_row(first, second, found) for first, second, found in pairs]
    few = sum(len(found.seeds) < ENOUGH for _, _, found in pairs)
    note = (
        "Final accuracy, differences by seed. The interval has 95 % and supposes, as the paired t-test does, "
        f"differences that are normal; sign flips, from {ENOUGH} seeds on, suppose nothing of the kind. p is of each "
        "row by itself: of twenty rows without any difference, one has p < 0.05."
    )
    if few:
        note += f" Fewer than {ENOUGH} seeds in {few} of {len(rows)} rows: too few to rely on p. Run more seeds."
    return table_of(f"paired-{file_name(task)}", "Differences, paired by seed", rows, note) if rows else None


def _row(first: Group, second: Group, found: Paired) -> dict[str, Cell]:
    low, high = found.interval or (None, None)
    remarks = [f"fewer than {ENOUGH} seeds" if len(found.seeds) < ENOUGH else ""]
    if found.alone:
        remarks.append(f"without {', '.join(map(str, found.alone))}, which only one of them has finished")
    if found.difference is not None and found.difference.deviation == 0:
        remarks.append("the same in every seed")
    return {
        "model": first.short,
        "acc. (%)": value(found.first),
        "compared with": second.short,
        "its acc. (%)": value(found.second),
        "seeds": Value(len(found.seeds), digits=0),
        "difference": "" if found.difference is None else Value(*found.difference, sign=True),
        "95 % from": "" if low is None else Value(low, sign=True),
        "to": "" if high is None else Value(high, sign=True),
        "p, paired t": _p(found.p_t),
        "p, sign flips": _p(found.p_flips),
        "remark": "; ".join(filter(None, remarks)),
    }


def _p(p: float | None) -> Cell:
    return "" if p is None else f"{p:.2g}"
