"""What a checkpoint may contain, field by field. Files can be edited, so nothing is taken on trust.

No `annotations` from the future here: types are read when the program runs.
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, Optional

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.typed import LARGEST, Number, Positive, Whole, Within, read
from fedmatch_tf.runs.store import FILES


def whole(low: int, high: int) -> Any:
    """The type of a whole number from `low` to `high`."""
    return Annotated[int, Within(low, high, f"a whole number from {low} to {high}")]


Lowest = Annotated[float, Within(-LARGEST, math.inf, "a loss, or infinity before the first one")]
Side, Length = whole(1, 1024), whole(1, 2**24)  # of an image, of a vector


class About(NamedTuple):
    """What a checkpoint has as JSON."""

    format: Whole
    settings: dict[str, Any]  # Config has rules for each
    versions: dict[str, str]
    partitions: str
    plateau: tuple[Positive, Lowest, Whole]
    device_lrs: Optional[tuple[Positive, ...]]
    data: tuple[tuple[Whole, ...], tuple[str, ...]]  # shape of an image or vector; names of classes
    best: Optional[tuple[Whole, Number]]
    inputs: Optional[dict[str, str]]


def _check_vector(name: str, value: np.ndarray, size: Optional[int] = None) -> None:
    """float32 [n], finite, of this size if it is given."""
    if value.dtype != np.float32 or value.ndim != 1:
        raise DataError(f"{name}: expected float32 [n], received {value.dtype} {list(value.shape)}")
    if size is not None and len(value) != size:
        raise DataError(f"{name}: expected {size} numbers, received {len(value)}")
    if not np.isfinite(value).all():
        raise DataError(f"{name}: expected finite numbers, received NaN or infinity")


def read_about(content: Any, arrays: Mapping[str, np.ndarray], memory: str) -> About:
    """What it has as JSON; raises DataError unless this is what a checkpoint holds.

    Args:
        content: its JSON.
        memory: how the names of the algorithm's own vectors begin.
    """
    about: About = read(About, "about", content)
    kinds = {"num_clients": whole(1, 2**53), "num_rounds": whole(1, 2**53), "task": str}
    settings = [read(kind, f"settings.{name}", about.settings.get(name)) for name, kind in kinds.items()]
    num_clients, num_rounds, _ = settings
    memories = [name for name in arrays if name.startswith(memory)]
    names = ["sigma", "rounds_done", "embedded", "embeddings", "clients", "records"]
    missing = [name for name in names + [f"{memory}{number}" for number in range(len(memories))] if name not in arrays]
    if missing:
        raise DataError(f"expected an array {missing[0]}, found none")
    if (records := arrays["records"]).dtype != np.uint8:
        raise DataError(f"records: expected text, received {records.dtype} {list(records.shape)}")
    sigma = arrays["sigma"]
    for name in ("sigma", "psi", "best", *memories):
        if name in arrays:
            _check_vector(name, arrays[name], len(sigma) if name == "best" else None)
    if "psi" in arrays and not 0 < len(arrays["psi"]) <= len(sigma):
        raise DataError(f"psi: expected 1 to {len(sigma)} numbers, as sigma has, received {len(arrays['psi'])}")
    if (about.best is not None) != ("best" in arrays):
        raise DataError("best: expected its weights with its round and loss, found one of them only")
    done = arrays["rounds_done"]
    if done.shape != () or done.dtype.kind not in "iu":
        raise DataError(f"rounds_done: expected a whole number, received {done.dtype} {list(done.shape)}")
    read(whole(0, num_rounds), "rounds_done", int(done))
    shape = about.data[0]
    if len(shape) not in (1, 3):
        raise DataError(f"about.data[0]: expected a list of 3, or of 1 for vectors, received {list(shape)}")
    for place, size in enumerate(shape):
        read(Length if len(shape) == 1 else Side, f"about.data[0][{place}]", size)
    num_classes = len(about.data[1])
    if num_classes < 2:
        raise DataError(f"about.data[1]: expected at least two classes, received {num_classes}")
    _check_embeddings(arrays["embedded"], arrays["embeddings"], num_clients, num_classes)
    _check_clients(arrays["clients"], num_clients, len(sigma))
    return about


def _check_embeddings(embedded: np.ndarray, embeddings: np.ndarray, num_clients: int, num_classes: int) -> None:
    if embedded.dtype.kind not in "iu" or embedded.ndim != 1 or len(set(embedded.tolist())) != len(embedded):
        raise DataError("embedded: expected different numbers of clients")
    for client in embedded.tolist():
        read(whole(0, num_clients - 1), "embedded", client)
    shape = (*embeddings.shape[:1], embeddings.dtype)
    if shape != (len(embedded), np.float32) or not np.isfinite(embeddings).all():
        raise DataError(f"embeddings: expected {len(embedded)} rows of finite float32")
    if len(embedded) and embeddings.shape[1:] != (num_classes,):
        received = list(embeddings.shape[1:])
        raise DataError(f"embeddings: expected {num_classes} numbers per client, one per class, received {received}")


def _check_clients(clients: np.ndarray, num_clients: int, size: int) -> None:
    if clients.dtype != FILES or clients.ndim != 1:
        raise DataError("clients: expected a table of the clients' files")
    if len(clients) != num_clients:
        raise DataError(f"clients: expected {num_clients} rows, one per client, received {len(clients)}")
    held = clients[clients["version"] != 0]
    good = (held["version"] > 0) & np.isin(held["num_sigma"], (0, size)) & np.isfinite(held["lr"]) & (held["lr"] >= 0)
    good &= (held["lowest"] > -math.inf) & (held["patience"] >= 0)  # infinity before the first validation
    if not good.all():
        raise DataError("clients: expected versions, sizes and learning rates, received numbers that are none")
