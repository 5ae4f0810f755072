"""The server's side of large runs, with uploads made up instead of trained: python -m benchmarks.plan

Seconds of a round by part, and the server's peak memory, for 10,000 clients with a small network and for few clients
with ResNet-9's 53 MB (sigma and psi): the pieces of docs/CLUSTER.md's plan. Each in a process of its own; every client
of a round has taken part before, so that there is something to compare with and to send as a helper.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from typing import Any

import numpy as np

RESNET9 = 6_600_000  # weights of sigma, and of psi
SIZES = ((10_000, 500, 20_000), (40, 10, RESNET9), (40, 20, RESNET9))  # clients, of these per round, weights
TARGET = (10_000, 500, RESNET9)
ROUNDS = 4


def measure(num_clients: int, cohort: int, weights: int) -> dict[str, Any]:
    from benchmarks.memory import MadeUp
    from benchmarks.round import measure_server
    from fedmatch_tf.config import make_config
    from fedmatch_tf.federation import loop, server
    from fedmatch_tf.learners import schedule
    from fedmatch_tf.networks.params import Params
    from fedmatch_tf.runs import folders
    from fedmatch_tf.runs.partition_folder import DataAbout

    with tempfile.TemporaryDirectory() as folder:
        config = make_config(
            "lc-biid-c10",
            num_clients=num_clients,
            frac_clients=cohort / num_clients,
            store="disk",
            helper_interval=2,
            output_path=folder,
            num_rounds=2 * ROUNDS,
            workers=1,
            threads_per_worker=1,
        )
        params = Params(np.zeros(weights, np.float32), np.zeros(weights, np.float32))
        rng = np.random.default_rng(0)
        known = {client: rng.random(10, np.float32) for client in range(num_clients)}
        start = server.initial_state(config, params)._replace(embeddings=known)
        parts, beside = measure_server(time.perf_counter)
        made_up = MadeUp()
        with folders.create(config, start, "", DataAbout((32, 32, 3), tuple("0123456789"))) as run:
            for client in range(num_clients):
                run.store.put(client, params)
            run.store.end_round(dict.fromkeys(range(num_clients), schedule.start(config.lr, config.lr_patience)))
            run._save()  # every client's file, before the first round
            run.finish()
            rounds = loop.run(config, start, made_up, run.store)
            for number in range(2 * ROUNDS):  # helpers are sent in every second one
                if number == 2:
                    parts.seconds.clear()
                    beside.seconds.clear()
                record, state = next(rounds)
                run.add(record, state)
                run.finish()
    counted = 2 * ROUNDS - 2
    found = {name: value / counted for name, value in {**parts.seconds, **beside.seconds}.items()}
    return {"parts": found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def main() -> None:
    if len(sys.argv) == 4:
        print(json.dumps(measure(*map(int, sys.argv[1:]))))
        return
    from benchmarks.measure import arguments, machine

    arguments(__doc__).parse_args()
    print(f"The server's side of a round, uploads made up. {machine()}")
    found = {}
    for size in SIZES:
        command = [sys.executable, "-m", "benchmarks.plan", *map(str, size)]
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found[size] = json.loads(output.splitlines()[-1])
        clients, cohort, weights = size
        peak, parts = found[size]["peak"], found[size]["parts"]
        print(f"  {cohort} of {clients} clients, {8 * weights / 1e6:.2f} MB: peak {peak / 1e9:.2f} GB", flush=True)
        for part, value in sorted(parts.items(), key=lambda item: -item[1]):
            print(f"    {part:<38} {value:7.3f} s per round, {1e3 * value / cohort:7.2f} ms per client")
    clients, cohort, weights = TARGET
    print(f"  {cohort} of {clients} clients, {8 * weights / 1e6:.0f} MB, extrapolated:")
    for part in found[SIZES[0]]["parts"]:  # as long for a client as in the first or in the last, whichever is longer
        each = max(found[size]["parts"].get(part, 0.0) / size[1] for size in (SIZES[0], SIZES[-1]))
        print(f"    {part:<38} {cohort * each:7.1f} s per round")
    few, many = (found[size]["peak"] for size in SIZES[1:])
    each = (many - few) / (SIZES[2][1] - SIZES[1][1])
    print(f"    {'peak memory':<38} {(many + each * (cohort - SIZES[2][1])) / 1e9:7.1f} GB")


if __name__ == "__main__":
    main()
