"""What a backend adds to a round, process beside Ray: python -m benchmarks.transfer [--ray-address auto]

Five clients are sent the same 53 MB of weights (sigma and psi of ResNet-9) and send 53 MB back. A worker's part takes
no time, so what is measured is the way there and back. Needs requirements/ray.txt.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from benchmarks.measure import arguments, machine, median, ratio, seconds
from fedmatch_tf.algorithms import wire
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.federation.tasks import ClientResult, ClientTask
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import ensure_partitions
from fedmatch_tf.workers.choose import decide, open_backend

CLIENTS = 5
WEIGHTS = 6_600_000  # about as many as ResNet-9 has, in each of sigma and psi


class Echo:
    """A client that sends back what it got."""

    def __init__(self, config: Config) -> None:
        pass

    def run(self, task: ClientTask) -> ClientResult:
        params, cost = task.broadcast.params, task.broadcast.cost
        return ClientResult(task.client, params.sigma, params.psi, 1, cost, cost, task.plateau, task.lr)


def tasks(round_num: int, params: Params) -> Iterator[ClientTask]:
    for client in range(CLIENTS):
        yield ClientTask(round_num, client, 0, wire.full_broadcast(params), Plateau(0.1, 1.0, 1), 0.1)


def one_round(backend: Any, params: Params) -> None:
    received = [result.psi for result in backend.map(tasks(0, params))]
    assert len(received) == CLIENTS
    for psi in received:  # every byte is there
        assert psi[-1] == params.parts[1][-1]


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--ray-address", help="a running cluster as well")
    given = parser.parse_args()
    megabytes = 2 * 4 * WEIGHTS / 1e6
    print(f"\n{CLIENTS} clients, {megabytes:.0f} MB there and back, no training. {machine()}", flush=True)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        base: dict[str, Any] = {"task": "lc-biid-digits", "dataset_path": folder}
        ensure_partitions(make_config(**base), progress_for(True))
        kinds: dict[str, dict[str, Any]] = {"process": {"backend": "process"}, "ray": {"backend": "ray"}}
        if given.ray_address:  # a process has one connection to Ray, so it is this one or its own
            kinds["ray"] = {"backend": "ray", "ray_address": given.ray_address}
        pools = {
            name: stack.enter_context(open_backend(decide(make_config(**base, **more)), print, Echo))
            for name, more in kinds.items()
        }
        times: dict[str, list[float]] = {name: [] for name in pools}
        for number in range(given.rounds + 2):
            params = Params(*np.random.default_rng(number).random((2, WEIGHTS), np.float32))
            for name, pool in pools.items():
                took = seconds(partial(one_round, pool, params))
                if number >= 2:
                    times[name].append(took)
        for name, values in times.items():
            print(f"  {name:<8} {median(values)} per round")
        print(f"  ray over process: {ratio(times['ray'], times['process'])}", flush=True)


if __name__ == "__main__":
    main()
