"""The server's side of a round (RunServer of algorithms 1 and 2).

1. (labels-at-server) For every server epoch and minibatch of the server's labelled set: a supervised step on sigma,
   psi fixed, eq. 4; the validation loss decides on the server's next learning rate.
2. Choose the round's clients and, every helper_interval rounds, each one's helpers: its nearest neighbours among all
   models known so far.
3. Average what the clients upload: sigma (labels-at-client only) and psi, each on its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fedmatch_tf.config import Config
from fedmatch_tf.core import schedule, seeding
from fedmatch_tf.core.helpers import Neighbours, choose_helpers
from fedmatch_tf.core.params import Params, weighted_mean
from fedmatch_tf.core.schedule import Plateau
from fedmatch_tf.simulation.tasks import ClientResult, Score


class ServerState(NamedTuple):
    """What the server knows between rounds, apart from what its store keeps of the clients."""

    rounds_done: int
    params: Params
    plateau: Plateau
    embeddings: Mapping[int, np.ndarray]  # of every client that ever took part


def initial_state(config: Config, params: Params) -> ServerState:
    """The state before round 0."""
    return ServerState(0, params, schedule.start(config.lr, config.lr_patience), {})


def select_clients(config: Config, round_num: int) -> list[int]:
    """The clients that take part, in ascending order."""
    rng = seeding.stream(config.seed, "select clients", round_num)
    return sorted(rng.choice(config.num_clients, config.clients_per_round, replace=False).tolist())


def sends_helpers(config: Config, round_num: int) -> bool:
    """Whether helpers are sent in this round (counted from 0)."""
    return round_num > 0 and (round_num + 1) % config.helper_interval == 0


def helpers_of(
    config: Config, neighbours: Neighbours, clients: Sequence[int], round_num: int
) -> dict[int, tuple[int, ...]]:
    """GetNearestNeighbors: client -> the clients whose psi is sent along; clients that get none are left out."""
    if not (config.uses_helpers and sends_helpers(config, round_num)):
        return {}
    return choose_helpers(clients, neighbours, config.num_helpers)


def next_lr(config: Config, plateau: Plateau, valid: Score | None) -> Plateau:
    """The learning rate's state after a validation, if there was one that decides on it."""
    if valid is None:
        return plateau
    return schedule.advance(plateau, valid.loss, config.lr_patience, config.lr_factor, config.lr_min)


def embeddings_of(results: Sequence[ClientResult]) -> dict[int, np.ndarray]:
    """What the round's clients are known by from now on."""
    return {result.client: result.embedding for result in results if result.embedding is not None}


def aggregate(config: Config, state: ServerState, results: Sequence[ClientResult]) -> ServerState:
    """The state after a round, means taken in the order of the results.

    Means are uniform, or by number of examples with FedAvg. FedMatch's sigma stays in labels-at-server, where only
    the server trains it; clients that share nothing leave everything as it is.
    """
    uploads = [result.upload.params for result in results]
    weights = [float(result.num_examples) if config.framework == "fedavg" else 1.0 for result in results]
    sigma, psi = state.params
    if config.framework != "local":
        psi = weighted_mean([params.psi for params in uploads], weights)
        if config.scenario == "lc" or not config.decomposed:
            sigma = weighted_mean([params.sigma for params in uploads], weights)
    known = {**state.embeddings, **embeddings_of(results)}
    return ServerState(state.rounds_done + 1, Params(sigma, psi), state.plateau, known)
