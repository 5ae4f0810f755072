"""The server's side of a round (RunServer of algorithms 1 and 2). No TensorFlow.

1. (labels-at-server) For every server epoch and minibatch of the server's labelled set: a supervised step on sigma,
   psi fixed, eq. 4 (steps.py); the validation loss decides on the server's next learning rate.
2. Choose the round's clients and, every helper_interval rounds, each one's helpers: its nearest neighbours among all
   models known so far.
3. Send each client what the algorithm says, and have it trained (client.py).
4. Fold what each client uploads, as it comes and as the algorithm says: FedMatch averages sigma (labels-at-client only)
   and psi, each on its own. Keep the embeddings, and what must be known of each client in its next round.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from fedmatch_tf.algorithms.algorithm import Algorithm, Best, ServerState, Train, Update
from fedmatch_tf.base import seeding
from fedmatch_tf.config import Config
from fedmatch_tf.federation.crew import Crew
from fedmatch_tf.federation.helpers import choose_helpers
from fedmatch_tf.federation.scoring import Scores, client_splits, eval_tasks
from fedmatch_tf.federation.steps import mean_losses
from fedmatch_tf.federation.tasks import (
    GLOBAL,
    GLOBAL_PSI,
    GLOBAL_SIGMA,
    SERVER,
    ClientResult,
    ClientTask,
    Losses,
    Score,
    ServerTask,
    client_model,
)
from fedmatch_tf.learners import schedule
from fedmatch_tf.learners.schedule import Plateau, Visit
from fedmatch_tf.networks.params import Params


class Held(NamedTuple):
    """What is kept of a client between its rounds."""

    params: Params | None  # None: the algorithm needs nothing of them
    plateau: Plateau


class Store(Protocol):
    """Where the simulation keeps and finds what clients held; stores are in runs/store.py."""

    def get(self, client: int) -> Held | None:
        """What the client held before this round; None before its first."""

    def put(self, client: int, params: Params | None) -> None:
        """Keeps this of the client when the round ends."""

    def end_round(self, plateaus: Mapping[int, Plateau]) -> None:
        """The round's clients hold what was put, and these learning rates."""


def initial_state(config: Config, params: Params) -> ServerState:
    """The state before round 0."""
    on_devices = config.lr_memory == "device" and config.lr_source == "client"
    device_lrs = (config.lr,) * config.num_devices if on_devices else None
    return ServerState(0, params, schedule.start(config.lr, config.patience), {}, device_lrs)


def task_step(config: Config, round_num: int) -> int:
    """The streaming step of a round: rounds are spread evenly over the steps."""
    return round_num * config.num_steps // config.num_rounds


class Training:
    """Runs the server's epochs of a round (algorithm 2, lines 4 to 8), when its algorithm calls for them."""

    def __init__(self, config: Config, crew: Crew, round_num: int) -> None:
        self._config, self._crew, self._round_num = config, crew, round_num
        self.scores: Scores = {}
        self._losses: list[Losses] = []

    def __call__(self, state: ServerState) -> ServerState:
        """The state after the epochs; with labels at the clients there are none."""
        config, velocity = self._config, None
        for epoch in range(_num_epochs(config)):
            task = ServerTask(self._round_num, epoch, state.params, state.plateau.lr, velocity)
            params, losses, velocity = self._crew.train_server(task)
            theta, splits = params.theta(config.l1_thres), client_splits(config)
            self.scores |= self._crew.score(eval_tasks(config, self._round_num, SERVER, theta, splits))
            self._losses.append(losses)
            plateau = next_lr(config, state.plateau, self.scores.get((SERVER, "valid")))
            state = state._replace(params=params, plateau=plateau)
        return state

    @property
    def losses(self) -> Losses:
        """Means over the epochs so far; of no terms if there were none."""
        return mean_losses(self._losses, len(self._losses))


