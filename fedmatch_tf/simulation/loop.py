"""The round loop: reads like the paper's algorithms 1 (labels-at-client) and 2 (labels-at-server). No TensorFlow.

Everything that needs a network is a task for the backend: a client's round, the server's epoch, an evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from fedmatch_tf.config import Config
from fedmatch_tf.core import schedule, wire
from fedmatch_tf.core.helpers import Neighbours
from fedmatch_tf.core.params import Params, hard_threshold, kernels_in_use
from fedmatch_tf.runs.records import ClientRecord, RoundRecord
from fedmatch_tf.runs.store import Held, Store
from fedmatch_tf.simulation import scoring, server
from fedmatch_tf.simulation.scoring import Scores
from fedmatch_tf.simulation.server import ServerState
from fedmatch_tf.simulation.tasks import ClientResult, ClientTask, EvalResult, EvalTask, Score, ServerResult, ServerTask


class Backend(Protocol):
    """Runs tasks somewhere; results may come in any order."""

    def map(self, tasks: Iterable[Any]) -> Iterable[Any]:
        """The results of the tasks. Tasks are taken one by one, as they can be worked on."""


def run(
    config: Config, state: ServerState, backend: Backend, store: Store
) -> Iterator[tuple[RoundRecord, ServerState]]:
    """Runs the rounds that are left; yields each round's record and the state after it."""
    neighbours = Neighbours(state.embeddings)
    trained: ServerResult | None = None  # the next epoch, if it was run ahead
    for round_num in range(state.rounds_done, config.num_rounds):
        begin = time.monotonic()
        scores: Scores = {}
        # Labels-at-server: sigma learns at the server (algorithm 2, lines 4 to 8).
        for epoch in range(config.num_epochs_server if config.scenario == "ls" else 0):
            if trained is None:
                (trained,) = backend.map([ServerTask(round_num, epoch, state.params, state.plateau.lr)])
            scores.update(scoring.add_up(backend.map(_server_eval_tasks(config, round_num, trained.params))))
            plateau = server.next_lr(config, state.plateau, scores.get(("server", "valid")))
            state, trained = state._replace(params=trained.params, plateau=plateau), None
        # Choose A clients; each gets sigma, psi and perhaps its helpers' psi, and runs its round.
        active = server.select_clients(config, round_num)
        helpers = server.helpers_of(config, neighbours, active, round_num)
        results: list[ClientResult] = []
        evaluated: list[EvalResult] = []
        to_score: list[EvalTask] = []  # what clients leave to others
        for result in backend.map(_client_tasks(config, state, store, active, round_num, helpers, to_score)):
            if isinstance(result, ClientResult):
                results.append(result._replace(theta=None))
                evaluated += result.scored
                to_score += _client_eval_tasks(config, round_num, result)
            else:
                evaluated.append(result)
        results.sort(key=lambda result: result.client)
        # Keep the embeddings; average sigma (labels-at-client) and psi, each on its own.
        state = server.aggregate(config, state, results)
        neighbours.update(server.embeddings_of(results))
        # Test the global model, beside the server's next epoch; a model's validation decides on its learning rate.
        for result in backend.map(_last_tasks(config, state, to_score)):
            if isinstance(result, ServerResult):
                trained = result
            else:
                evaluated.append(result)
        scores.update(scoring.add_up(evaluated))
        for result in results:
            store.put(result.client, _held(config, result, scores))
        if config.lr_signal == "server":
            state = state._replace(plateau=server.next_lr(config, state.plateau, scores["theta", "valid"]))
        yield _record(config, round_num, results, helpers, scores, time.monotonic() - begin), state


def task_step(config: Config, round_num: int) -> int:
    """The streaming step of a round: rounds are spread evenly over the steps."""
    return round_num * config.num_steps // config.num_rounds


def _client_tasks(
    config: Config,
    state: ServerState,
    store: Store,
    active: Sequence[int],
    round_num: int,
    helpers: Mapping[int, Sequence[int]],
    to_score: list[EvalTask],
) -> Iterator[ClientTask | EvalTask]:
    """A round's tasks, each made when a worker is about to be free.

    If the clients are not a multiple of the workers, some workers have one client less. So the first clients leave it
    to others to score their models: that is what workers do who are done before the rest.

    Args:
        to_score: what clients that are back have left to others; what is taken from it here is removed.
    """
    num_apart = len(active) % (config.workers or 1)
    for number, client in enumerate(active):
        held = store.get(client)
        message = _message(config, state, store, held, helpers.get(client, ()))
        plateau = held.plateau if held else schedule.start(config.lr, config.lr_patience)
        if config.lr_signal == "server":
            plateau = state.plateau
        yield ClientTask(round_num, client, task_step(config, round_num), message, plateau, number >= num_apart)
    while to_score:
        yield to_score.pop(0)


