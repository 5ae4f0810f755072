"""Partitions to what training needs: ClientData, EvalData, Examples. Files are untrusted until checked."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import files, manifest
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.manifest import FileRecord, read_both


@dataclass(frozen=True)
class Partitions:
    """A folder of partitions, ours or the original's."""

    folder: Path
    scenario: str
    kind: str
    dataset: str
    num_clients: int
    num_steps: int
    num_classes: int
    image_shape: tuple[int, ...]
    files: dict[str, FileRecord] | None  # None: made by the original, so there is no manifest
    checksums: Mapping[str, str]  # sha256 of each file: those of the manifest, or else of the files when it was opened
    fingerprint: str  # tells them from others: the manifest's checksum, or else that of all files
    class_names: tuple[str, ...] | None = None  # None: the manifest would say
    labeled_clients: int | None = None  # so many of the clients have labels; None: all
    skipped: tuple[str, ...] = ()  # images that could not be read and were left out
    read: Callable[[Path], bytes] = untrusted.read_bytes  # a file's content; other readers read elsewhere than here


@dataclass(frozen=True)
class ClientData:
    """What one client holds at one streaming step."""

    client: int
    labeled: Examples | None  # None in labels-at-server, and where only some clients have labels
    unlabeled: Examples


@dataclass(frozen=True)
class EvalData:
    """Validation and test data, as far as there are any here."""

    valid: Examples | None
    test: Examples | None


def open_partitions(dataset_path: Path, task: str) -> Partitions:
    """The task's folder of partitions, with a manifest (ours) or without (the original's)."""
    return open_folder(dataset_path / task, task)


def open_folder(folder: Path, task: str) -> Partitions:
    """The same, of any name."""
    scenario, kind, dataset = task.split("-")
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of partitions, found none. Make it with --work-type gen_data")
    if (folder / manifest.NAME).exists():
        found, fingerprint = read_both(folder)
        if found.spec.task != task:
            raise DataError(f"{folder}: expected partitions of {task}, its manifest says {found.spec.task}")
        return Partitions(
            folder,
            scenario,
            kind,
            dataset,
            found.spec.num_clients,
            found.spec.num_steps,
            found.num_classes,
            found.image_shape,
            found.files,
            {name: record.sha256 for name, record in found.files.items()},
            fingerprint,
            found.class_names,
            found.spec.labeled_clients,
            found.source.skipped or (),
        )
    return _scan(folder, scenario, kind, dataset)


def _scan(folder: Path, scenario: str, kind: str, dataset: str) -> Partitions:
    """A folder without manifest: clients and steps are counted by file name, shapes taken from the test file."""
    streams = KINDS[kind].streams
    step = r"_(\d+)" if streams else "()"
    pattern = re.compile(rf"u_{re.escape(DATASETS[dataset].file_name)}_(\d+){step}\.npy")
    found = [match.groups() for path in folder.iterdir() if (match := pattern.fullmatch(path.name))]
    if not found:
        expected = files.file_name(dataset, "unlabeled", 0, 0 if streams else None)
        raise DataError(f"{folder}: expected partition files such as {expected}, found none")
    num_clients = max(int(client) for client, _ in found) + 1
    num_steps = max(int(step or 0) for _, step in found) + 1
    if len(found) != num_clients * num_steps:
        raise DataError(
            f"{folder}: expected unlabelled files of {num_clients} clients x {num_steps} steps = "
            f"{num_clients * num_steps}, found {len(found)}"
        )
    checksums = {path.name: _sha256(untrusted.read_bytes(path)) for path in sorted(folder.glob("*.npy"))}
    fingerprint = _sha256(b"".join(os.fsencode(name) + bytes.fromhex(each) for name, each in checksums.items()))
    test, _ = _read(folder / files.file_name(dataset, "test"))
    shape, num_classes = test.x.shape[1:], test.y.shape[1]
    return Partitions(
        folder, scenario, kind, dataset, num_clients, num_steps, num_classes, shape, None, checksums, fingerprint
    )


def load_client(partitions: Partitions, client: int, step: int = 0) -> ClientData:
    """The client's data at a streaming step (0 for batch tasks)."""
    if not (0 <= client < partitions.num_clients and 0 <= step < partitions.num_steps):
        raise DataError(
            f"{partitions.folder}: expected clients 0 to {partitions.num_clients - 1} and steps 0 to "
            f"{partitions.num_steps - 1}, received client {client}, step {step}"
        )
    labeled = _load(partitions, "labeled", client) if _has_labels(partitions, client) else None
    unlabeled = _load(partitions, "unlabeled", client, step if KINDS[partitions.kind].streams else None)
    return ClientData(client, labeled, unlabeled)


