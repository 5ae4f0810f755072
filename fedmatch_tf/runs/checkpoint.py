"""A run's state on disk. The newest checkpoint is `state.npz`, the one before it `previous.npz`.

A checkpoint is one file that names others: the clients' files (store.py) and how much of `records.jsonl` belongs to it,
each with a checksum. Those are written first and never changed, so a checkpoint is whole as soon as it has its name.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmatch_tf.algorithms.algorithm import Best, ServerState
from fedmatch_tf.base import atomic, untrusted
from fedmatch_tf.base.atomic import replacing
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import ConfigError
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import schema
from fedmatch_tf.runs.partition_folder import DataAbout
from fedmatch_tf.runs.records import Mark, read_records
from fedmatch_tf.runs.store import DamagedFile, check_files, file_name

STATE, PREVIOUS, DAMAGED, RECORDS = "state.npz", "previous.npz", "damaged.npz", "records.jsonl"
CLIENTS, LOCK, START = "clients", "lock", "init.npz"
MODEL, BEST_MODEL = "model.keras", "best.keras"
MEMORY = "memory_"  # and a number: vectors that the algorithm remembers
FORMAT = 3
SEAL = 64  # letters of a sha256


class Checkpoint(NamedTuple):
    """All that a run needs to go on."""

    settings: Mapping[str, Any]  # of its Config
    versions: Mapping[str, str]  # of what it was made with
    partitions: str  # fingerprint of the data
    state: ServerState
    clients: np.ndarray  # FILES [clients]: their files
    records: Mark
    data: DataAbout | None = None  # None: of a version that did not record it


class Damaged(ValueError):
    """A checkpoint that can't be used; says why."""


def save_start(folder: Path, kernels: Sequence[np.ndarray]) -> None:
    """Keeps what a run starts from, as --init-weights reads it."""
    archive = io.BytesIO()
    np.savez(archive, **{f"sigma_{number}": kernel for number, kernel in enumerate(kernels)})
    with replacing(folder / START) as file:
        file.write(archive.getbuffer())


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Makes this the newest checkpoint; the newest so far becomes the previous one."""
    state = checkpoint.state
    about = {
        "format": FORMAT,
        "settings": checkpoint.settings,
        "versions": checkpoint.versions,
        "partitions": checkpoint.partitions,
        "plateau": state.plateau,
        "device_lrs": state.device_lrs,
        "records": checkpoint.records,
        "data": checkpoint.data,
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
        about=np.frombuffer(json.dumps(about).encode(), np.uint8),
        **{name: vector for name, vector in optional.items() if vector is not None},
        **{f"{MEMORY}{number}": vector for number, vector in enumerate(state.memory)},
    )
    with replacing(folder / STATE, keep_as=folder / PREVIOUS, large=True) as file:
        file.write(_sealed(archive))


def _sealed(archive: io.BytesIO) -> memoryview:
    """The archive with a checksum of all that is before it as its comment, which is its end."""
    with zipfile.ZipFile(archive, "a") as file:
        file.comment = b"0" * SEAL
    content = archive.getbuffer()
    content[-SEAL:] = hashlib.sha256(content[:-SEAL]).hexdigest().encode()
    return content


def _check_seal(content: bytes) -> bool:
    """Whether it has a checksum, which those of version 0.4.0 and before don't; raises Damaged if that is wrong."""
    given = content[-SEAL:]
    is_seal = len(given) == SEAL and all(letter in b"0123456789abcdef" for letter in given)
    if is_seal and hashlib.sha256(content[:-SEAL]).hexdigest().encode() != given:
        raise Damaged("its content is not what was written (checksum)")
    return is_seal


def sync(folder: Path, checkpoint: Checkpoint, before: np.ndarray) -> None:
    """Waits until the newest checkpoint, this one, is on the disk itself; the clients' files `before` are already."""
    versions = checkpoint.clients["version"]
    new = [file_name(client, versions[client]) for client in np.flatnonzero(versions != before["version"])]
    folders = (folder / CLIENTS, folder)
    atomic.sync([*(folder / CLIENTS / name for name in new), folder / RECORDS, folder / STATE, *folders])


