"""What crosses between server and clients: JSON about it, and vectors as bytes. Nothing is pickled.

A client's round: the server sends a `Request` and the vectors sigma, psi and helpers; the client an `Answer` and the
vectors sigma, psi (differences to what it received) and embedding. What comes is untrusted until it is checked.

No `annotations` from the future here: types are read when the program runs.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedmatch_flower import vectors
from fedmatch_tf.algorithms import wire
from fedmatch_tf.algorithms.wire import Broadcast
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.typed import Number, Positive, Whole, plain, read
from fedmatch_tf.federation.tasks import (
    ClientResult,
    ClientTask,
    EvalResult,
    LabeledAcc,
    Losses,
    client_model,
)
from fedmatch_tf.learners import schedule
from fedmatch_tf.networks.params import Params

_VECTOR = "fedmatch"  # how Flower calls our encoding


class Request(NamedTuple):
    """A client's part of a round, without its vectors."""

    config: dict[str, Any]
    classes: tuple[str, ...]
    round_num: Whole
    client: Whole
    task_step: Whole
    lr: Positive
    sizes: tuple[Whole, ...]  # of sigma and, if there is one, of psi
    num_helpers: Whole
    base: str  # digest of the parameters that differences are taken to; empty: none
    seconds: Positive  # that the client may take


class Scored(NamedTuple):
    """A model's score on one of a host's sets, by passes."""

    split: str
    num_rows: tuple[Whole, ...]
    losses: tuple[Number, ...]
    hits: tuple[Whole, ...]


class Answer(NamedTuple):
    """What a client says of its round, besides its vectors."""

    round_num: Whole
    client: Whole
    num_examples: Whole
    cost: tuple[Positive, Positive, Whole]  # of the upload: sigma, psi, bytes
    losses: Losses
    num_unlabeled: Whole
    confident_rows: Whole
    num_correct: Optional[Whole]
    scored: tuple[Scored, ...]
    labeled_acc: Optional[LabeledAcc]


class Hello(NamedTuple):
    """What a client says of itself."""

    client: Whole
    num_examples: Whole
    classes: tuple[str, ...]
    image_shape: tuple[Whole, ...]
    holds: str  # digest of the parameters that it holds; empty: none


class Question(NamedTuple):
    """What the server asks of a client that it does not know."""

    config: dict[str, Any]
    classes: tuple[str, ...]  # of the federation; none: those of the client


class Test(NamedTuple):
    """What the server asks where it has no test data: how the global model does on the client's."""

    config: dict[str, Any]
    classes: tuple[str, ...]
    size: Whole  # of theta, the only vector
    confusion: bool  # whether counts by class are asked for
    seconds: Positive


class Tested(NamedTuple):
    """What the client says of it: a score; or counts [truth][predicted]."""

    num_rows: tuple[Whole, ...]
    losses: tuple[Number, ...]
    hits: tuple[Whole, ...]
    matrix: tuple[tuple[Whole, ...], ...]


class Lacks(NamedTuple):
    """A client's answer if it does not hold what differences were taken to: after a restart."""

    lacks_round: Whole


SMALL, LARGEST = 2**16, 2**33  # bytes of a message without vectors; of any
_ABOUT, _VECTORS = "about", "vectors"


def pack(about: Any, arrays: Mapping[str, bytes] = {}) -> RecordDict:
    """A message's content."""
    packed = {name: Array("uint8", (len(content),), _VECTOR, content) for name, content in arrays.items()}
    text = json.dumps(plain(about))
    return RecordDict({_ABOUT: ConfigRecord({"json": text}), _VECTORS: ArrayRecord(packed)})


def unpack(kind: Any, content: RecordDict, most: int) -> tuple[Any, dict[str, bytes]]:
    """(what it says, its vectors as bytes); DataError if it is not that.

    Args:
        most: bytes that it may have.
    """
    about, packed = content.get(_ABOUT), content.get(_VECTORS)
    if not isinstance(about, ConfigRecord) or not isinstance(packed, ArrayRecord):
        raise DataError(f"expected the records {_ABOUT} and {_VECTORS}, received {', '.join(content)[:100]}")
    text = about.get("json")
    size = num_bytes(content)
    if size > most:
        raise DataError(f"expected at most {most:,} bytes, received {size:,}")
    try:
        value = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError) as error:
        raise DataError(f"expected JSON ({str(error)[:100]})") from error
    return read(kind, "message", value), {name: array.data for name, array in packed.items()}


def num_bytes(content: RecordDict) -> int:
    """Of what we put into a message; Flower's frame around it is a few hundred more."""
    texts = [value for record in content.config_records.values() for value in record.values() if isinstance(value, str)]
    arrays = [array.data for record in content.array_records.values() for array in record.values()]
    return sum(len(text.encode()) for text in texts) + sum(map(len, arrays))


