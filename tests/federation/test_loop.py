"""The round loop with a stand-in for the network: three weights, and clients whose training is plain arithmetic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.algorithms.algorithm import ServerState, make_algorithm
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.federation import loop, scoring, server
from fedmatch_tf.federation.crew import Crew
from fedmatch_tf.federation.records import ClientRecord, RoundRecord
from fedmatch_tf.federation.tasks import (
    GLOBAL,
    SERVER,
    ClientResult,
    ClientTask,
    EvalResult,
    EvalTask,
    Losses,
    ServerResult,
    ServerTask,
    client_model,
)
from fedmatch_tf.networks.params import Params
from tests.stand_in import MemoryStore

VALID_HITS = {SERVER: 1, GLOBAL: 3}


class Arithmetic:
    """A client adds 1 to sigma and its number to psi; its validation loss never falls.

    All tasks that there are at a time are taken before the first result, and the last one's result comes first.
    """

    def __init__(self, config: Config) -> None:
        self.config, self.algorithm = config, make_algorithm(replace(config, l1_thres=0.0, delta_thres=0.0))
        self.tasks: list[ClientTask] = []
        self.evaluated: list[EvalTask] = []
        self.epochs: list[ServerTask] = []

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        taken: list[Any] = []
        for task in tasks:
            if task is not None:
                taken.append(task)
                continue
            yield from reversed([self.run(task) for task in taken])
            taken = []
        yield from reversed([self.run(task) for task in taken])

    def run(self, task: Any) -> Any:
        if isinstance(task, EvalTask):
            self.evaluated.append(task)
            loss, hits = float(task.theta.sum()), 4
            if task.split == "valid":
                loss, hits = 1.0, VALID_HITS.get(task.model, 2)  # it never falls
            elif task.model.client is not None:
                loss, hits = 0.5, task.model.client
            return EvalResult(task.model, task.split, task.part, task.num_parts, (10,), (loss,), (hits,))
        if isinstance(task, ServerTask):
            self.epochs.append(task)
            return ServerResult(Params(task.params.sigma + 10, task.params.psi), Losses(float(task.epoch)))
        self.tasks.append(task)
        received = task.broadcast.params
        trained = Params(received.sigma + 1, None if received.psi is None else received.psi + task.client)
        if not self.config.decomposed and not self.config.no_decomposition:
            trained = Params(trained.sigma + task.client)
        upload = self.algorithm.upload(trained, received)
        theta, model = trained.sigma + task.client, client_model(task.client)
        splits = scoring.client_splits(self.config) if task.score else ()
        return ClientResult(
            task.client,
            None if upload.params.sigma is received.sigma else upload.params.sigma,
            upload.params.psi,
            num_examples=1 + task.client,
            s2c=task.broadcast.cost,
            c2s=upload.cost,
            plateau=task.plateau,
            lr=task.lr,
            num_unlabeled=4 + task.client,
            confident_rows=2,
            num_correct=1,
            embedding=np.array([task.client, 0.0], np.float32),
            scored=tuple(self.run(EvalTask(task.round_num, model, split, theta)) for split in splits),
            theta=None if task.score else theta,
        )


class OneByOne(Arithmetic):
    """Takes a task when the result before it is back."""

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        for task in tasks:
            yield self.run(task)


def initial(config: Config) -> ServerState:
    zeros = np.zeros(3, np.float32)
    return server.initial_state(config, Params(zeros, zeros if config.decomposed else None))


def run(
    config: Config, kind: type[Arithmetic] = Arithmetic, sizes: dict[int, int] | None = None
) -> tuple[list[Any], Arithmetic]:
    backend = kind(config)
    return list(loop.run(config, initial(config), backend, MemoryStore(), sizes or {})), backend


LC = make_config("lc-biid-c10", num_clients=3, num_rounds=4, frac_clients=1.0, lr=0.9, lr_patience=1, helper_interval=2)
LC = replace(LC, l1_thres=0.0, delta_thres=0.0, lr_memory="client")


def clients_of(record: RoundRecord) -> tuple[ClientRecord, ...]:
    assert record.actors is not None
    return record.actors.clients


def test_clients_that_hold_more_are_trained_first_and_nothing_depends_on_it() -> None:
    plain, as_they_come = run(LC)
    sized, by_size = run(LC, sizes={0: 20, 1: 900})  # client 2 is unknown
    assert [task.client for task in as_they_come.tasks] == [0, 1, 2] * 4
    assert [task.client for task in by_size.tasks] == [1, 0, 2] * 4
    for (one, _), (other, _) in zip(plain, sized):
        assert one._replace(seconds=0) == other._replace(seconds=0)
    np.testing.assert_array_equal(plain[-1][1].params.psi, sized[-1][1].params.psi)


def test_a_sigma_that_did_not_come_back_is_the_one_that_was_sent() -> None:
    config = replace(LC, task="ls-biid-c10", num_epochs_server=1, batch_size_server=9, num_rounds=3)
    store, backend = MemoryStore(), Arithmetic(config)
    start = initial(config)
    for number, (_, state) in enumerate(loop.run(config, start, backend, store), start=1):
        np.testing.assert_array_equal(state.params.sigma, [10 * number] * 3)  # the server's epochs
        for client in range(3):
            held = store.get(client)
            assert held is not None
            assert held.params is not None
            np.testing.assert_array_equal(held.params.sigma, [10 * number] * 3)


def test_labels_at_client_averages_sigma_and_psi_apart() -> None:
    rounds, _ = run(LC)
    for number, (record, state) in enumerate(rounds, start=1):
        np.testing.assert_allclose(state.params.sigma, number, rtol=1e-6)  # everybody added 1
        np.testing.assert_allclose(state.params.psi, number, rtol=1e-6)  # the mean of 0, 1 and 2
        assert record.test_loss == pytest.approx(6 * number)  # the sum of theta
        assert record.clients == (0, 1, 2)
        assert record.confident == pytest.approx(6 / 15)  # of each client 2; of 4, 5 and 6
        assert (record.confident_rows, record.pseudo_label_acc) == (6, 0.5)


def test_labels_at_server_trains_sigma_before_the_clients_round() -> None:
    config = replace(make_config("ls-biid-c10", num_clients=2, num_rounds=2), l1_thres=0.0, delta_thres=0.0)
    rounds, backend = run(config)
    assert [state.params.sigma[0] for _, state in rounds] == [10, 20]
    assert [task.broadcast.params.sigma[0] for task in backend.tasks] == [10, 10, 20, 20]
    actors = rounds[0][0].actors
    assert (actors.server.valid_loss, actors.server.valid_acc) == (1.0, 0.1)
    assert all(record.c2s.sigma == 0 for record, _ in rounds)


def test_every_epoch_of_the_server_runs_once_with_the_weights_and_the_learning_rate_of_its_round() -> None:
    config = make_config("ls-biid-c10", num_clients=2, num_rounds=2, num_epochs_server=2, lr=0.9, lr_patience=1)
    for kind in (Arithmetic, OneByOne):
        rounds, backend = run(config, kind)
        epochs = backend.epochs
        assert [(task.round_num, task.epoch, task.params.sigma[0]) for task in epochs] == [
            (0, 0, 0),
            (0, 1, 10),
            (1, 0, 20),
            (1, 1, 30),
        ]
        # The validation after the first epoch sets the lowest loss; no later one is lower.
        np.testing.assert_allclose([task.lr for task in epochs], [0.9, 0.9, 0.3, 0.1])
        assert [record.server_lr for record, _ in rounds] == pytest.approx([0.9, 0.3])  # of each round's first epoch


def test_the_losses_of_the_servers_epochs_are_means_over_them() -> None:
    config = make_config("ls-biid-c10", num_clients=2, num_rounds=1, num_epochs_server=3)
    train = server.Training(config, Crew(config, Arithmetic(config)), 0)
    assert train.losses == Losses()
    train(initial(config))
    assert train.losses == Losses(1.0)  # of 0, 1 and 2


def test_a_server_without_epochs_does_not_train() -> None:
    rounds, backend = run(
        make_config("ls-biid-c10", model="fedavg-sl", num_clients=2, num_rounds=2, num_epochs_server=0)
    )
    assert backend.epochs == []
    assert len(backend.tasks) == 4
    assert [record.server_lr for record, _ in rounds] == [None, None]


def test_a_client_that_stays_away_keeps_its_learning_rate_and_is_charged_for_what_it_missed() -> None:
    config = replace(LC, num_clients=8, frac_clients=0.25, num_rounds=12)
    rounds, backend = run(config)
    visits: dict[int, list[ClientTask]] = {}
    for task in backend.tasks:
        visits.setdefault(task.client, []).append(task)
    assert max(len(tasks) for tasks in visits.values()) >= 3
    for tasks in visits.values():
        assert tasks[0].broadcast.cost.sum == 2.0  # a first visit in full
        # The first visit sets the lowest loss; every later one is not lower, and patience is 1.
        lrs = [0.9, 0.9, 0.3, 0.1, 0.1 / 3, 0.1 / 9][: len(tasks)]
        np.testing.assert_allclose([task.plateau.lr for task in tasks], lrs)
    assert rounds[0][0].s2c.sum == 2.0


def test_an_absent_client_is_charged_for_what_it_missed_and_its_rate_falls_with_its_own_visits() -> None:
    # One client per round. It adds 1 to sigma and its number to psi; a change of up to 1.5 is not counted.
    config = replace(LC, num_clients=4, frac_clients=0.25, num_rounds=5, delta_thres=1.5, no_icc=True, seed=173)
    assert [server.select_clients(config, number) for number in range(5)] == [[1], [2], [1], [1], [2]]
    rounds, _ = run(config)
    clients = [clients_of(record)[0] for record, _ in rounds]
    #  round    0       1       2       3       4
    #  client   1       2       1       1       2
    #  server   0, 0    1, 1    2, 3    3, 4    4, 5     sigma, psi before the round
    #  held     -       -       1, 1    3, 4    2, 3     by the client
    #  S2C      1, 1    1, 1    0, 1    0, 0    1, 1     differences of more than 1.5
    assert [(client.s2c.sigma, client.s2c.psi) for client in clients] == [(1, 1), (1, 1), (0, 1), (0, 0), (1, 1)]
    assert [state.params.sigma[0] for _, state in rounds] == [1, 2, 3, 4, 5]
    assert [state.params.shared_part[0] for _, state in rounds] == [1, 3, 4, 5, 7]
    # Patience is 1 and no loss is lower than a client's first: its third visit has a third of the rate.
    assert [client.lr for client in clients] == pytest.approx([0.9, 0.9, 0.9, 0.3, 0.9])


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
    assert second[0].params.shared_part.tolist() == [1, 1, 1]
    config = replace(config, delta_thres=1.5)
    _, backend = run(config)
    second = {task.client: task.broadcast for task in backend.tasks if task.round_num == 1}
    assert [second[client].cost.psi for client in range(3)] == [0.0, 0.0, 0.0]
    assert second[2].params.shared_part.tolist() == [2, 2, 2], "it keeps what it held"
    full = replace(config, s2c_content="full")
    _, backend = run(full)
    second = {task.client: task.broadcast for task in backend.tasks if task.round_num == 1}
    np.testing.assert_allclose(second[2].params.parts[1], 1, rtol=1e-6)


def test_fedavg_weighs_by_examples_fedprox_does_not_and_both_cost_all_each_way() -> None:
    # Client c adds 1 + c and holds 1 + c examples, so of 3 clients: (1 x 1 + 2 x 2 + 3 x 3) / 6, and (1 + 2 + 3) / 3.
    for model, step in (("fedavg-uda", 14 / 6), ("fedprox-uda", 2.0)):
        rounds, backend = run(replace(LC, model=model))
        for number, (record, state) in enumerate(rounds, start=1):
            np.testing.assert_allclose(state.params.sigma, number * step, rtol=1e-5)
            assert record.helpers == {}
            for client in clients_of(record):
                assert (client.s2c.sum, client.c2s.sum) == (1.0, 1.0)
                assert client.s2c.bytes == client.c2s.bytes == 12
        lrs = [task.plateau.lr for task in backend.tasks if task.client == 1]
        np.testing.assert_allclose(lrs, [0.9, 0.9, 0.3, 0.1])  # a client's learning rate lasts here, too


def test_local_clients_go_on_with_their_own_and_report_their_mean() -> None:
    rounds, backend = run(replace(LC, model="local-sl", num_rounds=3))
    for task in backend.tasks:
        np.testing.assert_allclose(task.broadcast.params.sigma, task.round_num * (1 + task.client))
        assert task.broadcast.cost.sum == task.broadcast.cost.num_bytes == 0
    for record, state in rounds:
        assert (record.test_loss, record.test_acc) == pytest.approx((0.5, 0.1))  # the mean of 0, 0.1 and 0.2
        assert record.c2s.sum == 0
        assert state.params.sigma.tolist() == [0, 0, 0]


def test_parts_of_the_model_are_tested_when_asked_for() -> None:
    rounds, backend = run(replace(LC, ablate_eval=True, num_rounds=1, num_clients=4, l1_thres=1.4))
    ((record, state),) = rounds
    assert state.params.sigma.tolist() == [1, 1, 1]
    assert state.params.shared_part.tolist() == [1.5, 1.5, 1.5]
    assert (record.test_loss, record.test_acc) == (7.5, 0.4)
    assert (record.test_acc_sigma, record.test_acc_psi) == (0.4, 0.4)
    assert [float(task.theta.sum()) for task in backend.evaluated[-2:]] == [3.0, 4.5], "sigma alone, psi alone"
    rounds, backend = run(replace(LC, ablate_eval=True, num_rounds=1, num_clients=4, l1_thres=1.6))
    ((record, state),) = rounds
    assert record.test_loss == 3.0, "small elements of psi count as 0"
    assert float(backend.evaluated[-1].theta.sum()) == 0


@pytest.mark.parametrize(
    ("workers", "apart", "parts"), [(1, [], 1), (2, [0], 2), (3, [0, 1], 3), (9, [0, 1, 2, 3, 4], 4)]
)
@pytest.mark.parametrize("kind", [Arithmetic, OneByOne])
def test_clients_that_would_leave_workers_idle_are_scored_by_all(
    kind: type[Arithmetic], workers: int, apart: list[int], parts: int
) -> None:
    config = replace(LC, num_clients=5, workers=workers, eval_clients="always", num_rounds=2)
    rounds, backend = run(config, kind)
    assert [task.client for task in backend.tasks if not task.score] == apart + apart
    shared = Counter((task.model, task.split) for task in backend.evaluated)
    # 2000 images are four passes of 500, so there are four parts at most. Two rounds.
    for client in range(5):
        assert shared[client_model(client), "valid"] == 2 * (4 if client in apart else 1)
    assert shared[GLOBAL, "test"] == 2 * parts
    for record, _ in rounds:
        scores = [client.scores for client in clients_of(record)]
        assert [(each.valid_loss, each.valid_acc) for each in scores] == [(1.0, 0.2)] * 5
        assert [(each.test_loss, each.test_acc) for each in scores] == [(0.5, client / 10) for client in range(5)]
        assert record.test_acc == 0.4
    assert [task.plateau.lr for task in backend.tasks if task.round_num == 1] == [0.9] * 5


def test_without_inter_client_consistency_nobody_is_helped() -> None:
    rounds, backend = run(replace(LC, no_icc=True))
    assert all(record.helpers == {} for record, _ in rounds)
    assert all(task.broadcast.helpers == () for task in backend.tasks)


def test_without_decomposition_a_helper_is_all_of_its_parameters() -> None:
    config = replace(LC, no_decomposition=True, num_helpers=1, num_rounds=2)
    _, backend = run(config)
    helped = {(task.round_num, task.client): task.broadcast.helpers for task in backend.tasks}
    np.testing.assert_array_equal(helped[(1, 0)][0], [1, 1, 1])  # client 1's sigma after round 0
    assert next(task for task in backend.tasks if task.round_num == 1).broadcast.cost.psi == 0


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_the_global_models_validation_may_decide_on_everybodys_learning_rate(scenario: str) -> None:
    federation: Any = {
        "num_rounds": 10,
        "num_clients": 8,
        "frac_clients": 0.25,
        "num_epochs_server": 1,
        "batch_size_server": 9,
    }
    config = replace(LC, task=f"{scenario}-biid-c10", lr_signal="server", **federation)
    rounds, backend = run(config)
    # Round 0 sets the lowest loss; no later one is lower. A client's patience is one visit, and it comes every fourth
    # round: so the rate falls after rounds 4 and 8. New clients start at the present rate.
    lrs = [0.9] * 5 + [0.3] * 4 + [0.1]
    assert [task.lr for task in backend.epochs] == pytest.approx(lrs if scenario == "ls" else [])
    for number, lr in enumerate(lrs):
        assert [task.plateau.lr for task in backend.tasks if task.round_num == number] == pytest.approx([lr, lr])
    assert all(record.global_valid_loss == 1.0 for record, _ in rounds)
    assert rounds[-1][1].plateau.lr == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("scenario", "model"), [("lc", "fedmatch"), ("ls", "fedmatch"), ("ls", "semifl"), ("lc", "local-sl")]
)
def test_a_rate_that_follows_from_the_round_is_everybodys_whatever_validation_says(scenario: str, model: str) -> None:
    schedules: list[tuple[str, dict[str, Any], list[float]]] = [
        ("linear", {}, [0.8, 0.6, 0.4, 0.2]),
        ("cosine", {"lr_min": 0.3}, [0.8, 0.4 + 0.8 * 0.5**1.5, 0.4, 0.3]),
        ("constant", {}, [0.8] * 4),
    ]
    for name, given, lrs in schedules:
        if scenario == "ls":
            given.update(num_epochs_server=1, batch_size_server=9)
        config = replace(LC, task=f"{scenario}-biid-c10", model=model, lr_schedule=name, lr=0.8, **given)
        rounds, backend = run(config)
        assert [task.lr for task in backend.epochs] == pytest.approx(lrs if scenario == "ls" else [])
        assert [task.lr for task in backend.tasks] == pytest.approx([lr for lr in lrs for _ in range(3)])
        assert {record.valid_loss for record, _ in rounds} == {1.0}
        validated = {task.model for task in backend.evaluated if task.split == "valid"}
        assert validated == ({GLOBAL} if model != "local-sl" else {client_model(client) for client in range(3)})
        # A run that goes on after two rounds is where it was.
        resumed = Arithmetic(config)
        again = list(loop.run(config, rounds[1][1], resumed, MemoryStore()))
        assert [record.round for record, _ in again] == [2, 3]
        assert [task.lr for task in resumed.tasks] == [task.lr for task in backend.tasks if task.round_num > 1]


def test_the_servers_epochs_of_a_round_hand_on_their_velocity_which_no_other_round_sees() -> None:
    class WithVelocity(Arithmetic):
        def run(self, task: Any) -> Any:
            result = super().run(task)
            if not isinstance(task, ServerTask):
                return result
            return result._replace(velocity=np.array([1.0]) if task.velocity is None else task.velocity + 1)

    _, backend = run(
        replace(LC, task="ls-biid-c10", num_epochs_server=3, batch_size_server=9, num_rounds=2), WithVelocity
    )
    received = [None if task.velocity is None else task.velocity.tolist() for task in backend.epochs]
    assert received == [None, [1.0], [2.0]] * 2


DEVICES = replace(LC, lr_memory="device", num_clients=4, frac_clients=0.5, num_rounds=8)


def test_clients_train_with_the_rate_of_the_device_that_the_draw_gives_them() -> None:
    rounds, backend = run(DEVICES)
    drawn = [server.draw_clients(DEVICES, number) for number in range(8)]
    # Losses never fall after a first visit, and patience is 1: every later visit divides a client's own rate by 3.
    own, devices, expected = dict.fromkeys(range(4), 0.9), [0.9, 0.9], []
    seen: set[int] = set()
    for clients in drawn:
        used = {}
        for device, client in enumerate(clients):
            used[client] = devices[device] if client in seen else 0.9
        for device, client in enumerate(clients):
            if client in seen:
                own[client] /= 3
                devices[device] = own[client]
            else:
                devices[device] = 0.9
            seen.add(client)
        expected.append([used[client] for client in sorted(clients)])
    assert [[client.lr for client in clients_of(record)] for record, _ in rounds] == [
        pytest.approx(rates) for rates in expected
    ]
    assert rounds[-1][1].device_lrs == pytest.approx(devices)
    assert any(rates != [rate] * 2 for rates, rate in zip(expected, (rates[0] for rates in expected))), "they differ"
    assert len({task.client for task in backend.tasks}) == 4


def test_rates_of_devices_go_on_where_they_were() -> None:
    whole, _ = run(DEVICES)
    backend, store = Arithmetic(DEVICES), MemoryStore()
    start = initial(DEVICES)
    first = list(loop.run(replace(DEVICES, num_rounds=3), start, backend, store))
    rest = list(loop.run(DEVICES, first[-1][1], backend, store))
    lrs = [[client.lr for client in clients_of(record)] for record, _ in (*first, *rest)]
    assert lrs == [[client.lr for client in clients_of(record)] for record, _ in whole]
    one = run(replace(DEVICES, lr_devices=1))[0]
    assert one[-1][1].device_lrs[0] in {min(state.device_lrs) for _, state in one}


LOSSY = replace(LC, num_clients=4, num_rounds=6, drop_rate=0.5, num_helpers=2)


def test_who_is_lost_is_neither_averaged_nor_kept_nor_counted_and_helps_nobody() -> None:
    start, backend, store = initial(LOSSY), OneByOne(LOSSY), MemoryStore()
    sigma, psi, embedded = 0, 0.0, set[int]()
    for record, state in loop.run(LOSSY, start, backend, store):
        lost = set(record.dropped or ())
        arrived = [client for client in range(4) if client not in lost]
        for client, helpers in record.helpers.items():
            assert set(helpers) <= embedded - {client}, "only models that arrived can help"
        for each in clients_of(record):
            # sigma always moves; psi moves by the client's number, so client 0's never does
            assert each.c2s.sigma == (0 if each.client in lost else 1)
            assert each.c2s.psi == (0 if each.client in lost or each.client == 0 else 1)
        embedded |= set(arrived)
        if arrived:
            sigma, psi = sigma + 1, psi + sum(arrived) / len(arrived)
        np.testing.assert_allclose(state.params.sigma, sigma, rtol=1e-6)
        np.testing.assert_allclose(state.params.parts[1], psi, rtol=1e-6)
        assert set(state.embeddings) == embedded
        assert {client for client in range(4) if store.get(client) is not None} == embedded
        for client in arrived:
            held = store.get(client)
            assert held is not None
            assert held.params is not None
            np.testing.assert_array_equal(held.params.sigma, [sigma] * 3)
    assert any(len(record.helpers) for record, _ in run(LOSSY)[0])
    gone = [record.dropped for record, _ in run(LOSSY)[0]]
    assert any(gone)
    assert any(lost is not None and 0 < len(lost) < 4 for lost in gone), "with this seed"


def test_a_run_that_loses_updates_goes_on_as_if_it_had_not_stopped() -> None:
    whole, _ = run(LOSSY)
    store = MemoryStore()
    start = initial(LOSSY)
    first = list(loop.run(replace(LOSSY, num_rounds=3), start, Arithmetic(LOSSY), store))
    rest = list(loop.run(LOSSY, first[-1][1], Arithmetic(LOSSY), store))
    for (one, state), (other, again) in zip(whole, (*first, *rest)):
        assert one._replace(seconds=0) == other._replace(seconds=0)
        np.testing.assert_array_equal(state.params.parts[1], again.params.parts[1])
