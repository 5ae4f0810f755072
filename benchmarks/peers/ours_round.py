"""Rounds of this project: federated averaging of a supervised learner, with the logs and checkpoints that a run writes.

Test and validation sets have ten images, so that nothing is evaluated that counts. Two workers, with as many threads
each as the command line says.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from benchmarks.measure import running_rounds
from benchmarks.peers.common import BATCH, CLASSES, CLIENTS, IMAGES, LR, Clock, num_rounds
from fedmatch_tf.config import make_config
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import ensure_partitions

if __name__ == "__main__":
    rounds, clock = num_rounds(), Clock()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        count = CLIENTS * IMAGES + 2 * CLASSES + 200  # more than are dealt, so that nobody gets less
        x = np.random.default_rng(0).integers(0, 256, (count, 32, 32, 3), np.uint8)
        source = Path(name) / "images.npz"
        np.savez(source, x_train=x, y_train=np.arange(count) % CLASSES)
        config = make_config(
            "lc-biid-own",
            model="fedavg-sl",
            source=str(source),
            dataset_path=name,
            output_path=name,
            num_clients=CLIENTS,
            frac_clients=1.0,
            labels_per_class=IMAGES // CLASSES - 1,
            unlabeled_per_client=CLASSES,
            num_test=CLASSES,
            num_valid=CLASSES,
            batch_size_client=BATCH,
            lr=LR,
            lr_signal="server",
            num_rounds=rounds + 1,
        )
        ensure_partitions(config, progress_for(True))
        running = running_rounds(stack, config)
        for _ in range(rounds + 1):
            next(running)
            clock.end_of_round()
    clock.tell()
