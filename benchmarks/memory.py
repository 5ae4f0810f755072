"""The server's peak memory with more clients, and with more of them in a round: python -m benchmarks.memory

Clients are not trained: their uploads are made up, so that what is measured is the server (selection, broadcasts,
helpers, store, sums, checkpoints), in a process of its own each time. Every client takes part.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

WEIGHTS = 500_000  # 4 MB of sigma and psi
COHORT = 20
CLIENTS = (100, 1000)
ALEXNET = 6_500_000  # 52 MB of sigma and psi
COHORTS = (20, 500)  # of 500 clients


class MadeUp:
    """Uploads by arithmetic."""

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        from fedmatch_tf.algorithms import wire
        from fedmatch_tf.base import seeding
        from fedmatch_tf.federation.tasks import ClientResult, ClientTask, EvalResult, client_model
        from fedmatch_tf.networks.params import Params

        for task in tasks:
            if task is None:
                continue
            if not isinstance(task, ClientTask):
                yield EvalResult(task.model, task.split, task.part, task.num_parts, (10,), (1.0,), (5,))
                continue
            received = task.broadcast.params
            rng = seeding.stream(1, "made up", task.round_num, task.client)
            trained = Params(received.sigma + rng.random(len(received.sigma), np.float32), received.psi)
            upload = wire.upload(trained, received, 0.0, 0.0, True)
            valid = EvalResult(client_model(task.client), "valid", 0, 1, (10,), (1.0,), (5,))
            yield ClientResult(
                task.client,
                *upload.params,
                num_examples=1,
                s2c=task.broadcast.cost,
                c2s=upload.cost,
                plateau=task.plateau,
                lr=task.lr,
                embedding=rng.random(10, np.float32),
                scored=(valid,),
            )


def measure(num_clients: int, store: str, cohort: int, weights: int, num_rounds: int) -> int:
    """Peak resident bytes of a run."""
    from fedmatch_tf.config import make_config
    from fedmatch_tf.federation import loop, server
    from fedmatch_tf.networks.params import Params
    from fedmatch_tf.runs import folders
    from fedmatch_tf.runs.partition_folder import DataAbout

    with tempfile.TemporaryDirectory() as folder:
        config = make_config(
            "lc-biid-c10",
            num_clients=num_clients,
            frac_clients=cohort / num_clients,
            store=store,
            output_path=folder,
            num_rounds=num_rounds,
            helper_interval=2,
        )
        start = server.initial_state(config, Params(np.zeros(weights, np.float32), np.zeros(weights, np.float32)))
        data = DataAbout((32, 32, 3), tuple("0123456789"))
        with folders.create(replace(config, workers=1, threads_per_worker=1), start, "", data) as run:
            for record, state in loop.run(config, start, MadeUp(), run.store):
                run.add(record, state)
            known = len(run.state.embeddings)
    assert known >= 0.9 * min(num_clients, num_rounds * cohort / 3), known
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> None:
    if len(sys.argv) == 6:
        count, kind, *numbers = sys.argv[1:]
        print(measure(int(count), kind, *map(int, numbers)))
        return
    from benchmarks.measure import arguments

    arguments(__doc__).parse_args()
    model = 2 * 4 * WEIGHTS
    print(f"Server's peak memory, {COHORT} clients per round, a model of {model / 1e6:.0f} MB (sigma and psi)")
    for store in ("disk", "memory"):
        peaks = []
        for num_clients in CLIENTS:
            peaks.append(peak(num_clients, store, COHORT, WEIGHTS, 3 * max(CLIENTS) // COHORT))
        few, many = peaks
        print(
            f"  --store {store:<6}  {CLIENTS[0]} clients {few / 1e6:4.0f} MB  {CLIENTS[1]} clients {many / 1e6:5.0f} MB"
            f"  ratio {many / few:.2f}  {(many - few) / model / (CLIENTS[1] - CLIENTS[0]):.3f} models a further client"
        )
    # Files of 500 clients of AlexNet take 26 GB of disk after a round, so several rounds are for a smaller model.
    for weights, num_rounds in ((WEIGHTS, 4), (ALEXNET, 1)):
        few, many = (peak(max(COHORTS), "disk", cohort, weights, num_rounds) for cohort in COHORTS)
        print(
            f"  {COHORTS[0]} of {max(COHORTS)} clients in each of {num_rounds} rounds {few / 1e6:.0f} MB, {COHORTS[1]} "
            f"of them {many / 1e6:.0f} MB, ratio {many / few:.2f}  (a model of {2 * 4 * weights / 1e6:.0f} MB)"
        )


def peak(*what: object) -> int:
    """Of a process of its own.

    Made-up uploads go back to the system as soon as they are gone, like shared memory of workers: glibc would keep some
    of them in pieces, more or less by chance.
    """
    command = [sys.executable, "-m", "benchmarks.memory", *map(str, what)]
    variables = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(2**20)}
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=variables).stdout.split()[-1])


if __name__ == "__main__":
    main()
