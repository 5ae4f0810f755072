"""What a checkpoint and its records may contain, field by field. Files can be edited, so nothing is taken on trust."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Callable

import numpy as np

from fedmatch_tf.base.errors import DataError, short
from fedmatch_tf.runs.store import FILES

Check = Callable[[str, Any], None]  # (name of the field, its value); raises DataError if it is not what it should be


def _wrong(name: str, expected: str, value: Any) -> DataError:
    return DataError(f"{name}: expected {expected}, received {short(value)}")


def number(name: str, value: Any) -> None:
    """A finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        raise _wrong(name, "a finite number", value)


def _positive(name: str, value: Any) -> None:
    number(name, value)
    if value < 0:
        raise _wrong(name, "a number of 0 or greater", value)


def _lowest(name: str, value: Any) -> None:
    """A loss, or infinity before the first one."""
    if value != math.inf:
        number(name, value)


def whole(low: int, high: int = 2**53) -> Check:
    """A whole number from `low` to `high`."""

    def check(name: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise _wrong(name, f"a whole number from {low} to {high}", value)

    return check


def text(name: str, value: Any) -> None:
    """A text."""
    if not isinstance(value, str):
        raise _wrong(name, "a text", value)


def optional(check: Check) -> Check:
    """None, or what the check admits."""
    return lambda name, value: None if value is None else check(name, value)


def each(check: Check) -> Check:
    """A list of what the check admits."""

    def check_all(name: str, value: Any) -> None:
        if not isinstance(value, (list, tuple)):
            raise _wrong(name, "a list", value)
        for place, item in enumerate(value):
            check(f"{name}[{place}]", item)

    return check_all


def row(*checks: Check, least: int | None = None) -> Check:
    """A list with one entry per check; the last ones may be missing if `least` says so."""

    def check_row(name: str, value: Any) -> None:
        if not isinstance(value, (list, tuple)) or not (least or len(checks)) <= len(value) <= len(checks):
            raise _wrong(name, f"a list of {len(checks)}", value)
        for place, (check, item) in enumerate(zip(checks, value)):
            check(f"{name}[{place}]", item)

    return check_row


def table(check: Check, key: Check = text) -> Check:
    """A table from texts to what the check admits."""

    def check_table(name: str, value: Any) -> None:
        if not isinstance(value, Mapping):
            raise _wrong(name, "a table", value)
        for field, item in value.items():
            key(f"a name in {name}", field)
            check(f"{name}.{field}", item)

    return check_table


def anything(name: str, value: Any) -> None:
    """Whatever it is: others check it."""


def fields(checks: Mapping[str, Check], optional_names: Sequence[str] = ()) -> Check:
    """A table with these names and no others."""

    def check_fields(name: str, value: Any) -> None:
        table(anything)(name, value)
        missing = [field for field in checks if field not in value and field not in optional_names]
        if missing:
            raise DataError(f"{name}: expected {missing[0]}, found no such field")
        unknown = [field for field in value if field not in checks]
        if unknown:
            raise DataError(f"{name}: found a field {short(unknown[0])} that there is not")
        for field, item in value.items():
            checks[field](f"{name}.{field}", item)

    return check_fields


def _client_name(num_clients: int) -> Check:
    """A client of the run, as a name in JSON."""

    def check(name: str, value: Any) -> None:
        digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20
        whole(0, num_clients - 1)(name, int(value) if digits else value)

    return check


def vector(name: str, value: Any, size: int | None = None) -> None:
    """float32 [n], finite, of this size if it is given."""
    if not isinstance(value, np.ndarray) or value.dtype != np.float32 or value.ndim != 1:
        kind = f"{value.dtype} {list(value.shape)}" if isinstance(value, np.ndarray) else "none"
        raise DataError(f"{name}: expected float32 [n], received {kind}")
    if size is not None and len(value) != size:
        raise DataError(f"{name}: expected {size} numbers, received {len(value)}")
    if not np.isfinite(value).all():
        raise DataError(f"{name}: expected finite numbers, received NaN or infinity")


def _three(name: str, value: Any) -> None:
    """The shape of an image."""
    row(whole(1, 1024), whole(1, 1024), whole(1, 4))(name, value)


def _names(name: str, value: Any) -> None:
    """Names of classes."""
    each(text)(name, value)
    if len(value) < 2:
        raise _wrong(name, "at least two classes", value)


_ABOUT = fields(
    {
        "format": whole(0),
        "settings": table(anything),  # Config has rules for each
        "versions": table(text),
        "partitions": text,
        "plateau": row(_positive, _lowest, whole(0)),
        "device_lrs": each(_positive),
        "data": row(_three, _names),
        "best": optional(row(whole(0), number)),
    }
)


def check_checkpoint(about: Any, arrays: Mapping[str, Any], memory: str) -> None:
    """Raises DataError unless this is what a checkpoint holds.

    Args:
        about: what it has as JSON.
        memory: how the names of the algorithm's own vectors begin.
    """
    _ABOUT("about", about)
    num_clients, num_rounds = (about["settings"].get(name) for name in ("num_clients", "num_rounds"))
    whole(1)("settings.num_clients", num_clients)
    whole(1)("settings.num_rounds", num_rounds)
    text("settings.task", about["settings"].get("task"))
    names = ("sigma", "psi", "rounds_done", "embedded", "embeddings", "clients", "records")
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(f"expected an array {missing[0]}, found none")
    for name in arrays:
        if not isinstance(arrays[name], np.ndarray):
            raise DataError(f"{name}: expected an array, received {type(arrays[name]).__name__}")
    if (records := arrays["records"]).dtype != np.uint8:
        raise DataError(f"records: expected text, received {records.dtype} {list(records.shape)}")
    sigma, psi = arrays["sigma"], arrays["psi"]
    vector("sigma", sigma)
    vector("psi", psi)
    if len(psi) > len(sigma):
        raise DataError(f"psi: expected at most {len(sigma)} numbers, as sigma has, received {len(psi)}")
    for name in arrays:
        if name == "best" or name.startswith(memory):
            vector(name, arrays[name], len(sigma) if name == "best" else None)
    remembered = sum(name.startswith(memory) for name in arrays)
    gap = [f"{memory}{number}" for number in range(remembered) if f"{memory}{number}" not in arrays]
    if gap:
        raise DataError(f"expected an array {gap[0]}, found none")
    if (about["best"] is not None) != ("best" in arrays):
        raise DataError("best: expected its weights with its round and loss, found one of them only")
    done = arrays["rounds_done"]
    if done.shape != () or done.dtype.kind not in "iu":
        raise DataError(f"rounds_done: expected a whole number, received {done.dtype} {list(done.shape)}")
    whole(0, num_rounds)("rounds_done", int(done))
    _check_embeddings(arrays["embedded"], arrays["embeddings"], num_clients)
    num_classes, width = len(about["data"][1]), arrays["embeddings"].shape[-1]
    if len(arrays["embedded"]) and width != num_classes:
        raise DataError(f"embeddings: expected {num_classes} numbers per client, one per class, received {width}")
    _check_clients(arrays["clients"], num_clients, len(sigma))


def _check_embeddings(embedded: np.ndarray, embeddings: np.ndarray, num_clients: int) -> None:
    if embedded.dtype.kind not in "iu" or embedded.ndim != 1 or len(set(embedded.tolist())) != len(embedded):
        raise DataError("embedded: expected different numbers of clients")
    for client in embedded.tolist():
        whole(0, num_clients - 1)("embedded", client)
    if (
        embeddings.dtype != np.float32
        or embeddings.ndim < 1
        or len(embeddings) != len(embedded)
        or not np.isfinite(embeddings).all()
    ):
        raise DataError(f"embeddings: expected {len(embedded)} rows of finite float32")
    if len(embedded) and embeddings.ndim != 2:
        raise DataError(f"embeddings: expected one row per client, received {list(embeddings.shape)}")


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


def _share(name: str, value: Any) -> None:
    number(name, value)
    if not 0 <= value <= 1:
        raise _wrong(name, "a share from 0 to 1", value)


_COST = row(_positive, _positive, _positive, whole(0, 2**62))
_SCORE = row(number, _share)


def check_record(fields_of_round: Any, round_num: int, num_clients: int) -> None:
    """Raises DataError unless this is what a checkpoint has of this round."""
    client = whole(0, num_clients - 1)
    own = row(
        client,
        _COST,
        _COST,
        optional(_SCORE),
        optional(_SCORE),
        number,
        optional(row(_share, _share, each(_share), least=2)),
        least=7,
    )
    fields(
        {
            "round_num": whole(round_num, round_num),
            "task_step": whole(0),
            "clients": each(own),
            "global_test": _SCORE,
            "global_valid": optional(_SCORE),
            "part_tests": table(_SCORE),
            "server_valid": optional(_SCORE),
            "server_test": optional(_SCORE),
            "confident": _share,
            "pseudo_label_acc": optional(_share),
            "helpers": table(each(client), key=_client_name(num_clients)),
            "seconds": _positive,
            "dropped": optional(each(client)),
            "server_lr": optional(number),
        },
        optional_names=("dropped", "server_lr"),
    )(f"round {round_num + 1}", fields_of_round)
    if not fields_of_round["clients"]:
        raise DataError(f"round {round_num + 1}: expected clients, found none")
