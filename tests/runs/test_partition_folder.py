"""What a run knows of its partitions."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmatch_tf.config import make_config
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import client_sizes, ensure_partitions


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
