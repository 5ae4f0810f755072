"""A host's own data: a client's files of `gen_data`, or folders of images, which are packed into such files once.

A folder of images has `labeled/CLASS/`, `unlabeled/`, `valid/CLASS/` and `test/CLASS/`, as far as the host has them.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedmatch_tf.base.atomic import replacing, write_text
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config
from fedmatch_tf.data import files, manifest
from fedmatch_tf.data.loader import Partitions, open_folder
from fedmatch_tf.data.manifest import FileRecord, Manifest, SourceRecord
from fedmatch_tf.data.readers import IMAGE_SUFFIXES
from fedmatch_tf.data.sources import read_image_like
from fedmatch_tf.runs.partition_folder import partition_spec


class OwnData(NamedTuple):
    """What a client's host has."""

    client: int
    num_examples: int  # labelled and unlabelled, of all streaming steps
    class_names: tuple[str, ...]
    knows_truth: bool  # whether the true classes of its unlabelled images are known
    partitions: Partitions


def open_own(node: Mapping[str, Any], config: Config, classes: Sequence[str]) -> OwnData:
    """The data that the node's config names.

    Args:
        classes: of the federation; none: those that this host has.
    """
    client = node.get("client")
    if isinstance(node.get("partition"), str):
        return _of_one_client(Path(node["partition"]), client, config.task, knows_truth=True)
    if not isinstance(node.get("folder"), str) or not isinstance(client, int):
        raise DataError('node config: expected partition="FOLDER", or folder="FOLDER" client=NUMBER')
    if config.uses_true_labels or config.num_steps > 1:
        raise DataError(f"folder: {config.model} on {config.task} needs more than images; expected a partition")
    packed = _packed_once(Path(node["folder"]), client, config, classes)
    return _of_one_client(packed, client, config.task, knows_truth=False)


def _of_one_client(folder: Path, client: Any, task: str, knows_truth: bool) -> OwnData:
    """One client's files, beside a manifest that may name those of others, too."""
    partitions = open_folder(folder, task)
    if partitions.files is None:
        raise DataError(f"{folder}: expected {manifest.NAME}, found none")
    here = {name: file for name, file in partitions.files.items() if (folder / name).exists()}
    clients = sorted({file.client for file in here.values() if file.client is not None})
    if client is None and len(clients) == 1:
        (client,) = clients
    if client not in clients:
        raise DataError(f"{folder}: expected the files of one client, found those of {clients or 'none'}")
    own = {name: file for name, file in here.items() if file.client in (None, client)}
    size = sum(file.num_examples for file in own.values() if file.client is not None)
    return OwnData(client, size, partitions.class_names or (), knows_truth, replace(partitions, files=own))


def _packed_once(folder: Path, client: int, config: Config, classes: Sequence[str]) -> Path:
    """The images as partition files in the user's cache; made again when a file has changed."""
    if not folder.is_dir():
        raise DataError(f"{folder}: expected a folder of images, found none")
    about = client, config.task, config.image_size, state_of(folder, classes)
    key = hashlib.sha256(repr(about).encode()).hexdigest()
    of_folder = hashlib.sha256(str(folder.absolute()).encode()).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fedmatch" / of_folder[:16]
    packed = cache / key[:16]
    if not (packed / manifest.NAME).exists():
        shutil.rmtree(cache, ignore_errors=True)
        packed.mkdir(parents=True, mode=0o700)
        pack(folder, packed, client, config, classes)
    return packed


def state_of(folder: Path, classes: Sequence[str]) -> str:
    """The images and the federation's classes: what is packed is another if this is."""
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.rglob("*"))]
    return repr((tuple(classes), files))


def classes_in(folder: Path) -> tuple[str, ...]:
    """The classes of a host's labelled images, by their folders' names."""
    of_roles = (folder / role for role in ("labeled", "valid", "test"))
    return tuple(sorted({path.name for role in of_roles if role.is_dir() for path in role.iterdir() if path.is_dir()}))


def pack(folder: Path, to: Path, client: int | None, config: Config, classes: Sequence[str]) -> None:
    """Writes a host's images as partition files; the manifest comes last.

    Args:
        client: whose they are; None: the server's.
        classes: of the federation; none: those that are there.
    """
    names = tuple(classes) or classes_in(folder)
    if len(names) < 2:
        raise DataError(f"{folder}: expected images of two classes at least, found {', '.join(names) or 'none'}")
    roles = {"labeled": client, "valid": None, "test": None}
    if (config.scenario == "lc") == (client is None):
        del roles["labeled"]  # others have the labels
    sets = {role: _labelled(folder / role, names, config) for role in roles if (folder / role).is_dir()}
    if client is not None:
        x = _images(folder / "unlabeled", config)
        sets["unlabeled"] = x, np.zeros(len(x), np.int64)  # nobody knows their classes, and nobody looks at these
        if config.lr_source == "client" and "valid" not in sets:
            raise DataError(f"{folder}: expected images in valid/, as they decide on this client's learning rate")
    if "labeled" in roles and "labeled" not in sets:
        raise DataError(f"{folder}: expected images in labeled/, found none")
    records = {}
    for role, (x, y) in sets.items():
        owner = client if role in ("labeled", "unlabeled") else None
        name = files.file_name(config.dataset, role, owner)
        content = files.encode(name, x, y, len(names))
        with replacing(to / name) as file:
            file.write(content)
        counts = np.bincount(y, minlength=len(names)).tolist() if role != "unlabeled" else [0] * len(names)
        digest = hashlib.sha256(content).hexdigest()
        records[name] = FileRecord(role, owner, None, len(y), tuple(counts), digest)
    shape = (config.image_size, config.image_size, 3)
    source = SourceRecord("image folder", sum(record.num_examples for record in records.values()), "", None)
    write_text(to / manifest.NAME, manifest.to_json(Manifest(partition_spec(config), source, names, shape, 0, records)))


def _labelled(folder: Path, names: Sequence[str], config: Config) -> tuple[np.ndarray, np.ndarray]:
    """(images, the numbers of their classes); some classes may have none."""
    found = sorted(path for path in folder.iterdir() if path.is_dir())
    unknown = [path.name for path in found if path.name not in names]
    if unknown:
        raise DataError(f"{folder}: expected folders of the classes {', '.join(names)}; found {unknown[0]}")
    images = [_images(path, config) for path in found]
    if not images:
        raise DataError(f"{folder}: expected a sub-folder of images for each class, found none")
    y = [np.full(len(x), names.index(path.name)) for path, x in zip(found, images)]
    return np.concatenate(images), np.concatenate(y)


def _images(folder: Path, config: Config) -> np.ndarray:
    """uint8 [n, size, size, 3]."""
    paths = sorted(path for path in folder.glob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    if not paths:
        raise DataError(f"{folder}: expected images, found none")
    return np.stack([read_image_like(config.dataset, path, config.image_size) for path in paths])
