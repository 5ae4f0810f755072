"""The server's choices: clients, helpers, streaming steps."""

from __future__ import annotations

from fedmatch_tf.config import make_config
from fedmatch_tf.simulation import server

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
