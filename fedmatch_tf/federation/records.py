"""What is recorded of a round: one typed record, from which every file, log and report is made.

A new figure is a field of RoundRecord, and its value in `round_record`. Its type says what it may be, and its name at
TensorBoard, if that is another. No `annotations` from the future here: types are read when the program runs.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, Optional

import numpy as np

from fedmatch_tf.algorithms import wire
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.typed import Number, Positive, Share, Whole, fields, is_record, plain, read
from fedmatch_tf.federation.scoring import Scores
from fedmatch_tf.federation.steps import mean_losses
from fedmatch_tf.federation.tasks import (
    GLOBAL,
    GLOBAL_PSI,
    GLOBAL_SIGMA,
    SERVER,
    ClientResult,
    LabeledAcc,
    Losses,
    ModelKey,
    Split,
    client_model,
)
from fedmatch_tf.networks.params import Params


class Cost(NamedTuple):
    """Weights sent over weights of one parameter set; mean over clients."""

    sum: Positive
    sigma: Positive
    psi: Positive
    helpers: Positive
    bytes: Positive


class Norms(NamedTuple):
    """Of the global model's parameters, and the cosine between sigma's kernels and psi."""

    sigma: Positive
    psi: Optional[Positive]
    cosine: Optional[Number]


class ActorScores(NamedTuple):
    """What one actor's log has, under the original's names."""

    train_loss: Optional[Number]
    valid_loss: Optional[Number]
    valid_acc: Optional[Share]
    test_loss: Optional[Number]
    test_acc: Optional[Share]


class ClientRecord(NamedTuple):
    """One client's round."""

    client: Whole
    s2c: Cost
    c2s: Cost
    lr: Number
    scores: ActorScores


class Actors(NamedTuple):
    """What only the original's logs have."""

    clients: tuple[ClientRecord, ...]
    server: ActorScores  # of its own epochs, where it has any


class Hosts(NamedTuple):
    """What there is to say of a round between real hosts."""

    s2c: Positive  # bytes on the wire, mean over clients
    c2s: Positive
    left_out: Mapping[int, str]  # clients that did not answer properly -> why


class RoundRecord(NamedTuple):
    """One round, in the order of rounds.jsonl. What is Optional is null where there is nothing to measure."""

    round: Whole
    task_step: Whole
    clients: tuple[Whole, ...]
    test_acc: Annotated[Share, "accuracy/global"]  # mean over clients where they share nothing
    test_loss: Annotated[Number, "loss/test"]
    local_test_acc: Annotated[Optional[Share], "accuracy/clients"]
    valid_loss: Annotated[Number, "loss/valid"]  # mean over the clients that validate; else the global model's
    s2c: Cost
    c2s: Cost
    confident: Annotated[Share, "pseudo_labels/confident"]
    pseudo_label_acc: Annotated[Optional[Share], "pseudo_labels/right"]
    helpers: Mapping[int, tuple[Whole, ...]]  # client -> who helped it
    lr: Annotated[Number, "learning_rate"]
    seconds: Positive
    train_loss: Optional[Losses]  # means over the clients that took a step; plus the server's, where it trains
    confident_rows: Annotated[Optional[Whole], "pseudo_labels/rows"]
    norms: Optional[Norms]
    global_valid_loss: Annotated[Optional[Number], "loss/valid_global"]  # where it decides on lr or the best model
    server_lr: Annotated[Optional[Number], "learning_rate_server"]  # with which the server's epochs begin
    dropped: Optional[tuple[Whole, ...]]  # clients whose updates did not arrive; None where all always do
    test_acc_sigma: Annotated[Optional[Share], "accuracy/sigma_only"]  # if the run asks for it
    test_acc_psi: Annotated[Optional[Share], "accuracy/psi_only"]
    labeled_acc: Optional[LabeledAcc]  # if it is measured; means over clients
    hosts: Optional[Hosts]  # between real hosts
    actors: Optional[Actors]  # in checkpoints alone

    def line(self) -> dict[str, Any]:
        """The round's object in rounds.jsonl."""
        found: dict[str, Any] = plain(self)
        del found["actors"]
        return found


class Figure(NamedTuple):
    """One value of a round."""

    path: tuple[str, ...]  # the names that lead to it in a line of rounds.jsonl
    tag: Optional[str]  # None: no number that is followed over time

    @property
    def name(self) -> str:
        """The column's name in a CSV."""
        return ".".join(self.path)

    def of(self, line: Mapping[str, Any]) -> Any:
        """Its value in a line of rounds.jsonl; None if it has none."""
        found: Any = line
        for name in self.path:
            found = None if found is None else found.get(name)
        return found


def _figures(record: type, path: tuple[str, ...] = (), tag: str = "") -> Iterator[Figure]:
    for field in fields(record):
        own = next((note for note in field.notes if isinstance(note, str)), field.name)
        if is_record(field.base):
            yield from _figures(field.base, (*path, field.name), f"{tag}{own}/")
        else:
            yield Figure((*path, field.name), tag + own if field.base in (int, float) else None)


FIGURES = tuple(figure for figure in _figures(RoundRecord) if figure.path[0] != "actors")


