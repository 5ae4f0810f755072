"""The server's choices: clients, helpers, streaming steps."""

from __future__ import annotations

import numpy as np

from fedmatch_tf.config import make_config
from fedmatch_tf.core.params import Params
from fedmatch_tf.simulation import server
from fedmatch_tf.simulation.tasks import GLOBAL, Score

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
