"""The round loop: the paper's algorithms 1 (labels-at-client) and 2 (labels-at-server). No TensorFlow.

Everything that needs a network is a task for the backend's workers: a client's round, the server's epoch, a score.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from fedmatch_tf.algorithms.algorithm import ServerState, make_algorithm
from fedmatch_tf.config import Config
from fedmatch_tf.federation import server
from fedmatch_tf.federation.crew import Backend, Crew
from fedmatch_tf.federation.records import RoundRecord, round_record
from fedmatch_tf.federation.server import Store


def run(
    config: Config,
    state: ServerState,
    backend: Backend,
    store: Store,
    sizes: Mapping[int, int] = MappingProxyType({}),
    on_client: Callable[[], None] = lambda: None,
) -> Iterator[tuple[RoundRecord, ServerState]]:
    """Runs the rounds that are left; yields each round's record and the state after it.

    In the margin: the lines of algorithm 1; those of algorithm 2. Line 2, the start, is in `state`; RunClient is in
    client.py.

    Args:
        sizes: examples of each client, as far as they are known. The result depends on them in its last bits only:
            clients that hold more are trained, and added up, first.
        on_client: called whenever a client has been trained.
    """
    algorithm, crew = make_algorithm(config), Crew(config, backend, sizes, on_client)
    for round_num in range(state.rounds_done, config.num_rounds):  # line 3; line 3
        begin, server_lr = time.monotonic(), server.learning_rate(config, state)
        train = server.Training(config, crew, round_num)
        state = algorithm.before_clients(state, train)  # none; lines 4 to 8
        active = crew.in_order(server.select_clients(config, round_num))  # line 4; line 9
        lost = server.lost(config, round_num, active)
        helpers = server.helpers_of(config, state, active, round_num)  # line 6; line 11
        tasks = server.client_tasks(config, algorithm, state, store, active, helpers, round_num)  # line 7; line 12
        trained = crew.train_clients(round_num, tasks)  # lines 5 to 9; lines 10 to 14
        # Each update is added to the means as it comes, and then kept on disk: memory does not grow with the clients.
        planned = [sizes.get(client, 0) for client in active if client not in lost]
        state, results = server.fold(algorithm, state, store, trained, planned, lost, train)  # lines 10 and 11; line 15
        # Not in the paper's listing: test the global model, whose validation losses decide on learning rates.
        scores = train.scores | server.score(config, algorithm, crew, state)
        arrived = [result for result in results if result.client not in lost]
        store.end_round(server.plateaus(config, arrived, scores))
        state = server.end_round(config, state, arrived, scores)
        step, seconds = server.task_step(config, round_num), time.monotonic() - begin
        dropped = tuple(sorted(lost)) if config.drop_rate else None
        params = state.params if config.has_global_model else None
        left_out = crew.left_out
        record = round_record(
            round_num, step, results, helpers, scores, seconds, dropped, server_lr, train.losses, params, left_out
        )
        yield record, state