def scalars(line: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a line of rounds.jsonl that are followed over time, by tag."""
    values = {figure.tag: figure.of(line) for figure in FIGURES if figure.tag is not None and figure.name != "round"}
    return {tag: float(value) for tag, value in values.items() if value is not None}


def read_round(value: Any, round_num: int, num_clients: int) -> RoundRecord:
    """The record of this round of a run with so many clients. Raises DataError if the value is none."""
    name = f"round {round_num + 1}"
    record: RoundRecord = read(RoundRecord, name, value)
    if record.round != round_num:
        raise DataError(f"{name}: expected the number {round_num}, received {record.round}")
    if not record.clients:
        raise DataError(f"{name}: expected clients, found none")
    named = {*record.clients, *record.helpers, *(record.dropped or ())}.union(*record.helpers.values())
    named |= set(record.hosts.left_out) if record.hosts is not None else set()
    named |= {client.client for client in record.actors.clients} if record.actors is not None else set()
    if max(named) >= num_clients:
        raise DataError(f"{name}: expected clients from 0 to {num_clients - 1}, received {max(named)}")
    return record


def round_record(
    round_num: int,
    task_step: int,
    results: Sequence[ClientResult],
    helpers: Mapping[int, Sequence[int]],
    scores: Scores,
    seconds: float,
    dropped: Optional[tuple[int, ...]] = None,
    server_lr: Optional[float] = None,
    server_losses: Optional[Losses] = None,
    params: Optional[Params] = None,
    left_out: Mapping[int, str] = MappingProxyType({}),
) -> RoundRecord:
    """The record of a round with these results and scores; an update that did not arrive cost nothing.

    Args:
        server_losses: of the server's own epochs.
        params: the global model's, if there is one.
        left_out: clients that gave no result, between real hosts, and why.
    """
    server_losses = server_losses or Losses()
    losses = [result.losses for result in results if result.losses.total is not None]
    c2s = [wire.Cost() if result.client in (dropped or ()) else result.c2s for result in results]
    own = [_actor(result.losses, scores, client_model(result.client)) for result in results]
    clients = tuple(
        ClientRecord(result.client, _mean_cost([result.s2c]), _mean_cost([cost]), result.lr, each)
        for result, cost, each in zip(results, c2s, own)
    )
    local_test_loss, local_test_acc = _mean(each.test_loss for each in own), _mean(each.test_acc for each in own)
    valid_loss = _mean(each.valid_loss for each in own)
    (test_loss, test_acc), (global_valid_loss, _) = _score(scores, GLOBAL, "test"), _score(scores, GLOBAL, "valid")
    rows, confident = sum(result.num_unlabeled for result in results), sum(result.confident_rows for result in results)
    correct = [result.num_correct for result in results if result.num_correct is not None]
    on_wire = [result.on_wire for result in results if result.on_wire is not None]
    return RoundRecord(
        round=round_num,
        task_step=task_step,
        clients=tuple(result.client for result in results),
        test_acc=local_test_acc if test_acc is None else test_acc,
        test_loss=local_test_loss if test_loss is None else test_loss,
        local_test_acc=local_test_acc,
        valid_loss=global_valid_loss if valid_loss is None else valid_loss,
        s2c=_mean_cost([result.s2c for result in results]),
        c2s=_mean_cost(c2s),
        confident=confident / rows if rows else 0.0,
        pseudo_label_acc=sum(correct) / confident if confident and len(correct) == len(results) else None,
        helpers={client: tuple(chosen) for client, chosen in helpers.items()},
        lr=_mean(result.lr for result in results),
        seconds=round(seconds, 3),
        train_loss=mean_losses([server_losses, mean_losses(losses, len(losses))], 1),
        confident_rows=confident,
        norms=None if params is None else norms(params),
        global_valid_loss=global_valid_loss,
        server_lr=server_lr,
        dropped=dropped,
        test_acc_sigma=_score(scores, GLOBAL_SIGMA, "test")[1],
        test_acc_psi=_score(scores, GLOBAL_PSI, "test")[1],
        labeled_acc=_labeled_acc([result.labeled_acc for result in results if result.labeled_acc is not None]),
        hosts=Hosts(_mean(one for one, _ in on_wire), _mean(two for _, two in on_wire), left_out) if on_wire else None,
        actors=Actors(clients, _actor(server_losses, scores, SERVER)),
    )


def _mean(values: Iterable[Any]) -> Any:
    """The mean of those that are not None; None if there are none."""
    found = [value for value in values if value is not None]
    return sum(found) / len(found) if found else None


def _score(scores: Scores, model: ModelKey, split: Split) -> tuple[Any, Any]:
    """(loss, accuracy), None where the model was not scored."""
    return scores.get((model, split)) or (None, None)


def _actor(losses: Losses, scores: Scores, model: ModelKey) -> ActorScores:
    return ActorScores(losses.total, *_score(scores, model, "valid"), *_score(scores, model, "test"))


def _mean_cost(costs: Sequence[wire.Cost]) -> Cost:
    names = ("sum", "sigma", "psi", "helpers", "num_bytes")
    return Cost(*(sum(getattr(cost, name) for cost in costs) / len(costs) for name in names))


def _labeled_acc(measured: Sequence[LabeledAcc]) -> Optional[LabeledAcc]:
    if not measured:
        return None
    steps = zip_longest(*(acc.steps for acc in measured))  # clients may differ in their number of steps
    before, after = _mean(acc.before for acc in measured), _mean(acc.after for acc in measured)
    return LabeledAcc(before, after, tuple(_mean(step) for step in steps))


def norms(params: Params) -> Norms:
    """The norms; the cosine is None where one of the two is 0."""
    sigma, psi = params
    squares = _dot(sigma, sigma)
    if psi is None:
        return Norms(math.sqrt(squares), None, None)
    kernels = sigma[: len(psi)]
    of_psi, of_kernels = _dot(psi, psi), squares - _dot(sigma[len(psi) :], sigma[len(psi) :])
    size = math.sqrt(of_kernels * of_psi)
    return Norms(math.sqrt(squares), math.sqrt(of_psi), _dot(kernels, psi) / size if size else None)


def _dot(one: np.ndarray, other: np.ndarray) -> float:
    """Their product, added up in float64, and not by BLAS, whose sums depend on its threads."""
    return float(np.einsum("i,i->", one, other, dtype=np.float64))
