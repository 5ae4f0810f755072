"""The round loop: the paper's algorithms 1 (labels-at-client) and 2 (labels-at-server). No TensorFlow.

Everything that needs a network is a task for the backend's workers: a client's round, the server's epoch, a score.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from fedmatch_tf.algorithms.algorithm import ServerState, make_algorithm
from fedmatch_tf.config import Config
from fedmatch_tf.core.helpers import Neighbours
from fedmatch_tf.simulation import server
from fedmatch_tf.simulation.crew import Backend, Crew
from fedmatch_tf.simulation.records import RoundRecord, round_record
from fedmatch_tf.simulation.store import Store


def run(
    config: Config,
    state: ServerState,
    backend: Backend,
    store: Store,
    sizes: Mapping[int, int] = MappingProxyType({}),
) -> Iterator[tuple[RoundRecord, ServerState]]:
    """Runs the rounds that are left; yields each round's record and the state after it.

    In the margin: the lines of algorithm 1; those of algorithm 2. Line 2, the start, is in `state`; RunClient is in
    client.py.

    Args:
        sizes: examples of each client, as far as they are known; the result does not depend on them.
    """
    algorithm, crew = make_algorithm(config), Crew(config, backend, sizes)
    neighbours = Neighbours(state.embeddings)
    for round_num in range(state.rounds_done, config.num_rounds):  # line 3; line 3
        begin, server_lr = time.monotonic(), server.learning_rate(config, state)
        state, scores = server.train_first(config, algorithm, crew, state, round_num)  # none; lines 4 to 8
        active = server.select_clients(config, round_num)  # line 4; line 9
        helpers = server.helpers_of(config, neighbours, active, round_num)  # line 6; line 11
        in_order = crew.in_order(active)
        tasks = server.client_tasks(config, algorithm, state, store, in_order, helpers, round_num)  # line 7; line 12
        results = crew.train_clients(round_num, tasks)  # lines 5 to 9; lines 10 to 14
        received = server.arrived(config, round_num, results)
        updates = [result.update for result in received]
        neighbours.update(server.embeddings_of(updates))  # line 8; line 13
        state = server.aggregate(algorithm, state, updates)  # lines 10 and 11; line 15
        # Not in the paper's listing: servers that train last; test the global model, whose validation losses decide on
        # learning rates.
        state, after = server.train_last(config, algorithm, crew, state, round_num)
        scores |= after | server.score(config, algorithm, crew, state)
        server.keep(config, algorithm, store, received, scores)
        state = server.end_round(config, state, received, scores)
        step, seconds = server.task_step(config, round_num), time.monotonic() - begin
        lost = server.lost(config, results, received)
        yield round_record(round_num, step, results, helpers, scores, seconds, lost, server_lr), state
