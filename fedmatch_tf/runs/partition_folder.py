"""The partitions of a run: what decides them, and that they are there."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config, ConfigError, flag, settings, without_effect
from fedmatch_tf.data import generator, manifest
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS, PartitionSpec
from fedmatch_tf.data.loader import Partitions, open_partitions, sorted_files
from fedmatch_tf.data.sources import Source, load_source
from fedmatch_tf.runs.display import Progress


def partition_spec(config: Config) -> PartitionSpec:
    """What decides the run's partitions."""
    values = {field.name: getattr(config, field.name) for field in fields(PartitionSpec)}
    unread = {"alpha", "classes_per_client"} - set(KINDS[config.kind].reads)
    ignored: dict[str, Any] = {"test_split": None} if config.test_split == "pooled" else {"num_test": 0}
    return PartitionSpec(**{**values, **dict.fromkeys(unread), **ignored})


def with_own_partitions(config: Config, checksum: str = "") -> Config:
    """The config with a folder below its own that is for its kind of partitions alone, by seed and settings.

    Args:
        checksum: of the images, where the user says which: others may be dealt with the same settings.
    """
    digest = hashlib.sha256(f"{partition_spec(config)!r}{checksum}".encode()).hexdigest()[:8]
    return replace(config, dataset_path=str(Path(config.dataset_path) / f"seed{config.seed}-{digest}"))


def beside_others(config: Config, progress: Progress) -> tuple[Config, str, Source | None]:
    """(the config with a folder that no other partitions are in, a note if it is not the usual one, images if read).

    A folder has one partition of a task, so that of another seed, with other settings or of other images gets a folder
    of its own.
    """
    folder = config.partition_folder
    if not (folder / manifest.NAME).exists():
        return config, "", None
    source = _source(config, progress) if config.source else None
    differs = generator.difference(folder, partition_spec(config), source)
    if not differs:
        return config, "", source
    own = with_own_partitions(config, source.checksum if source else "")
    note = (
        f"{folder} has partitions with other settings ({'; '.join(differs)}); this run's are in {own.partition_folder}"
    )
    return own, note, source


def _source(config: Config, progress: Progress) -> Source:
    return load_source(config.dataset, config.source, config.image_size, progress, config.skip_broken)


def ensure_partitions(config: Config, progress: Progress, source: Source | None = None) -> None:
    """Makes the task's partitions if there are none; refuses those made with other settings.

    Args:
        source: the images, if they have been read.
    """
    spec, folder = partition_spec(config), config.partition_folder
    if not folder.exists() or not any(folder.iterdir()):
        source = source or _source(config, progress)
        generator.generate(spec, source, Path(config.dataset_path), progress=progress)
    elif (folder / manifest.NAME).exists():
        differs = generator.difference(folder, spec, source)
        if differs:
            raise DataError(
                f"{folder}: the partitions there don't match this run:\n  " + "\n  ".join(differs) + "\n"
                "Use another --dataset-path, give the settings they were made with, or make them again with "
                "--work-type gen_data --force"
            )
    partitions = check_complete(config)
    if (partitions.num_clients, partitions.num_steps) != (config.num_clients, config.num_steps):
        raise DataError(
            f"{folder}: expected {config.num_clients} clients and {config.num_steps} steps, found files of "
            f"{partitions.num_clients} and {partitions.num_steps}. Give --num-clients and --num-steps to match"
        )


def check_for_vectors(config: Config, partitions: Partitions) -> None:
    """Raises ConfigError if the data are vectors and a setting is for images alone."""
    if len(partitions.image_shape) == 1:
        for name, value in (("augment", "none"), ("image_size", settings()["image_size"].default), ("weak", "none")):
            received = getattr(config, name, value)
            if received != value and name not in without_effect(config):
                raise ConfigError(f"{flag(name)}: expected {value}, as the data are vectors; received {received}")


def note_on_order(partitions: Partitions) -> str:
    """A note if labelled files that others made are sorted by class; ours are shuffled when they are made."""
    found = sorted_files(partitions) if partitions.files is None else []
    if not found:
        return ""
    return (
        f"{partitions.folder}: {len(found)} labelled files, such as {found[0]}, are sorted by class. Training takes "
        f"batches in the order of the file and never shuffles (docs/DATA.md), so batches hold one class each. Shuffle "
        f"them before training"
    )


def check_complete(config: Config) -> Partitions:
    """The partitions of the run; DataError unless every file of their manifest is there, whatever is in it."""
    partitions = open_partitions(Path(config.dataset_path), config.task)
    missing = [name for name in partitions.files or () if not (partitions.folder / name).exists()]
    if missing:
        raise DataError(
            f"{partitions.folder}: expected the {len(partitions.files or ())} files of its manifest, missing "
            f"{len(missing)}, such as {missing[0]}. {manifest.REMAKE}"
        )
    return partitions


class DataAbout(NamedTuple):
    """What a model must know of the data that it was trained on."""

    image_shape: tuple[int, ...]
    class_names: tuple[str, ...]


def data_about(partitions: Partitions) -> DataAbout:
    """Of a run's partitions; classes without names are called by their numbers."""
    names: tuple[str, ...] = partitions.class_names or DATASETS[partitions.dataset].class_names
    if len(names) != partitions.num_classes:
        names = tuple(str(number) for number in range(partitions.num_classes))
    return DataAbout(tuple(partitions.image_shape), names)


def client_sizes(partitions: Partitions) -> dict[int, int]:
    """Examples of each client, of all steps; none without a manifest."""
    sizes = Counter[int]()
    for file in (partitions.files or {}).values():
        if file.client is not None:
            sizes[file.client] += file.num_examples
    return sizes


def class_counts(partitions: Partitions) -> dict[str, Any] | None:
    """Class names and the number of each client's unlabelled examples by class; None without a manifest."""
    if partitions.files is None:
        return None
    counts: dict[int, list[int]] = {}
    for file in partitions.files.values():
        if file.role == "unlabeled" and file.client is not None:
            before = counts.get(file.client, [0] * len(file.class_counts))
            counts[file.client] = [one + more for one, more in zip(before, file.class_counts)]
    return {
        "class_names": list(partitions.class_names or ()),
        "unlabeled": [counts[client] for client in sorted(counts)],
    }


def shares_of_test(partitions: Partitions) -> dict[str, float]:
    """Each class's share of the test data, by name; none without a manifest, or without test data."""
    tests = [file.class_counts for file in (partitions.files or {}).values() if file.role == "test"]
    return {name: count / sum(counts) for counts in tests for name, count in zip(partitions.class_names or (), counts)}
