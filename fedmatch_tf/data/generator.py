"""Partitions on disk: made in a folder of their own, named last, so that what has its name is whole."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmatch_tf.base import temporary, untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import files, manifest
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS, PartitionSpec
from fedmatch_tf.data.manifest import REMAKE, FileRecord, Manifest, SourceRecord, read_manifest
from fedmatch_tf.data.partition import Partition, make_partition
from fedmatch_tf.data.raw import Progress, silent
from fedmatch_tf.data.sources import Source

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
    partition = make_partition(source.y, spec, source.groups, source.num_test)  # first: what can't be writes nothing
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder}: expected a folder, found a file. Use another --dataset-path")
    if folder.exists() and any(folder.iterdir()):
        if not force:
            return Generated(folder, _verified(folder, spec, source, partition, progress), False)
        _check_replaceable(folder, spec)
    dataset_path.mkdir(parents=True, exist_ok=True)
    _restore_abandoned(dataset_path)
    with temporary.new_folder(f"{spec.task}-", dataset_path) as work:
        made = _write(Path(work) / _NEW, spec, source, partition, progress)
        try:
            with _locked(folder, fcntl.LOCK_EX) if folder.exists() else nullcontext():
                _put_in_place(Path(work), folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            # Another process made the folder while we were writing: fine if it is the same.
            return Generated(folder, _verified(folder, spec, source, partition, progress), False)
    return Generated(folder, made, True)


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """While it lasts, no process of ours on this machine replaces the folder."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    """A lock on the folder; where the file system has none, nothing."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(
                    f"{folder}: a run is using these partitions. Wait for its end, or use another --dataset-path"
                ) from None
        yield
    finally:
        os.close(descriptor)


def difference(folder: Path, spec: PartitionSpec, source: Source | None = None) -> list[str]:
    """How the folder's settings differ from these, one line each; empty if they are the same."""
    existing = read_manifest(folder)
    wanted, found = asdict(spec), asdict(existing.spec)
    lines = [
        f"{name}: found {_told(name, found[name])}, wanted {_told(name, wanted[name])}"
        for name in wanted
        if wanted[name] != found[name]
    ]
    if source is not None and source.checksum != existing.source.checksum:
        lines.append(
            f"source: found {existing.source.origin} with checksum {existing.source.checksum[:12]}..., "
            f"wanted {source.origin} with {source.checksum[:12]}..."
        )
    return lines


def _told(name: str, value: Any) -> str:
    """A setting as its flag has it."""
    return "'pooled'" if name == "test_split" and value is None else repr(value)


def _verified(folder: Path, spec: PartitionSpec, source: Source, partition: Partition, progress: Progress) -> Manifest:
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
    existing = read_manifest(folder)
    expected = _manifest(spec, source, partition, {name: record.sha256 for name, record in existing.files.items()})
    if existing != expected:
        raise DataError(f"{folder / manifest.NAME}: altered or damaged: it does not describe these settings. {REMAKE}")
    for name, record in progress(existing.files.items(), len(existing.files), "Verifying partitions"):
        path = folder / name
        if not path.exists():
            raise DataError(f"{path}: missing. {REMAKE}")
        if hashlib.sha256(untrusted.read_bytes(path)).hexdigest() != record.sha256:
            raise DataError(f"{path}: altered or damaged: its sha256 is not the manifest's. {REMAKE}")
    if not (folder / PICTURE).is_file():
        _draw(existing, folder / PICTURE, progress)
    return existing


def _check_replaceable(folder: Path, spec: PartitionSpec) -> None:
    """Raises if the folder holds anything but partition files, so that --force deletes nothing else."""
    if folder.is_symlink():
        raise DataError(f"{folder}: expected a folder, found a link to one; not replacing it")
    name = DATASETS[spec.dataset].file_name
    ours = re.compile(rf"(test|valid|s|u)_{name}(_\d+){{0,2}}\.npy|manifest\.json|partition\.png")
    for path in folder.iterdir():
        if not ours.fullmatch(path.name) or not path.is_file() or path.is_symlink():
            raise DataError(f"{folder}: expected partition files only, found {path.name} as well; not deleting it")


def _write(folder: Path, spec: PartitionSpec, source: Source, partition: Partition, progress: Progress) -> Manifest:
    """Writes files, picture and manifest to a new folder."""
    folder.mkdir()
    parts = list(_parts(spec, partition))
    checksums = {}
    for role, client, step, index in progress(parts, len(parts), f"Writing {spec.task}"):
        name = files.file_name(spec.dataset, role, client, step)
        payload = files.encode(name, source.x[index], source.y[index], len(source.class_names))
        (folder / name).write_bytes(payload)
        checksums[name] = hashlib.sha256(payload).hexdigest()
    made = _manifest(spec, source, partition, checksums)
    _draw(made, folder / PICTURE, progress)
    (folder / manifest.NAME).write_text(manifest.to_json(made), encoding="utf-8")
    return made


def _manifest(spec: PartitionSpec, source: Source, partition: Partition, checksums: Mapping[str, str]) -> Manifest:
    """The manifest of this partition, whose files have these checksums."""
    num_classes, records = len(source.class_names), {}
    for role, client, step, index in _parts(spec, partition):
        name = files.file_name(spec.dataset, role, client, step)
        counts = np.bincount(source.y[index], minlength=num_classes)
        records[name] = FileRecord(role, client, step, len(index), tuple(counts.tolist()), checksums.get(name, ""))
    return Manifest(
        spec=spec,
        source=SourceRecord(source.origin, len(source.y), source.checksum, source.official, source.skipped or None),
        class_names=source.class_names,
        image_shape=tuple(source.x.shape[1:]),
        unused=len(source.y) - sum(record.num_examples for record in records.values()),
        files=records,
    )


def _draw(made: Manifest, path: Path, progress: Progress) -> None:
    from fedmatch_tf.data.figure import draw_partition  # matplotlib takes a while to import

    for _ in progress([None], 0, "Drawing the partition"):
        draw_partition(made, path)


def _parts(spec: PartitionSpec, partition: Partition) -> Iterator[tuple[str, int | None, int | None, np.ndarray]]:
    """(role, client, step, indices) of every file."""
    yield "test", None, None, partition.test
    yield "valid", None, None, partition.valid
    for client, index in enumerate(partition.labeled):
        if len(index):
            yield "labeled", client if spec.scenario == "lc" else None, None, index
    for client, steps in enumerate(partition.unlabeled):
        for step, index in enumerate(steps):
            yield "unlabeled", client, step if KINDS[spec.kind].streams else None, index


_NEW = "new"


def _put_in_place(work: Path, folder: Path) -> None:
    """Gives the new folder its name; an old one is set aside, and goes away with the working folder."""
    old = work / folder.name
    try:
        if folder.exists():
            folder.rename(old)
        (work / _NEW).rename(folder)
    except BaseException:
        _restore(old, folder)
        raise


def _restore_abandoned(parent: Path) -> None:
    """What dead processes had set aside goes back if it is missing."""
    for work in temporary.abandoned(parent):
        for old in work.iterdir():
            if old.is_dir() and old.name != _NEW:
                _restore(old, parent / old.name)


def _restore(old: Path, folder: Path) -> None:
    """Puts a folder that was set aside back in its place, if that is free."""
    if old.exists() and not folder.exists():
        old.rename(folder)