def _message(
    config: Config, state: ServerState, store: Store, held: Held | None, helpers: Sequence[int]
) -> wire.Broadcast:
    """What is sent to a client: differences to what it still holds, or everything on its first visit."""
    if config.framework == "local":
        return wire.own_broadcast(held.params if held else state.params)
    if held is None or config.framework != "fedmatch":
        return wire.full_broadcast(state.params)
    others = [wire.helper_part(other.params) for helper in helpers if (other := store.get(helper)) is not None]
    return wire.broadcast(state.params, held.params, others, config.l1_thres, config.delta_thres, config.s2c_content)


def _held(config: Config, result: ClientResult, scores: Scores) -> Held:
    """What must be known of the client in its next round: of plain federated averaging, its learning rate only."""
    nothing = Params(np.zeros(0, np.float32), np.zeros(0, np.float32))
    kept = config.framework in ("fedmatch", "local")
    plateau = server.next_lr(config, result.plateau, scores.get((f"client {result.client}", "valid")))
    return Held(result.upload.params if kept else nothing, plateau)


def _server_eval_tasks(config: Config, round_num: int, params: Params) -> list[EvalTask]:
    """The scores of the server's model after an epoch: what every client's model is scored on, too."""
    theta = kernels_in_use(params, config.l1_thres)
    return scoring.eval_tasks(config, round_num, "server", theta, scoring.client_splits(config))


def _client_eval_tasks(config: Config, round_num: int, result: ClientResult) -> list[EvalTask]:
    """The scores of a client's model that its own task left to others."""
    if result.theta is None:
        return []
    splits = scoring.client_splits(config)
    return scoring.eval_tasks(config, round_num, f"client {result.client}", result.theta, splits, finer=2)


def _epoch_ahead(config: Config, round_num: int) -> bool:
    """Whether the server's first epoch of this round can run while workers still score models of the round before.

    It needs nothing that those scores say, unless they decide on its learning rate.
    """
    trains = config.scenario == "ls" and config.num_epochs_server > 0 and round_num < config.num_rounds
    return trains and config.lr_signal == "client"


def _last_tasks(config: Config, state: ServerState, to_score: Sequence[EvalTask]) -> Iterator[ServerTask | EvalTask]:
    """Perhaps an epoch ahead; scores of the global model, if there is one, and what is left to score of the clients.

    The global model's two parts are tested as well if the run asks for that.
    """
    if _epoch_ahead(config, state.rounds_done):
        yield ServerTask(state.rounds_done, 0, state.params, state.plateau.lr)
    last = state.rounds_done - 1
    yield from to_score
    if config.framework == "local":
        return
    splits = ("test", "valid") if config.lr_signal == "server" else ("test",)
    yield from scoring.eval_tasks(config, last, "theta", kernels_in_use(state.params, config.l1_thres), splits)
    if config.ablate_eval:
        sigma, psi = state.params
        yield from scoring.eval_tasks(config, last, "sigma", sigma, ("test",))
        yield from scoring.eval_tasks(config, last, "psi", hard_threshold(psi, config.l1_thres), ("test",))


def _mean_local_test(results: Sequence[ClientResult], scores: Scores) -> Score:
    """What stands for the global model where clients share nothing: the mean over the round's clients."""
    tests = [scores[f"client {result.client}", "test"] for result in results]
    return Score(sum(test.loss for test in tests) / len(tests), sum(test.accuracy for test in tests) / len(tests))


def _client_record(result: ClientResult, scores: Scores) -> ClientRecord:
    valid, test = (scores.get((f"client {result.client}", split)) for split in ("valid", "test"))
    return ClientRecord(result.client, result.s2c, result.upload.cost, valid, test, result.plateau.lr, result.known_acc)


def _record(
    config: Config,
    round_num: int,
    results: Sequence[ClientResult],
    helpers: Mapping[int, Sequence[int]],
    scores: Scores,
    seconds: float,
) -> RoundRecord:
    steps = [step for result in results for step in result.steps]
    rows = sum(step.num_rows for step in steps)
    confident = sum(len(step.confident_rows) for step in steps)
    clients = tuple(_client_record(result, scores) for result in results)
    return RoundRecord(
        round_num=round_num,
        task_step=task_step(config, round_num),
        clients=clients,
        global_test=scores.get(("theta", "test")) or _mean_local_test(results, scores),
        global_valid=scores.get(("theta", "valid")),
        part_tests={part: scores[part, "test"] for part in ("sigma", "psi") if (part, "test") in scores},
        server_valid=scores.get(("server", "valid")),
        server_test=scores.get(("server", "test")),
        confident=confident / rows if rows else 0.0,
        pseudo_label_acc=sum(step.num_correct for step in steps) / confident if confident else None,
        helpers=helpers,
        seconds=seconds,
    )