def _next_epoch(config: Config, algorithm: Algorithm, state: ServerState) -> ServerTask | None:
    """The server's first epoch of the next round, if it needs nothing that this round's scores or the next will say."""
    depends = config.lr_source == "server" or not algorithm.trains_ahead
    if depends or _num_epochs(config) == 0 or state.rounds_done == config.num_rounds:
        return None
    return ServerTask(state.rounds_done, 0, state.params, state.plateau.lr)


def _num_epochs(config: Config) -> int:
    return config.num_epochs_server if config.scenario == "ls" else 0


def learning_rate(config: Config, state: ServerState) -> float | None:
    """With which the server's epochs of a round begin; None where there are none."""
    return state.plateau.lr if _num_epochs(config) else None


def draw_clients(config: Config, round_num: int) -> list[int]:
    """The clients that take part, in the order of the draw."""
    rng = seeding.stream(config.seed, "select clients", round_num)
    drawn: list[int] = rng.choice(config.num_clients, config.clients_per_round, replace=False).tolist()
    return drawn


def select_clients(config: Config, round_num: int) -> list[int]:
    """The clients that take part, in ascending order."""
    return sorted(draw_clients(config, round_num))


def _devices(config: Config, round_num: int) -> dict[int, int]:
    """Client -> the simulated device on which it trains in this round: devices take turns, in the order of the draw."""
    drawn = draw_clients(config, round_num)
    return {client: number % config.num_devices for number, client in enumerate(drawn)}


def sends_helpers(config: Config, round_num: int) -> bool:
    """Whether helpers are sent in this round (counted from 0)."""
    return round_num > 0 and (round_num + 1) % config.helper_interval == 0


def helpers_of(
    config: Config, state: ServerState, clients: Sequence[int], round_num: int
) -> dict[int, tuple[int, ...]]:
    """GetNearestNeighbors: client -> the clients whose psi is sent along; clients that get none are left out."""
    if not (config.uses_helpers and sends_helpers(config, round_num)):
        return {}
    return choose_helpers(clients, state.embeddings, config.num_helpers)


def client_tasks(
    config: Config,
    algorithm: Algorithm,
    state: ServerState,
    store: Store,
    clients: Sequence[int],
    helpers: Mapping[int, Sequence[int]],
    round_num: int,
) -> Iterator[ClientTask]:
    """What each client is sent, made when a worker is about to be free: it is large."""
    devices = _devices(config, round_num)
    for client in clients:
        held = store.get(client)
        others = [store.get(helper) for helper in helpers.get(client, ())]
        helping = [other.params for other in others if other is not None and other.params is not None]
        message = algorithm.broadcast(state, None if held is None else held.params, helping)
        plateau = schedule.start(config.lr, config.patience) if held is None else held.plateau
        if config.lr_source != "client":
            plateau = state.plateau
        lr = plateau.lr
        if state.device_lrs is not None and held is not None:  # a newcomer begins with the initial rate in any case
            lr = state.device_lrs[devices[client]]
        yield ClientTask(round_num, client, task_step(config, round_num), message, plateau, lr, held is None)


def lost(config: Config, round_num: int, clients: Iterable[int]) -> frozenset[int]:
    """The clients whose updates are lost on the way (--drop-rate), drawn for each client of each round."""
    return frozenset(
        client
        for client in clients
        if seeding.stream(config.seed, "drop", round_num, client).random() < config.drop_rate
    )


def fold(
    algorithm: Algorithm,
    state: ServerState,
    store: Store,
    trained: Iterable[tuple[Update, ClientResult]],
    planned: Sequence[int],
    lost: Collection[int],
    train: Train,
) -> tuple[ServerState, list[ClientResult]]:
    """(the state after a round, the clients' results, sorted by client).

    Each update is added to the round's sums and kept as it comes. Without any, the clients change nothing.

    Args:
        planned: examples of the clients whose updates are expected.
        lost: clients whose updates don't arrive.
        train: runs the server's epochs, for an algorithm that has them after the clients.
    """
    total, results = algorithm.empty(state, planned), []
    for update, result in trained:
        if update.client not in lost:
            total = algorithm.add(total, update)
            store.put(update.client, algorithm.keep(update.params))
        results.append(result)
    results.sort(key=lambda result: result.client)
    state = algorithm.after_clients(algorithm.finish(state, total) if planned else state, train)
    known = {each.client: each.embedding for each in results if each.client not in lost and each.embedding is not None}
    done, embeddings = state.rounds_done + 1, {**state.embeddings, **known}
    plateau = _of_round(algorithm.config, state.plateau, done)
    return state._replace(rounds_done=done, embeddings=embeddings, plateau=plateau), results


