"""Selection, helpers, aggregation and learning rates, with results typed in by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedmatch_tf.config import make_config
from fedmatch_tf.core import schedule, seeding
from fedmatch_tf.core.helpers import Neighbours, choose_helpers, probe_image
from fedmatch_tf.core.params import Params, hard_threshold, weighted_mean
from fedmatch_tf.core.wire import Cost, Upload
from fedmatch_tf.simulation import server
from fedmatch_tf.simulation.loop import task_step
from fedmatch_tf.simulation.tasks import ClientResult

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


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def embeddings(**places: float) -> dict[int, np.ndarray]:
    return {int(name[1:]): np.array([value, 1 - value], np.float32) for name, value in places.items()}


def test_helpers_are_the_nearest_others_nearest_first() -> None:
    known = embeddings(c3=0.1, c7=0.15, c20=0.3, c5=0.9)
    assert choose_helpers([3], Neighbours(known), 2).get(3, ()) == (7, 20)
    assert choose_helpers([5], Neighbours(known), 2).get(5, ()) == (20, 7)
    assert choose_helpers([20], Neighbours(known), 1).get(20, ()) == (7,)


def test_fewer_known_clients_give_fewer_helpers() -> None:
    known = embeddings(c3=0.1, c7=0.15)
    assert choose_helpers([3], Neighbours(known), 2).get(3, ()) == (7,)
    assert choose_helpers([8], Neighbours(known), 2).get(8, ()) == ()  # never took part
    assert choose_helpers([3], Neighbours(embeddings(c3=0.1)), 2).get(3, ()) == ()
    assert choose_helpers([3], Neighbours(known), 0).get(3, ()) == ()


def test_a_client_is_never_its_own_helper_even_among_equals() -> None:
    same = {client: np.full(3, 1 / 3, np.float32) for client in range(6)}
    for client in same:
        chosen = choose_helpers([client], Neighbours(same), 2).get(client, ())
        assert len(chosen) == 2
        assert client not in chosen


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 60), st.integers(1, 4), st.sampled_from([2, 1000]))
def test_helpers_are_the_same_whenever_the_tree_was_made(seed: int, size: int, count: int, levels: int) -> None:
    rng = np.random.default_rng(seed)

    def some(clients: list[int]) -> dict[int, np.ndarray]:  # few levels: many at the same place
        return {client: (rng.integers(0, levels, 3) / levels).astype(np.float32) for client in clients}

    known = some(list(range(0, size, 2)))
    neighbours = Neighbours(known)
    for _ in range(6):
        changed = some(rng.choice(size, rng.integers(1, 4)).tolist())
        known.update(changed)
        neighbours.update(changed)
        for client in known:
            far = sorted((float(((known[other] - known[client]).astype(float) ** 2).sum()), other) for other in known)
            expected = [other for _, other in far if other != client][:count]
            assert neighbours.nearest(client, count) == tuple(expected)


def test_the_probe_image_is_noise_in_the_range_of_images() -> None:
    image = probe_image(seeding.stream(1, "probe image"), (32, 32, 3))
    assert image.shape == (1, 32, 32, 3)
    assert image.dtype == np.float32
    assert image.min() >= 0
    assert image.max() <= 1
    assert image.mean() == pytest.approx(0.497, abs=0.02)  # nearly symmetric around 125 / 255


def result(client: int, params: Params, num_examples: int) -> ClientResult:
    free = Cost(0.0, 0.0, 0.0, 0)
    embedding = np.full(2, client, np.float32)
    plateau = schedule.start(0.1, 1)
    return ClientResult(client, free, plateau, Upload(params, free), embedding, (), num_examples)


@pytest.mark.parametrize(
    ("task", "model", "sigma", "psi"),
    [
        ("lc-biid-c10", "fedmatch", [2, 4], [0.5, 1.5]),  # uniform, sigma and psi apart
        ("ls-biid-c10", "fedmatch", [9, 9], [0.5, 1.5]),  # the server alone trains sigma
        ("lc-biid-c10", "fedprox-uda", [2, 4], [0.5, 1.5]),
        ("ls-biid-c10", "fedprox-uda", [2, 4], [0.5, 1.5]),
        ("lc-biid-c10", "fedavg-sl", [2.5, 5], [0.75, 0.75]),  # 10 and 30 examples: a quarter and three quarters
        ("lc-biid-c10", "local-sl", [9, 9], [9, 9]),  # nothing is shared
    ],
)
def test_what_becomes_of_the_uploads(task: str, model: str, sigma: list[float], psi: list[float]) -> None:
    config = make_config(task, model=model)
    start = server.initial_state(config, Params(vector(9, 9), vector(9, 9)))
    results = [
        result(4, Params(vector(1, 2), vector(0, 3)), 10),
        result(7, Params(vector(3, 6), vector(1, 0)), 30),
    ]
    after = server.aggregate(config, start, results)
    assert after.params.sigma.tolist() == sigma
    assert after.params.psi.tolist() == psi
    assert after.rounds_done == 1
    assert list(after.embeddings) == [4, 7]
    assert start.embeddings == {}


def test_without_decomposition_the_one_set_of_parameters_is_averaged_in_labels_at_server_too() -> None:
    config = make_config("ls-biid-c10", no_decomposition=True)
    empty = np.zeros(0, np.float32)
    start = server.initial_state(config, Params(vector(9, 9), empty))
    after = server.aggregate(
        config, start, [result(0, Params(vector(1, 2), empty), 1), result(1, Params(vector(3, 6), empty), 1)]
    )
    assert after.params.sigma.tolist() == [2, 4]


def test_a_weighted_mean_follows_its_weights() -> None:
    mean = weighted_mean([vector(0, 4), vector(4, 0)], [1, 3])
    assert mean.tolist() == [3, 1]


def test_the_hard_threshold_takes_the_limit_itself() -> None:
    assert hard_threshold(vector(0.5, -0.5, 0.75, 0), 0.5).tolist() == [0, 0, 0.75, 0]


def test_lr_falls_after_patience_losses_that_are_not_lower() -> None:
    state = schedule.start(0.9, patience=2)
    lrs = []
    for loss in (5.0, 5.0, 4.0, 4.5, 4.0, 6.0, 6.0, 3.0, 3.5):
        state = schedule.advance(state, loss, patience=2, factor=3, lr_min=0.0)
        lrs.append(round(state.lr, 6))
    #        best  1 bad  best  1 bad  2 bad: falls  1 bad  2 bad: falls  best  1 bad
    assert lrs == [0.9, 0.9, 0.9, 0.9, 0.3, 0.3, 0.1, 0.1, 0.1]
    assert state.lowest == 3.0


def test_lr_never_falls_below_its_floor_and_nan_counts_as_not_lower() -> None:
    state = schedule.start(1.0, patience=1)
    for _ in range(5):
        state = schedule.advance(state, float("nan"), patience=1, factor=10, lr_min=0.05)
    assert state.lr == 0.05


def test_streams_differ_by_every_part_of_their_name() -> None:
    streams = [
        seeding.stream(1, "a", 0),
        seeding.stream(2, "a", 0),
        seeding.stream(1, "b", 0),
        seeding.stream(1, "a", 1),
        seeding.stream(1, "a", 0, 0),
        seeding.stream(1, "a"),
    ]
    draws = [stream.integers(2**60) for stream in streams]
    assert len(set(draws)) == len(streams)
    assert draws[0] == seeding.stream(1, "a", 0).integers(2**60)


def test_rounds_are_spread_evenly_over_streaming_steps() -> None:
    config = make_config("lc-simb-fmnist")
    assert [task_step(config, r) for r in (0, 9, 10, 99)] == [0, 0, 1, 9]
    assert {task_step(CONFIG, r) for r in range(200)} == {0}
    short = make_config("lc-simb-fmnist", num_rounds=12)
    assert [task_step(short, r) for r in range(12)] == [0, 0, 1, 2, 3, 4, 5, 5, 6, 7, 8, 9]
