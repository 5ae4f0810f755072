"""What is recorded of a round: plain values, from which every log and report is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fedmatch_tf.algorithms.wire import Cost
from fedmatch_tf.federation.scoring import Scores
from fedmatch_tf.federation.tasks import (
    GLOBAL,
    GLOBAL_PSI,
    GLOBAL_SIGMA,
    SERVER,
    ClientResult,
    LabeledAcc,
    Score,
    client_model,
)


class ClientRecord(NamedTuple):
    """One client's round."""

    client: int
    s2c: Cost
    c2s: Cost
    valid: Score | None  # None where the global model's validation decides on lr
    test: Score | None
    lr: float
    labeled_acc: LabeledAcc | None = None  # if it is measured


class RoundRecord(NamedTuple):
    """One round; costs are means over its clients."""

    round_num: int
    task_step: int
    clients: tuple[ClientRecord, ...]
    global_test: Score  # mean over clients where they share nothing
    global_valid: Score | None  # where it decides on lr, or on which model is the best
    part_tests: Mapping[str, Score]  # with sigma only and with psi only, if the run asks for it
    server_valid: Score | None  # labels-at-server: after the server's own epochs
    server_test: Score | None
    confident: float  # share of unlabelled rows that got a pseudo-label
    pseudo_label_acc: float | None  # None if there was no pseudo-label
    helpers: Mapping[int, Sequence[int]]  # client -> who helped it
    seconds: float
    dropped: tuple[int, ...] | None = None  # clients whose updates did not arrive; None where all always do
    server_lr: float | None = None  # with which the server's epochs of this round begin; None where it has none


def round_record(
    round_num: int,
    task_step: int,
    results: Sequence[ClientResult],
    helpers: Mapping[int, Sequence[int]],
    scores: Scores,
    seconds: float,
    dropped: tuple[int, ...] | None = None,
    server_lr: float | None = None,
) -> RoundRecord:
    """The record of a round with these results and scores; an update that did not arrive cost nothing."""
    rows, confident = sum(result.num_unlabeled for result in results), sum(result.confident_rows for result in results)
    return RoundRecord(
        round_num=round_num,
        task_step=task_step,
        clients=tuple(_client_record(result, scores, result.client in (dropped or ())) for result in results),
        global_test=scores.get((GLOBAL, "test")) or _mean_local_test(results, scores),
        global_valid=scores.get((GLOBAL, "valid")),
        part_tests={key.part: scores[key, "test"] for key in (GLOBAL_SIGMA, GLOBAL_PSI) if (key, "test") in scores},
        server_valid=scores.get((SERVER, "valid")),
        server_test=scores.get((SERVER, "test")),
        confident=confident / rows if rows else 0.0,
        pseudo_label_acc=sum(result.num_correct for result in results) / confident if confident else None,
        helpers=helpers,
        seconds=seconds,
        dropped=dropped,
        server_lr=server_lr,
    )


def _client_record(result: ClientResult, scores: Scores, is_lost: bool) -> ClientRecord:
    key, c2s = client_model(result.client), Cost() if is_lost else result.c2s
    valid, test = scores.get((key, "valid")), scores.get((key, "test"))
    return ClientRecord(result.client, result.s2c, c2s, valid, test, result.lr, result.labeled_acc)


def _mean_local_test(results: Sequence[ClientResult], scores: Scores) -> Score:
    """What stands for the global model where clients share nothing: the mean over the round's clients."""
    tests = [scores[client_model(result.client), "test"] for result in results]
    return Score(sum(test.loss for test in tests) / len(tests), sum(test.accuracy for test in tests) / len(tests))
