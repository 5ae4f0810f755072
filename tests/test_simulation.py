"""The round loop with a stand-in for the network: three weights, and clients whose training is plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmatch_tf import schedule, server, simulation, wire
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.params import Params
from fedmatch_tf.store import MemoryStore
from fedmatch_tf.tasks import ClientResult, ClientTask, EvalTask, Score, ServerResult, ServerTask, Step


class Arithmetic:
    """A client adds 1 to sigma and its number to psi; its validation loss never falls. Results come in reverse."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.tasks: list[ClientTask] = []

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        return reversed([self.run(task) for task in tasks])

    def run(self, task: Any) -> Any:
        if isinstance(task, EvalTask):
            return Score(float(task.params.psi.sum()), 0.5)
        if isinstance(task, ServerTask):
            params = Params(task.params.sigma + 10, task.params.psi)
            return ServerResult(params, task.plateau, (), Score(1.0, 0.1), None)
        self.tasks.append(task)
        received = task.broadcast.params
        trained = Params(received.sigma + 1, received.psi + task.client)
        upload = wire.upload(trained, received, 0.0, 0.0, self.config.scenario == "lc")
        plateau = schedule.advance(task.plateau, 1.0, self.config.lr_patience, self.config.lr_factor, 0.0)
        embedding = np.array([task.client, 0.0], np.float32)
        steps = (Step("u", 1.0, num_rows=4, confident_rows=(0, 1), pseudo_labels=(3, 3), num_correct=1),)
        return ClientResult(
            task.client, task.broadcast.cost, task.plateau.lr, upload, plateau, embedding, Score(1.0, 0.2), None, steps,
            num_examples=10,
        )  # fmt: skip


def run(config: Config) -> tuple[list[Any], Arithmetic]:
    start = server.initial_state(config, Params(np.zeros(3, np.float32), np.zeros(3, np.float32)))
    backend = Arithmetic(config)
    return list(simulation.run(config, start, backend, MemoryStore())), backend


LC = make_config("lc-biid-c10", num_clients=3, num_rounds=4, frac_clients=1.0, lr=0.9, lr_patience=1, helper_interval=2)
LC = replace(LC, l1_thres=0.0, delta_thres=0.0)


def test_labels_at_client_averages_sigma_and_psi_apart() -> None:
    rounds, _ = run(LC)
    for number, (record, state) in enumerate(rounds, start=1):
        np.testing.assert_allclose(state.params.sigma, number, rtol=1e-6)  # everybody added 1
        np.testing.assert_allclose(state.params.psi, number, rtol=1e-6)  # the mean of 0, 1 and 2
        assert record.global_test.loss == pytest.approx(3 * number)
        assert [client.client for client in record.clients] == [0, 1, 2]
        assert (record.confident, record.pseudo_label_acc) == (0.5, 0.5)


def test_labels_at_server_trains_sigma_before_the_clients_round() -> None:
    config = replace(make_config("ls-biid-c10", num_clients=2, num_rounds=2), l1_thres=0.0, delta_thres=0.0)
    rounds, backend = run(config)
    assert [state.params.sigma[0] for _, state in rounds] == [10, 20]
    assert [task.broadcast.params.sigma[0] for task in backend.tasks] == [10, 10, 20, 20]
    assert rounds[0][0].server_valid == Score(1.0, 0.1)
    assert all(client.c2s.sigma == 0 for record, _ in rounds for client in record.clients)


def test_a_clients_learning_rate_lasts_between_its_rounds() -> None:
    _, backend = run(LC)
    lrs = [task.plateau.lr for task in backend.tasks if task.client == 1]
    # Round 0 sets the lowest loss; every later one is not lower, and patience is 1.
    np.testing.assert_allclose(lrs, [0.9, 0.9, 0.3, 0.1])


def test_a_client_that_stays_away_keeps_its_learning_rate_and_is_charged_for_what_it_missed() -> None:
    config = replace(LC, num_clients=8, frac_clients=0.25, num_rounds=12)
    rounds, backend = run(config)
    visits: dict[int, list[ClientTask]] = {}
    for task in backend.tasks:
        visits.setdefault(task.client, []).append(task)
    assert max(len(tasks) for tasks in visits.values()) >= 3
    for tasks in visits.values():
        assert tasks[0].broadcast.cost.sum == 2.0  # a first visit in full
        lrs = [0.9, 0.9, 0.3, 0.1, 0.1 / 3, 0.1 / 9][: len(tasks)]
        np.testing.assert_allclose([task.plateau.lr for task in tasks], lrs)
    assert rounds[0][0].clients[0].s2c.sum == 2.0


def test_helpers_are_the_psi_that_neighbours_last_uploaded() -> None:
    rounds, backend = run(replace(LC, num_helpers=1))
    helped = {(task.round_num, task.client): task.broadcast.helpers for task in backend.tasks}
    assert [number for number in range(4) if helped[(number, 0)]] == [1, 3]
    # Embeddings are 0, 1 and 2 on a line: client 0 and 2 are both helped by 1, whose psi after round 0 is 0 + 1.
    assert rounds[1][0].helpers[0] == (1,)
    assert rounds[1][0].helpers[2] == (1,)
    np.testing.assert_array_equal(helped[(1, 0)][0], [1, 1, 1])


def test_a_client_of_the_paper_profile_gets_only_what_is_counted() -> None:
    config = replace(LC, s2c_content="counted", delta_thres=0.6, num_rounds=2, num_helpers=0)
    _, backend = run(config)
    second = {task.client: task.broadcast for task in backend.tasks if task.round_num == 1}
    # Everybody holds sigma 1 like the server. psi: the server has 1, the clients hold 0, 1 and 2.
    assert [second[client].cost.psi for client in range(3)] == [1.0, 0.0, 1.0]
    assert second[0].params.psi.tolist() == [1, 1, 1]
    config = replace(config, delta_thres=1.5)
    _, backend = run(config)
    second = {task.client: task.broadcast for task in backend.tasks if task.round_num == 1}
    assert [second[client].cost.psi for client in range(3)] == [0.0, 0.0, 0.0]
    assert second[2].params.psi.tolist() == [2, 2, 2], "it keeps what it held"
    full = replace(config, s2c_content="full")
    _, backend = run(full)
    second = {task.client: task.broadcast for task in backend.tasks if task.round_num == 1}
    np.testing.assert_allclose(second[2].params.psi, 1, rtol=1e-6)