def request(
    task: ClientTask, config: Mapping[str, Any], classes: Sequence[str], held: Optional[Params], seconds: float
) -> RecordDict:
    """What the server sends a client.

    Args:
        classes: of the federation.
        held: what the client holds, if it holds anything.
    """
    params, helpers = task.broadcast.params, task.broadcast.helpers
    about = Request(
        dict(config),
        tuple(classes),
        task.round_num,
        task.client,
        task.task_step,
        task.lr,
        tuple(map(len, params.parts)),
        len(helpers),
        "" if held is None else vectors.digest(held),
        seconds,
    )
    bases = [[]] * 2 if held is None else [[part] for part in held.parts]
    arrays = {name: vectors.encode(part, *base) for name, part, base in zip(Params._fields, params.parts, bases)}
    shared = params.shared_part
    for number, helper in enumerate(helpers):
        arrays[f"helper_{number}"] = vectors.encode(helper, np.zeros_like(helper), shared)
    return pack(about, arrays)


def task_of(about: Request, arrays: Mapping[str, bytes], held: Optional[Params]) -> ClientTask:
    """The client's task, as the server meant it."""
    bases: Sequence[tuple[np.ndarray, ...]] = [()] * 2 if held is None else [(part,) for part in held.parts]
    parts = [
        vectors.decode(name, _vector(arrays, name), size, *base)
        for name, size, base in zip(Params._fields, about.sizes, bases)
    ]
    params = Params(*parts)
    shared = params.shared_part
    helpers = tuple(
        vectors.decode(name, _vector(arrays, name), len(shared), np.zeros_like(shared), shared)
        for name in (f"helper_{number}" for number in range(about.num_helpers))
    )
    broadcast = Broadcast(params, helpers, wire.Cost())
    return ClientTask(about.round_num, about.client, about.task_step, broadcast, schedule.start(about.lr, 0), about.lr)


def answer(result: ClientResult, task: ClientTask) -> RecordDict:
    """What the client sends back."""
    received = task.broadcast.params
    about = Answer(
        task.round_num,
        task.client,
        result.num_examples,
        (result.c2s.sigma, result.c2s.psi, result.c2s.num_bytes),
        result.losses,
        result.num_unlabeled,
        result.confident_rows,
        result.num_correct,
        tuple(Scored(one.split, one.num_rows, one.losses, one.hits) for one in result.scored),
        result.labeled_acc,
    )
    arrays = {}
    if result.sigma is not None:
        arrays["sigma"] = vectors.encode(result.sigma, received.sigma)
    if result.psi is not None and received.psi is not None:
        arrays["psi"] = vectors.encode(result.psi, received.psi)
    if result.embedding is not None:
        arrays["embedding"] = vectors.encode(result.embedding)
    return pack(about, arrays)


def result_of(
    content: RecordDict, task: ClientTask, splits: Sequence[str], embedding_size: Optional[int]
) -> ClientResult:
    """The client's result; DataError says why it is none.

    Args:
        splits: on which it must have scored its model.
        embedding_size: of the embedding that it must have sent, if it must.
    """
    received = task.broadcast.params
    most = sum(part.nbytes for part in received.parts) + 2**20
    about, arrays = unpack(Answer, content, most)
    if (about.round_num, about.client) != (task.round_num, task.client):
        raise DataError(f"expected {task}, received round {about.round_num + 1}, client {about.client}")
    sigma, psi, embedding = received.sigma, received.psi, None
    if "sigma" in arrays:
        sigma = vectors.decode("sigma", arrays["sigma"], len(received.sigma), received.sigma)
    if received.psi is not None:
        psi = vectors.decode("psi", _vector(arrays, "psi"), len(received.psi), received.psi)
    if embedding_size is not None:
        embedding = vectors.decode("embedding", _vector(arrays, "embedding"), embedding_size)
    counts = about.num_correct or 0, about.confident_rows, about.num_unlabeled
    if list(counts) != sorted(counts):
        raise DataError(f"expected counts of examples that can be, received {', '.join(map(str, counts))}")
    key = client_model(task.client)
    scored = tuple(EvalResult(key, one.split, 0, 1, *one[1:]) for one in about.scored)
    for one in about.scored:
        check_score(one)
    received_splits = [one.split for one in scored]
    if sorted(received_splits) != sorted(splits):
        raise DataError(f"expected one score of {' and '.join(splits)}, received {', '.join(received_splits)[:100]}")
    return ClientResult(
        task.client,
        sigma if "sigma" in arrays else None,
        psi,
        about.num_examples,
        task.broadcast.cost,
        wire.Cost(about.cost[0], about.cost[1], 0.0, about.cost[2]),
        task.plateau,
        task.lr,
        about.losses,
        about.num_unlabeled,
        about.confident_rows,
        about.num_correct,
        embedding,
        scored,
        labeled_acc=about.labeled_acc,
    )


def check_score(score: Union[Scored, Tested]) -> None:
    """Raises DataError unless it is one."""
    if len({len(score.num_rows), len(score.losses), len(score.hits), 0}) != 2:
        raise DataError("expected the losses and hits of every pass")
    if any(hits > rows or rows == 0 for hits, rows in zip(score.hits, score.num_rows)):
        raise DataError("expected as many hits as images at most")


def _vector(arrays: Mapping[str, bytes], name: str) -> bytes:
    if name not in arrays:
        raise DataError(f"{name}: expected a vector, received none")
    return arrays[name]
