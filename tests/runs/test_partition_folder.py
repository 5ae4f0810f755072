"""What a run knows of its partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedmatch_tf.config import make_config
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import client_sizes, ensure_partitions, note_on_order, shares_of_test


def test_a_clients_size_is_what_its_files_hold(tmp_path: Path) -> None:
    config = make_config("lc-bdir-digits", dataset_path=str(tmp_path), num_clients=4, alpha=0.3)
    ensure_partitions(config, progress_for(True))
    held = dict.fromkeys(range(4), 0)
    for path in config.partition_folder.glob("[su]_*.npy"):
        stored = np.load(path, allow_pickle=True).item()
        held[int(path.stem.split("_")[-1])] += len(stored["x"])
    assert client_sizes(config) == held
    assert len(set(held.values())) > 1
    (config.partition_folder / "manifest.json").unlink()  # as the original's partitions have none
    assert client_sizes(config) == {}


def test_labelled_files_that_are_sorted_by_class_are_told_of(tmp_path: Path) -> None:
    config = make_config("lc-biid-digits", dataset_path=str(tmp_path), num_clients=3)
    ensure_partitions(config, progress_for(True))
    assert note_on_order(config) == ""
    (config.partition_folder / "manifest.json").unlink()
    assert note_on_order(config) == "", "made by us, so shuffled"
    path = config.partition_folder / "s_digits_1.npy"
    stored = np.load(path, allow_pickle=True).item()
    order = np.argsort(np.argmax(stored["y"], axis=1), kind="stable")
    content: Any = {**stored, "x": stored["x"][order], "y": stored["y"][order]}
    np.save(path, content, allow_pickle=True)
    assert "1 labelled files, such as s_digits_1.npy, are sorted by class" in note_on_order(config)


def test_the_classes_shares_of_the_test_data(tmp_path: Path) -> None:
    config = make_config("lc-biid-digits", dataset_path=str(tmp_path), num_clients=3)
    ensure_partitions(config, progress_for(True))
    stored = np.load(config.partition_folder / "test_digits.npy", allow_pickle=True).item()
    counts = np.argmax(stored["y"], axis=1).tolist()
    assert shares_of_test(config) == {str(label): counts.count(label) / len(counts) for label in range(10)}
