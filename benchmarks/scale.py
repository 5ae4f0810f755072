"""Time of a client's task, and of choosing helpers, from 100 to 10,000 clients: python -m benchmarks.scale

The cohort stays the same. The network is tiny and its training made up, so that what is measured is all the rest: the
server's work, broadcasts, the store, checkpoints and logs. Every client has taken part before.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import arguments, machine, median, ratio, seconds
from benchmarks.memory import MadeUp
from fedmatch_tf.config import make_config
from fedmatch_tf.federation import helpers, loop, server
from fedmatch_tf.learners import schedule
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import folders
from fedmatch_tf.runs.partition_folder import DataAbout

CLIENTS = (100, 1000, 10_000)
COHORT = 20
WEIGHTS = 1000
ROUNDS = 30


def rounds(num_clients: int, folder: Path) -> Iterator[None]:
    config = make_config(
        "lc-biid-c10",
        num_clients=num_clients,
        frac_clients=COHORT / num_clients,
        store="memory",
        output_path=str(folder / str(num_clients)),
        num_rounds=ROUNDS + 10,
        workers=1,
        threads_per_worker=1,
    )
    params = Params(np.zeros(WEIGHTS, np.float32), np.zeros(WEIGHTS, np.float32))
    rng = np.random.default_rng(0)
    known = {client: rng.random(10, np.float32) for client in range(num_clients)}
    start = server.initial_state(config, params)._replace(embeddings=known)
    with folders.create(config, start, "", DataAbout((32, 32, 3), tuple("0123456789"))) as run:
        for client in range(num_clients):
            run.store.put(client, params)
        run.store.end_round(dict.fromkeys(range(num_clients), schedule.start(config.lr, config.lr_patience)))
        for record, state in loop.run(config, start, MadeUp(), run.store):
            run.add(record, state)
            run.finish()  # what is written beside the next round belongs to this one
            yield


def main() -> None:
    arguments(__doc__).parse_args()
    print(f"\n{COHORT} of many clients, a network of {WEIGHTS} weights. {machine()}", flush=True)
    rng = np.random.default_rng(0)
    tasks: dict[int, list[float]] = {}
    choices: dict[int, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        running = {number: rounds(number, Path(name)) for number in CLIENTS}
        known = {number: dict(enumerate(rng.random((number, 10), np.float32))) for number in CLIENTS}
        for one in running.values():  # the first checkpoint writes every client's file
            next(one)
            next(one)
        for _ in range(ROUNDS):
            for number in CLIENTS:
                took = 1e3 * seconds(lambda number=number: next(running[number])) / COHORT  # type: ignore[misc]
                tasks.setdefault(number, []).append(took)
                cohort: Any = sorted(rng.choice(number, COHORT, replace=False).tolist())
                choose = seconds(lambda n=number, c=cohort: helpers.choose_helpers(c, known[n], 2))  # type: ignore[misc]
                choices.setdefault(number, []).append(1e3 * choose / COHORT)
    for number in CLIENTS:
        print(
            f"  {number:>6} clients: a client's task {median(tasks[number], 'ms')}, "
            f"{ratio(tasks[number], tasks[CLIENTS[0]])} times 100 clients; "
            f"its helpers {median(choices[number], 'ms')}, {ratio(choices[number], choices[CLIENTS[0]])}"
        )


if __name__ == "__main__":
    main()
