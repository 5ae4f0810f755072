"""The round loop: reads like the paper's algorithms 1 (labels-at-client) and 2 (labels-at-server). No TensorFlow.

Everything that needs a network is a task for the backend: a client's round, the server's epoch, an evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fedmatch_tf import schedule, server, wire
from fedmatch_tf.config import Config
from fedmatch_tf.params import Params
from fedmatch_tf.record import ClientRecord, RoundRecord
from fedmatch_tf.server import ServerState
from fedmatch_tf.store import Held, Store
from fedmatch_tf.tasks import ClientResult, ClientTask, EvalTask, Score, ServerResult, ServerTask


class Backend(Protocol):
    """Runs tasks somewhere; results may come in any order."""

    def map(self, tasks: Iterable[Any]) -> Iterable[Any]:
        """The results of the tasks. Tasks are taken one by one, as they can be worked on."""


def run(
    config: Config, state: ServerState, backend: Backend, store: Store
) -> Iterator[tuple[RoundRecord, ServerState]]:
    """Runs the rounds that are left; yields each round's record and the state after it."""
    for round_num in range(state.rounds_done, config.num_rounds):
        begin = time.monotonic()
        trained = None
        # Labels-at-server: sigma learns at the server (algorithm 2, lines 4 to 8).
        if config.scenario == "ls" and config.num_epochs_server:
            (trained,) = backend.map([ServerTask(round_num, state.params, state.plateau)])
            state = state._replace(params=trained.params, plateau=trained.plateau)
        # Choose A clients; each gets sigma, psi and perhaps its helpers' psi, and runs its round.
        active = server.select_clients(config, round_num)
        helpers = server.helpers_of(config, state, active, round_num)
        tasks = (_client_task(config, state, store, client, round_num, helpers.get(client, ())) for client in active)
        results = sorted(backend.map(tasks), key=lambda result: result.client)
        for result in results:
            store.put(result.client, _held(config, result))
        # Keep the embeddings; average sigma (labels-at-client) and psi, each on its own.
        state = server.aggregate(config, state, results)
        tests = {test.name: test.score for test in backend.map(_eval_tasks(config, state))}
        if "valid" in tests:
            state = server.next_lr(config, state, tests["valid"])
        yield _record(config, round_num, results, helpers, trained, tests, time.monotonic() - begin), state


def task_step(config: Config, round_num: int) -> int:
    """The streaming step of a round: rounds are spread evenly over the steps."""
    return round_num * config.num_steps // config.num_rounds


def _client_task(
    config: Config, state: ServerState, store: Store, client: int, round_num: int, helpers: Sequence[int]
) -> ClientTask:
    """What is sent to a client: differences to what it still holds, or everything on its first visit."""
    held = store.get(client)
    plateau = held.plateau if held else schedule.start(config.lr, config.lr_patience)
    if config.lr_signal == "server":
        plateau = state.plateau
    if config.framework == "local":
        message = wire.own_broadcast(held.params if held else state.params)
    elif held is None or config.framework != "fedmatch":
        message = wire.full_broadcast(state.params)
    else:
        others = [wire.helper_part(other.params) for helper in helpers if (other := store.get(helper)) is not None]
        message = wire.broadcast(
            state.params, held.params, others, config.l1_thres, config.delta_thres, config.s2c_content
        )
    return ClientTask(round_num, client, task_step(config, round_num), message, plateau)


def _held(config: Config, result: ClientResult) -> Held:
    """What must be known of the client in its next round: of plain federated averaging, its learning rate only."""
    nothing = Params(np.zeros(0, np.float32), np.zeros(0, np.float32))
    kept = config.framework in ("fedmatch", "local")
    return Held(result.upload.params if kept else nothing, result.plateau)


def _eval_tasks(config: Config, state: ServerState) -> list[EvalTask]:
    """Tests of the global model: none if there isn't any, its two parts as well if the run asks for that."""
    if config.framework == "local":
        return []
    last = state.rounds_done - 1
    tasks = [EvalTask(last, state.params)]
    if config.lr_signal == "server":
        tasks.append(EvalTask(last, state.params, "valid"))
    if config.ablate_eval:
        sigma, psi = state.params
        tasks += [
            EvalTask(last, Params(sigma, np.zeros_like(psi)), "sigma"),
            EvalTask(last, Params(np.zeros_like(sigma), psi), "psi"),
        ]
    return tasks


def _mean_local_test(results: Sequence[ClientResult]) -> Score:
    """What stands for the global model where clients share nothing: the mean over the round's clients."""
    tests = [result.test for result in results if result.test is not None]
    return Score(sum(test.loss for test in tests) / len(tests), sum(test.accuracy for test in tests) / len(tests))


def _record(
    config: Config,
    round_num: int,
    results: Sequence[ClientResult],
    helpers: Mapping[int, Sequence[int]],
    trained: ServerResult | None,
    tests: Mapping[str, Score],
    seconds: float,
) -> RoundRecord:
    steps = [step for result in results for step in result.steps]
    rows = sum(step.num_rows for step in steps)
    confident = sum(len(step.confident_rows) for step in steps)
    clients = tuple(
        ClientRecord(
            result.client, result.s2c, result.upload.cost, result.valid, result.test, result.lr, result.known_acc
        )
        for result in results
    )
    return RoundRecord(
        round_num=round_num,
        task_step=task_step(config, round_num),
        clients=clients,
        global_test=tests["theta"] if tests else _mean_local_test(results),
        global_valid=tests.get("valid"),
        part_tests={name: score for name, score in tests.items() if name in ("sigma", "psi")},
        server_valid=trained.valid if trained else None,
        server_test=trained.test if trained else None,
        confident=confident / rows if rows else 0.0,
        pseudo_label_acc=sum(step.num_correct for step in steps) / confident if confident else None,
        helpers=helpers,
        seconds=seconds,
    )
