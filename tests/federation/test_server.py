"""The server's choices: clients, helpers, streaming steps."""

from __future__ import annotations

import numpy as np
import pytest

from fedmatch_tf.algorithms.algorithm import Update, make_algorithm
from fedmatch_tf.algorithms.wire import Cost
from fedmatch_tf.config import make_config
from fedmatch_tf.federation import server
from fedmatch_tf.federation.tasks import GLOBAL, ClientResult, Score
from fedmatch_tf.learners import schedule
from fedmatch_tf.networks.params import Params
from tests.stand_in import MemoryStore

CONFIG = make_config("lc-biid-c10")


def test_a_rounds_clients_are_different_and_follow_from_seed_and_round() -> None:
    first = server.select_clients(CONFIG, 0)
    assert len(first) == len(set(first)) == 5
    assert first == server.select_clients(CONFIG, 0)
    assert first != server.select_clients(CONFIG, 1)
    assert first != server.select_clients(make_config("lc-biid-c10", seed=2), 0)
    seen = {client for round_num in range(200) for client in server.select_clients(CONFIG, round_num)}
    assert seen == set(range(100))
    assert server.select_clients(make_config("lc-simb-fmnist"), 3) == list(range(10))


def test_helpers_are_sent_in_every_tenth_round() -> None:
    sent = [round_num for round_num in range(40) if server.sends_helpers(CONFIG, round_num)]
    assert sent == [9, 19, 29, 39]
    every = make_config("lc-biid-c10", helper_interval=1)
    assert not server.sends_helpers(every, 0)  # nothing is known of anybody yet
    assert server.sends_helpers(every, 1)


def test_rounds_are_spread_evenly_over_streaming_steps() -> None:
    config = make_config("lc-simb-fmnist")
    assert [server.task_step(config, r) for r in (0, 9, 10, 99)] == [0, 0, 1, 9]
    assert {server.task_step(CONFIG, r) for r in range(200)} == {0}
    short = make_config("lc-simb-fmnist", num_rounds=12)
    assert [server.task_step(short, r) for r in range(12)] == [0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]


def test_the_best_model_is_the_first_of_the_lowest_validation_loss() -> None:
    config = make_config("lc-biid-c10", keep_best=True)
    state = server.initial_state(config, Params(np.zeros(1, np.float32), np.zeros(1, np.float32)))
    kept = []
    for round_num, loss in enumerate([3.0, 1.0, 2.0, 1.0, 0.5]):
        params = Params(np.array([round_num], np.float32), np.array([0.25], np.float32))
        state = state._replace(rounds_done=round_num + 1, params=params)
        state = server.end_round(config, state, [], {(GLOBAL, "valid"): Score(loss, 0.0)})
        assert state.best is not None
        kept.append((state.best.round_num, state.best.valid_loss, state.best.theta.tolist()))
    assert kept == [
        (0, 3.0, [0.25]),
        (1, 1.0, [1.25]),
        (1, 1.0, [1.25]),
        (1, 1.0, [1.25]),
        (4, 0.5, [4.25]),
    ]


def test_updates_are_lost_at_the_rate_that_was_asked_for_and_always_the_same_ones() -> None:
    config = make_config("lc-biid-c10", drop_rate=0.25)
    lost = [server.lost(config, round_num, range(100)) for round_num in range(100)]
    assert all(clients <= set(range(100)) for clients in lost)
    assert abs(sum(map(len, lost)) / 10_000 - 0.25) < 5 * np.sqrt(0.25 * 0.75 / 10_000)
    assert server.lost(config, 7, range(40, 60)) == lost[7] & set(range(40, 60)), "whoever else takes part"
    assert server.lost(CONFIG, 0, range(100)) == set()


@pytest.mark.parametrize("model", ["fedmatch", "fedavg-sl", "fedprox-sl", "semifl"])
def test_a_round_whose_updates_are_all_lost_changes_nothing_but_the_count(model: str) -> None:
    config = make_config("ls-biid-c10", model=model, drop_rate=0.5)
    start = server.initial_state(config, Params(np.array([1, 2], np.float32), np.array([3, 4], np.float32)))
    start = start._replace(embeddings={7: np.array([0.5, 0.5], np.float32)})
    one = np.ones(2, np.float32)
    result = ClientResult(2, None, None, 1, Cost(), Cost(), schedule.start(0.1, 5), 0.1, embedding=one)
    trained, store = [(Update(2, Params(one, one), 1), result)], MemoryStore()
    after, _ = server.fold(make_algorithm(config), start, store, trained, [], {2}, lambda state: state)
    store.end_round({})
    assert store.get(2) is None
    assert after == start._replace(rounds_done=1)
    assert after.params is start.params
    assert list(after.embeddings) == [7], "who was lost can't help anybody"
