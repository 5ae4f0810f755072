"""A host's own data: a client's files of `gen_data`, or folders of images, which are packed into such files once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import manifest
from fedmatch_tf.data.loader import Partitions, open_folder


class OwnData(NamedTuple):
    """What a client's host has."""

    client: int
    num_examples: int  # labelled and unlabelled, of all streaming steps
    class_names: tuple[str, ...]
    knows_truth: bool  # whether the true classes of its unlabelled images are known
    partitions: Partitions


def open_own(node: Mapping[str, Any], task: str) -> OwnData:
    """The data that the node's config names."""
    if isinstance(node.get("partition"), str):
        return _partition(Path(node["partition"]), node.get("client"), task)
    raise DataError('node config: expected partition="FOLDER" or folder="FOLDER", received neither')


def _partition(folder: Path, client: Any, task: str) -> OwnData:
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
    names = manifest.read_manifest(folder).class_names
    return OwnData(client, size, names, True, replace(partitions, files=own))