def _has_labels(partitions: Partitions, client: int) -> bool:
    if partitions.labeled_clients is None or partitions.files is None:
        return partitions.scenario == "lc"
    return files.file_name(partitions.dataset, "labeled", client) in partitions.files


class ClientCache:
    """Clients' data as they were last loaded, the longest unused going first when they exceed a size."""

    def __init__(self, partitions: Partitions, max_bytes: int) -> None:
        self._partitions, self._max_bytes, self._num_bytes = partitions, max_bytes, 0
        self._cached: dict[tuple[int, int], ClientData] = {}  # the longest unused first

    def get(self, client: int, step: int = 0) -> ClientData:
        """The client's data at a streaming step."""
        data = self._cached.pop((client, step), None)
        if data is None:
            data = load_client(self._partitions, client, step)
            self._num_bytes += _num_bytes(data)
        self._cached[(client, step)] = data
        while self._num_bytes > self._max_bytes and len(self._cached) > 1:
            self._num_bytes -= _num_bytes(self._cached.pop(next(iter(self._cached))))
        return data


def _num_bytes(data: ClientData) -> int:
    sets = [data.unlabeled] if data.labeled is None else [data.labeled, data.unlabeled]
    return sum(part.x.nbytes + part.y.nbytes for part in sets)


def load_server(partitions: Partitions) -> Examples:
    """The server's labelled data (labels-at-server)."""
    if partitions.scenario != "ls":
        raise DataError(f"{partitions.folder}: expected a labels-at-server task; here clients hold the labels")
    return _load(partitions, "labeled")


def sorted_files(partitions: Partitions) -> list[str]:
    """Labelled files whose examples lie class after class; training takes batches in the order of the file."""
    holders = [None] if partitions.scenario == "ls" else range(partitions.num_clients)
    found = []
    for client in holders:
        if client is None or _has_labels(partitions, client):
            classes = _load(partitions, "labeled", client).y.argmax(axis=1)
            if len(classes) >= 10 and classes[0] != classes[-1] and (np.diff(classes) >= 0).all():
                found.append(files.file_name(partitions.dataset, "labeled", client))
    return found


def load_test(partitions: Partitions) -> Examples:
    """Test data."""
    return _load(partitions, "test")


def load_eval(partitions: Partitions) -> EvalData:
    """Validation and test data; none that the manifest does not name, as on a client's own host."""
    roles = {
        role: _load(partitions, role)
        for role in ("valid", "test")
        if partitions.files is None or files.file_name(partitions.dataset, role) in partitions.files
    }
    return EvalData(roles.get("valid"), roles.get("test"))


def _load(partitions: Partitions, role: str, client: int | None = None, step: int | None = None) -> Examples:
    """One file, checked against what the folder says of it."""
    name = files.file_name(partitions.dataset, role, client, step)
    path = partitions.folder / name
    examples, payload = _read(path, partitions.read)
    shape = list(examples.x.shape[1:])
    if shape != list(partitions.image_shape):
        raise DataError(f"{path}: wrong images: expected {list(partitions.image_shape)}, received {shape}")
    if examples.y.shape[1] != partitions.num_classes:
        raise DataError(f"{path}: wrong classes: expected {partitions.num_classes}, received {examples.y.shape[1]}")
    _check_record(partitions, path, payload, examples)
    return examples


def _check_record(partitions: Partitions, path: Path, payload: bytes, examples: Examples) -> None:
    is_same = _sha256(payload) == partitions.checksums.get(path.name)
    if partitions.files is None:
        if not is_same:
            raise DataError(f"{path}: altered since the run opened its partitions. Put it back, or begin a new run")
        return
    record = partitions.files.get(path.name)
    if record is None:
        raise DataError(f"{path}: expected an entry in {manifest.NAME}, found none. {manifest.REMAKE}")
    if len(examples) != record.num_examples:
        raise DataError(f"{path}: wrong number: expected {record.num_examples} examples, received {len(examples)}")
    if not is_same:
        raise DataError(f"{path}: altered or damaged: its sha256 is not the manifest's. {manifest.REMAKE}")


def _sha256(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


def _read(path: Path, read: Callable[[Path], bytes] = untrusted.read_bytes) -> tuple[Examples, bytes]:
    """(what a partition file holds, its bytes)."""
    try:
        payload = read(path)
    except OSError as error:
        raise DataError(f"{path}: expected a partition file ({error.strerror})") from error
    try:
        return files.decode(payload), payload
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
