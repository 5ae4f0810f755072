"""A run's state on disk. The newest checkpoint is `state.npz`, the one before it `previous.npz`.

A checkpoint is one file with a checksum of all of it, which names the clients' files (store.py) with a checksum each.
Those are written first and never changed, so a checkpoint is whole as soon as it has its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedmatch_tf.algorithms.algorithm import Best, ServerState
from fedmatch_tf.base import atomic, untrusted
from fedmatch_tf.base.atomic import replacing, write_large
from fedmatch_tf.base.errors import DataError, short
from fedmatch_tf.base.plugins import is_keras_file
from fedmatch_tf.config import ConfigError
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import schema
from fedmatch_tf.runs.partition_folder import DataAbout
from fedmatch_tf.runs.records import decode
from fedmatch_tf.runs.store import COPIES, Damaged, check_files, file_name

STATE, PREVIOUS, DAMAGED = "state.npz", "previous.npz", "damaged.npz"
CLIENTS, LOCK, START = "clients", "lock", "init.npz"
MODEL, BEST_MODEL = "model.keras", "best.keras"
NETWORK = "network.keras"  # the user's file that the network was made of
MEMORY = "memory_"  # and a number: vectors that the algorithm remembers
FORMAT = 3
SEAL = 64  # letters of a sha256
T = TypeVar("T")


class Checkpoint(NamedTuple):
    """All that a run needs to go on."""

    settings: Mapping[str, Any]  # of its Config
    versions: Mapping[str, str]  # of what it was made with
    partitions: str  # fingerprint of the data
    data: DataAbout
    state: ServerState
    clients: np.ndarray  # FILES [clients]: their files
    records: bytes  # of all rounds, a line each: what logs are made from again when a run goes on
    inputs: Mapping[str, str] = MappingProxyType({})  # checksums of other files that workers read


def save_start(folder: Path, kernels: Sequence[np.ndarray], network: bytes | None) -> None:
    """Keeps what a run starts from, as --init-weights reads it, and the Keras file that its network is made of."""
    archive = io.BytesIO()
    np.savez(archive, **{f"sigma_{number}": kernel for number, kernel in enumerate(kernels)})
    with replacing(folder / START) as file:
        file.write(archive.getbuffer())
    if network is not None:
        with replacing(folder / NETWORK) as file:
            file.write(network)


def network_of(folder: Path, arch: str) -> bytes | None:
    """The run's copy of the Keras file that its network is made of; None where it is made of none."""
    try:
        return untrusted.read_bytes(folder / NETWORK) if is_keras_file(arch) else None
    except OSError as error:
        raise DataError(f"{folder / NETWORK}: expected the network of the run ({error.strerror})") from error


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Makes this the newest checkpoint; the newest so far becomes the previous one."""
    state = checkpoint.state
    about = {
        "format": FORMAT,
        "settings": checkpoint.settings,
        "versions": checkpoint.versions,
        "partitions": checkpoint.partitions,
        "data": checkpoint.data,
        "inputs": dict(checkpoint.inputs),
        "plateau": state.plateau,
        "device_lrs": state.device_lrs,
        "best": state.best and (state.best.round_num, state.best.valid_loss),
    }
    optional = {"psi": state.params.psi, "best": None if state.best is None else state.best.theta}
    archive = io.BytesIO()  # a failure to write must meet a plain file: an archive on a full disk complains twice
    np.savez(
        archive,
        sigma=state.params.sigma,
        rounds_done=state.rounds_done,
        embedded=np.fromiter(state.embeddings, np.int64),
        embeddings=np.array(list(state.embeddings.values()), np.float32),
        clients=checkpoint.clients,
        records=np.frombuffer(checkpoint.records, np.uint8),
        about=np.frombuffer(json.dumps(about).encode(), np.uint8),
        **{name: vector for name, vector in optional.items() if vector is not None},
        **{f"{MEMORY}{number}": vector for number, vector in enumerate(state.memory)},
    )
    with replacing(folder / STATE, keep_as=folder / PREVIOUS) as file:
        write_large(file, _sealed(archive))


def _sealed(archive: io.BytesIO) -> memoryview:
    """The archive with a checksum of all that is before it as its comment, which is its end."""
    with zipfile.ZipFile(archive, "a") as file:
        file.comment = b"0" * SEAL
    content = archive.getbuffer()
    content[-SEAL:] = _seal(content)
    return content


def _seal(content: bytes | memoryview) -> bytes:
    return hashlib.sha256(memoryview(content)[:-SEAL]).hexdigest().encode()


def sync(folder: Path, checkpoint: Checkpoint, before: np.ndarray) -> None:
    """Waits until the newest checkpoint, this one, is on the disk itself; the clients' files `before` are already."""
    versions = checkpoint.clients["version"]
    new = [file_name(client, versions[client]) for client in np.flatnonzero(versions != before["version"])]
    clients = (folder / CLIENTS, folder / CLIENTS / COPIES)
    atomic.sync([*(each / name for each in clients for name in new), folder / STATE, *clients, folder])