def load(folder: Path) -> tuple[Checkpoint, str | None]:
    """(the newest whole checkpoint, what was wrong with a newer one). Changes nothing."""
    return _newest(folder, _read)


def load_model(folder: Path) -> Checkpoint:
    """The newest checkpoint whose global model can be read; the files that it names may be gone."""
    return _newest(folder, _parse)[0]


def _newest(folder: Path, read: Callable[[Path], Checkpoint]) -> tuple[Checkpoint, str | None]:
    try:
        return read(folder / STATE), None
    except Damaged as damage:
        problem = str(damage)
    try:
        previous = read(folder / PREVIOUS)
    except Damaged as damage:
        raise DataError(
            f"{folder}: expected a whole checkpoint, found none: {problem}; {damage}. The run has to be done anew"
        ) from damage
    return previous, problem


def drop_newest(folder: Path) -> None:
    """The previous checkpoint takes the damaged one's place: the next `save` must not replace the only whole one."""
    with suppress(FileNotFoundError):
        (folder / STATE).replace(folder / DAMAGED)
    (folder / PREVIOUS).replace(folder / STATE)


def _read(path: Path) -> Checkpoint:
    """The checkpoint, with every file that it names verified."""
    checkpoint = _parse(path)
    try:
        check_files(path.parent / CLIENTS, checkpoint.clients, sum(map(len, checkpoint.state.params.parts)))
        content = _content_of_records(path.parent / RECORDS, checkpoint.records)
    except (OSError, DataError, DamagedFile) as error:
        raise Damaged(f"{path}: {error}") from error
    try:
        read_records(content, checkpoint.state.rounds_done, len(checkpoint.clients))
    except DataError as error:
        raise DataError(f"{path.parent / RECORDS}: {error}. It was edited, and can't be used") from error
    return checkpoint


def _parse(path: Path) -> Checkpoint:
    """The checkpoint's own content; nothing of it is parsed before its checksum is found right."""
    is_sealed = False
    try:
        content = untrusted.read_bytes(path)
        is_sealed = _check_seal(content)
        arrays, _ = untrusted.arrays_of(io.BytesIO(content), len(content))  # nothing in it is packed
        about = json.loads(arrays["about"].tobytes())
        if about["format"] != FORMAT:
            raise ConfigError(f"{path} is of another version of this program")
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # what NumPy and zipfile raise for a damaged file is without end
        if is_sealed:  # no accident: its checksum is right
            raise DataError(f"{path}: {type(error).__name__}: {error}. It was edited, and can't be used") from error
        raise Damaged(f"{path}: {error}") from error
    try:
        return _from_checked(schema.read_about(about, arrays, MEMORY), arrays)
    except DataError as error:  # no accident: its checksum is right
        raise DataError(f"{path}: {error}. It was edited, and can't be used") from error


def _from_checked(about: schema.About, arrays: Mapping[str, np.ndarray]) -> Checkpoint:
    """The checkpoint of a content that was checked field by field."""
    embeddings = dict(zip(arrays["embedded"].tolist(), arrays["embeddings"]))
    memory = tuple(arrays[f"{MEMORY}{number}"] for number in range(sum(name.startswith(MEMORY) for name in arrays)))
    state = ServerState(
        int(arrays["rounds_done"]),
        Params(arrays["sigma"], arrays.get("psi")),
        Plateau(*about.plateau),
        embeddings,
        about.device_lrs,
        None if about.best is None else Best(*about.best, arrays["best"]),
        memory,
    )
    data = None if about.data is None else DataAbout(*about.data)
    mark = Mark(*about.records)
    return Checkpoint(about.settings, about.versions, about.partitions, state, arrays["clients"], mark, data)


def _content_of_records(path: Path, mark: Mark) -> bytes:
    content = untrusted.read_beginning(path, min(mark.num_bytes, path.stat().st_size))
    if len(content) != mark.num_bytes or zlib.crc32(content) != mark.crc:
        raise Damaged(f"{path}: its first {mark.num_bytes} bytes are not what was written")
    return content


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
