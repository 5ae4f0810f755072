"""Partitions on disk: made in a hidden folder, named last, so that what has its name is whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np

from data import files, manifest
from data.errors import DataError
from data.manifest import FileRecord, Manifest, SourceRecord, read_manifest
from data.partition import Partition, PartitionSpec, make_partition
from data.readers import Progress, silent
from data.sources import FILE_NAMES, Source

PICTURE = "partition.png"


class Generated(NamedTuple):
    """What `generate` did."""

    folder: Path
    manifest: Manifest
    written: bool  # False: the same partitions were there already, and whole


def generate(
    spec: PartitionSpec, source: Source, dataset_path: Path, force: bool = False, progress: Progress = silent
) -> Generated:
    """Writes the partitions to `<dataset_path>/<task>`, or verifies them if they are there.

    Args:
        force: replace partitions made with other settings, or damaged ones.
    """
    folder = dataset_path / spec.task
    partition = make_partition(source.y, spec, source.groups)  # first: an impossible request writes nothing
    if folder.exists() and any(folder.iterdir()) and not force:
        return Generated(folder, _verified(folder, spec, source, progress), False)
    if folder.exists():
        _check_replaceable(folder, spec)
    try:
        dataset_path.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(dataset_path)
        with _hidden_folder(dataset_path, spec.task) as hidden:
            made = _write(hidden, spec, source, partition, progress)
            try:
                _put_in_place(hidden, folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                # Another process made the folder while we were writing: fine if it is the same.
                return Generated(folder, _verified(folder, spec, source, progress), False)
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        raise DataError(f"{folder}: expected a folder that can be written to ({error.strerror})") from error
    return Generated(folder, made, True)


def difference(folder: Path, spec: PartitionSpec, source: Source | None = None) -> list[str]:
    """How the folder's settings differ from these, one line each; empty if they are the same."""
    there = read_manifest(folder)
    now, then = asdict(spec), asdict(there.spec)
    lines = [f"{name}: there {then[name]!r}, wanted {now[name]!r}" for name in now if now[name] != then[name]]
    if source is not None and source.checksum != there.source.checksum:
        lines.append(
            f"source: there {there.source.origin} with checksum {there.source.checksum[:12]}..., "
            f"wanted {source.origin} with {source.checksum[:12]}..."
        )
    return lines


def _verified(folder: Path, spec: PartitionSpec, source: Source, progress: Progress) -> Manifest:
    """The folder's manifest, once settings and every file are found to be as wanted."""
    if not (folder / manifest.NAME).exists():
        raise DataError(
            f"{folder}: expected our partitions or nothing, found files without {manifest.NAME} (the original's?). "
            f"Use another --dataset-path, or replace them with --force"
        )
    differs = difference(folder, spec, source)
    if differs:
        raise DataError(
            f"{folder}: there are partitions with other settings:\n  "
            + "\n  ".join(differs)
            + "\nUse another --dataset-path, or replace them with --force"
        )
    there = read_manifest(folder)
    for name, record in progress(there.files.items(), len(there.files), "Verifying partitions"):
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path}: missing. {manifest.REMAKE}")
        if hashlib.sha256(path.read_bytes()).hexdigest() != record.sha256:
            raise DataError(f"{path}: altered or damaged: its sha256 is not the manifest's. {manifest.REMAKE}")
    return there


def _check_replaceable(folder: Path, spec: PartitionSpec) -> None:
    """Raises if the folder holds anything but partition files, so that --force deletes nothing else."""
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder, found a file")
    name = FILE_NAMES[spec.dataset]
    ours = (f"*_{name}*.npy", manifest.NAME, PICTURE)
    foreign = [path.name for path in folder.iterdir() if not any(path.match(pattern) for pattern in ours)]
    if foreign:
        raise DataError(f"{folder}: expected partition files only, found {foreign[0]} as well; not deleting it")


def _write(hidden: Path, spec: PartitionSpec, source: Source, partition: Partition, progress: Progress) -> Manifest:
    """Writes files, picture and manifest to the hidden folder."""
    num_classes = len(source.class_names)
    parts = list(_parts(spec, partition))
    records = {}
    for role, client, step, index in progress(parts, len(parts), f"Writing {spec.task}"):
        name = files.file_name(spec.dataset, role, client, step)
        payload = files.encode(name, source.x[index], source.y[index], num_classes)
        (hidden / name).write_bytes(payload)
        counts = np.bincount(source.y[index], minlength=num_classes)
        records[name] = FileRecord(
            role, client, step, len(index), tuple(counts.tolist()), hashlib.sha256(payload).hexdigest()
        )
    used = sum(record.num_examples for record in records.values())
    made = Manifest(
        spec=spec,
        source=SourceRecord(source.origin, len(source.y), source.checksum, source.official),
        class_names=source.class_names,
        image_shape=tuple(source.x.shape[1:]),
        unused=len(source.y) - used,
        files=records,
    )
    from data.figure import draw_partition  # matplotlib takes a while to import

    for _ in progress([None], 0, "Drawing the partition"):
        draw_partition(made, hidden / PICTURE)
    (hidden / manifest.NAME).write_text(manifest.to_json(made), encoding="utf-8")
    return made


def _parts(spec: PartitionSpec, partition: Partition) -> Iterator[tuple[str, int | None, int | None, np.ndarray]]:
    """(role, client, step, indices) of every file."""
    yield "test", None, None, partition.test
    yield "valid", None, None, partition.valid
    for client, index in enumerate(partition.labeled):
        yield "labeled", client if spec.scenario == "lc" else None, None, index
    for client, steps in enumerate(partition.unlabeled):
        for step, index in enumerate(steps):
            yield "unlabeled", client, step if spec.kind == "simb" else None, index


_HIDDEN_SUFFIX = ".partial"


@contextlib.contextmanager
def _hidden_folder(parent: Path, task: str) -> Iterator[Path]:
    """A folder that no reader takes for partitions; deleted if the work in it fails."""
    hidden = parent / f".{task}.{socket.gethostname()}.{os.getpid()}{_HIDDEN_SUFFIX}"
    shutil.rmtree(hidden, ignore_errors=True)
    hidden.mkdir()
    try:
        yield hidden
    finally:
        shutil.rmtree(hidden, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    """Deletes hidden folders of processes of this machine that are no more."""
    for hidden in parent.glob(f".*.{socket.gethostname()}.*{_HIDDEN_SUFFIX}"):
        process = hidden.name[: -len(_HIDDEN_SUFFIX)].rsplit(".", 1)[1]
        if process.isdigit() and not _is_alive(int(process)):
            shutil.rmtree(hidden, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's, but alive
    return True


def _put_in_place(hidden: Path, folder: Path) -> None:
    """Gives the hidden folder its name; an old one goes away only then."""
    old = hidden.with_name(f".old{hidden.name}")
    if folder.exists():
        folder.rename(old)
    hidden.rename(folder)
    shutil.rmtree(old, ignore_errors=True)