def _of_round(config: Config, plateau: Plateau, round_num: int) -> Plateau:
    """The learning rate of a round, if it follows from that; after the last one it stays."""
    if config.lr_schedule not in schedule.BY_ROUND:
        return plateau
    share = schedule.BY_ROUND[config.lr_schedule](min(round_num, config.num_rounds - 1) / config.num_rounds)
    return plateau._replace(lr=max(config.lr * share, config.lr_min))


def score(config: Config, algorithm: Algorithm, crew: Crew, state: ServerState) -> Scores:
    """The scores of the round's clients and of the global model, if there is one; of its parts if the run asks for it.

    Workers may run the server's next epoch meanwhile.
    """
    round_num, tasks = state.rounds_done - 1, []
    if config.has_global_model:
        theta = state.params.theta(config.l1_thres)
        tasks += eval_tasks(config, round_num, GLOBAL, theta, ("test",))
        if config.keep_best or config.lr_source != "client":
            tasks += eval_tasks(config, round_num, GLOBAL, theta, ("valid",))
    if config.ablate_eval:
        tasks += eval_tasks(config, round_num, GLOBAL_SIGMA, state.params.sigma, ("test",))
        tasks += eval_tasks(config, round_num, GLOBAL_PSI, state.params.only_psi(config.l1_thres), ("test",))
    return crew.score(tasks, beside=_next_epoch(config, algorithm, state))


def end_round(config: Config, state: ServerState, results: Sequence[ClientResult], scores: Scores) -> ServerState:
    """The state for the next round: the best model so far, learning rates as this round's validations leave them."""
    if config.keep_best:
        state = state._replace(best=_better(config, state, scores[GLOBAL, "valid"].loss))
    if config.lr_source == "server":
        return state._replace(plateau=next_lr(config, state.plateau, scores[GLOBAL, "valid"]))
    if state.device_lrs is None:
        return state
    devices = _devices(config, state.rounds_done - 1)
    by_client = {result.client: result for result in results}
    visits = []
    for client, device in devices.items():  # in the order of the draw
        if client not in by_client:  # nothing is known of it: its update was lost
            continue
        before = by_client[client].plateau
        after = next_lr(config, before, scores[client_model(client), "valid"])
        never_validated = before.lowest == float("inf")
        visits.append(Visit(device, never_validated, after.lr if after.lr != before.lr else None))
    return state._replace(device_lrs=schedule.device_rates(state.device_lrs, visits, config.lr))


def _better(config: Config, state: ServerState, valid_loss: float) -> Best:
    """The best model so far, after a round that ended with this validation loss; of equals, the first."""
    if state.best is not None and state.best.valid_loss <= valid_loss:
        return state.best
    return Best(state.rounds_done - 1, valid_loss, state.params.theta(config.l1_thres))


def next_lr(config: Config, plateau: Plateau, valid: Score | None) -> Plateau:
    """The learning rate's state after a validation, if there was one and it decides on that."""
    if valid is None or config.lr_source == "round":
        return plateau
    return schedule.advance(plateau, valid.loss, config.patience, config.lr_factor, config.lr_min)


def plateaus(config: Config, results: Sequence[ClientResult], scores: Scores) -> dict[int, Plateau]:
    """Each client's learning-rate state after this round's validation of its model."""
    return {
        result.client: next_lr(config, result.plateau, scores.get((client_model(result.client), "valid")))
        for result in results
    }