def load(folder: Path) -> tuple[Checkpoint, str | None, dict[int, str]]:
    """(the newest whole checkpoint, what was wrong with a newer one, damage of clients' files). Changes nothing."""
    (found, lost), problem = _newest(folder, _with_clients)
    return found, problem, lost


def load_model(folder: Path) -> Checkpoint:
    """The newest checkpoint whose global model can be read; the files that it names may be gone."""
    return _newest(folder, _read)[0]


def _newest(folder: Path, read: Callable[[Path], T]) -> tuple[T, str | None]:
    try:
        return read(folder / STATE), None
    except Damaged as damage:
        problem = str(damage)
    try:
        return read(folder / PREVIOUS), problem
    except Damaged as damage:
        raise DataError(
            f"{folder}: expected a whole checkpoint, found none: {problem}; {damage}. The run has to be done anew"
        ) from damage


def drop_newest(folder: Path) -> None:
    """The previous checkpoint takes the damaged one's place: the next `save` must not replace the only whole one."""
    with suppress(FileNotFoundError):
        (folder / STATE).replace(folder / DAMAGED)
    (folder / PREVIOUS).replace(folder / STATE)


def _with_clients(path: Path) -> tuple[Checkpoint, dict[int, str]]:
    """(the checkpoint, with every file that it names verified; damage, by client, of those that have a copy)."""
    checkpoint = _read(path)
    size = sum(map(len, checkpoint.state.params.parts))
    return checkpoint, check_files(path.parent / CLIENTS, checkpoint.clients, size)


def _read(path: Path) -> Checkpoint:
    """The checkpoint's own content; nothing of it is parsed before its checksum is found right."""
    try:
        content = untrusted.read_bytes(path)
    except (OSError, DataError) as error:
        raise Damaged(str(error)) from error
    if content[-SEAL:] != _seal(content):
        raise Damaged(f"{path}: its content is not what was written (checksum)")
    try:
        arrays = untrusted.arrays_of(io.BytesIO(content), len(content))  # nothing in it is packed
        about = json.loads(arrays["about"].tobytes())
        if about["format"] == FORMAT:
            return _checked(about, arrays)
    except MemoryError:
        raise
    except Exception as error:  # no accident: its checksum is right. What NumPy and zipfile raise is without end
        what = str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
        raise DataError(f"{path}: {what}. It was edited, and can't be used") from error
    found = short(about["format"])
    raise ConfigError(f"{path}: expected a checkpoint of format {FORMAT}, received {found}: of another version")


def _checked(content: Any, arrays: Mapping[str, np.ndarray]) -> Checkpoint:
    """The checkpoint of this content; DataError says which field can't be one's."""
    about = schema.read_about(content, arrays, MEMORY)
    rounds_done, clients, records = int(arrays["rounds_done"]), arrays["clients"], arrays["records"].tobytes()
    decode(records, rounds_done, len(clients))
    state = ServerState(
        rounds_done,
        Params(arrays["sigma"], arrays.get("psi")),
        Plateau(*about.plateau),
        dict(zip(arrays["embedded"].tolist(), arrays["embeddings"])),
        about.device_lrs,
        None if about.best is None else Best(*about.best, arrays["best"]),
        tuple(arrays[f"{MEMORY}{number}"] for number in range(sum(name.startswith(MEMORY) for name in arrays))),
    )
    data = DataAbout(*about.data)
    inputs = about.inputs or {}
    return Checkpoint(about.settings, about.versions, about.partitions, data, state, clients, records, inputs)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuses a run that another process is working on. The lock ends with the process, however that ends."""
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(
                f"--resume: {folder.name} is being trained by another process; wait or stop it"
            ) from error
        yield
