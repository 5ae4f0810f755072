"""What becomes of uploads, and what is sent, sent back and kept, with results typed in by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.algorithms.algorithm import Algorithm, ServerState, Train, Update, make_algorithm
from fedmatch_tf.algorithms.wire import Cost
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.federation import server
from fedmatch_tf.federation.tasks import ClientResult
from fedmatch_tf.learners import schedule
from fedmatch_tf.networks.params import Params
from tests.stand_in import MemoryStore


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def unchanged(state: ServerState) -> ServerState:
    """A server without epochs."""
    return state


def folded(config: Config, state: ServerState, updates: Sequence[Update], train: Train = unchanged) -> ServerState:
    """The state after a round that ends with these."""
    plateau = schedule.start(0.1, 1)
    trained = [
        (update, ClientResult(update.client, None, None, 1, Cost(), Cost(), plateau, 0.1, embedding=vector(1, 2)))
        for update in updates
    ]
    planned = [update.num_examples for update in updates]
    return server.fold(make_algorithm(config), state, MemoryStore(), trained, planned, (), train)[0]


@pytest.mark.parametrize(
    ("task", "model", "sigma", "psi"),
    [
        ("lc-biid-c10", "fedmatch", [2, 4], [0.5, 1.5]),  # uniform, sigma and psi apart
        ("ls-biid-c10", "fedmatch", [9, 9], [0.5, 1.5]),  # the server alone trains sigma
        ("lc-biid-c10", "fedprox-uda", [2, 4], None),
        ("ls-biid-c10", "fedprox-uda", [2, 4], None),
        ("lc-biid-c10", "fedavg-sl", [2.5, 5], None),  # 10 and 30 examples: a quarter and three quarters
        ("lc-biid-c10", "local-sl", [9, 9], None),  # nothing is shared
    ],
)
def test_what_becomes_of_the_uploads(task: str, model: str, sigma: list[float], psi: list[float] | None) -> None:
    config = make_config(task, model=model)
    psis = (vector(9, 9), vector(0, 3), vector(1, 0)) if config.decomposed else (None,) * 3
    start = server.initial_state(config, Params(vector(9, 9), psis[0]))
    updates = [Update(4, Params(vector(1, 2), psis[1]), 10), Update(7, Params(vector(3, 6), psis[2]), 30)]
    after = folded(config, start, updates)
    assert after.params.sigma.tolist() == sigma
    assert (None if after.params.psi is None else after.params.psi.tolist()) == psi
    assert after.rounds_done == 1
    assert list(after.embeddings) == [4, 7]
    assert start.embeddings == {}


@pytest.mark.parametrize(("model", "sigma"), [("fedavg-labels", [2.5, 5]), ("fedprox-labels", [2, 4])])
def test_a_client_without_examples_to_learn_from_counts_in_no_mean(model: str, sigma: list[float]) -> None:
    config = make_config("lc-biid-c10", model=model)
    start = server.initial_state(config, Params(vector(9, 9)))
    idle = [Update(client, Params(vector(9, 9)), 0) for client in (1, 5, 9)]
    trained = [Update(4, Params(vector(1, 2)), 10), Update(7, Params(vector(3, 6)), 30)]
    for updates in ([*idle, *trained], [trained[0], *idle, trained[1]]):
        assert folded(config, start, updates).params.sigma.tolist() == sigma
    assert folded(config, start, idle).params.sigma.tolist() == [9, 9]


def test_without_decomposition_the_one_set_of_parameters_is_averaged_in_labels_at_server_too() -> None:
    config = make_config("ls-biid-c10", no_decomposition=True)
    start = server.initial_state(config, Params(vector(9, 9)))
    updates = [Update(0, Params(vector(1, 2)), 1), Update(1, Params(vector(3, 6)), 1)]
    assert folded(config, start, updates).params.sigma.tolist() == [2, 4]


HELD = Params(vector(0, 0, 0), vector(1, 1, 1))
STATE = ServerState(3, Params(vector(0, 0.5, 2), vector(1, 3, 1)), schedule.start(0.1, 1), {})
HELPER = Params(vector(7, 7, 7), vector(0, 1, 5))


def algorithm(model: str, task: str = "lc-biid-c10", **given: Any) -> Algorithm:
    return make_algorithm(make_config(task, model=model, **given))


def test_fedmatch_sends_differences_and_helpers_and_everything_to_a_newcomer() -> None:
    fedmatch = algorithm("fedmatch", delta_thres=0.9, l1_thres=0.0)
    newcomer = fedmatch.broadcast(STATE, None, [])
    assert newcomer.cost[:3] == (1.0, 1.0, 0.0)
    assert newcomer.params is STATE.params
    message = fedmatch.broadcast(STATE, HELD, [HELPER])
    # Of three elements, sigma changed by 2 in one, psi by 2 in one; of the helper's two that are not 0, one is new: 5.
    assert message.cost[:3] == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert [psi.tolist() for psi in message.helpers] == [[0, 1, 5]]


@pytest.mark.parametrize(("scenario", "sigma", "cost"), [("lc", [0, 0, 4], 1 / 3), ("ls", [0, 0, 0], 0.0)])
def test_fedmatch_gets_back_sigma_only_where_clients_train_it(scenario: str, sigma: list[float], cost: float) -> None:
    fedmatch = algorithm("fedmatch", f"{scenario}-biid-c10", delta_thres=0.9, l1_thres=0.0)
    upload = fedmatch.upload(Params(vector(0.5, 0, 4), vector(1, 3, 1.5)), HELD)
    assert upload.params.sigma.tolist() == sigma
    np.testing.assert_array_equal(upload.params.parts[1], [1, 3, 1])
    assert upload.cost[:3] == pytest.approx((cost, 1 / 3, 0.0))
    assert fedmatch.keep(upload.params) is upload.params


@pytest.mark.parametrize("model", ["fedavg-sl", "fedprox-sl"])
def test_averaging_sends_everything_both_ways_and_keeps_nothing(model: str) -> None:
    averaging, plain = algorithm(model), Params(vector(0, 0.5, 2))
    message = averaging.broadcast(STATE._replace(params=plain), HELD, [HELPER])
    assert (message.params, message.helpers, message.cost.sum, message.cost.num_bytes) == (plain, (), 1.0, 12)
    upload = averaging.upload(plain, HELD)
    assert (upload.params, upload.cost.sum, upload.cost.num_bytes) == (plain, 1.0, 12)
    assert averaging.keep(upload.params) is None


def test_local_clients_go_on_with_their_own_at_no_cost() -> None:
    local = algorithm("local-sl")
    assert local.broadcast(STATE, None, []).params is STATE.params
    assert local.broadcast(STATE, HELD, []).params is HELD
    upload = local.upload(HELPER, HELD)
    assert local.keep(upload.params) is HELPER
    assert local.broadcast(STATE, HELD, []).cost == upload.cost == Cost(0.0, 0.0, 0.0, 0)


def test_only_fedprox_pulls_back_and_only_fedmatch_embeds() -> None:
    names = ("fedmatch", "fedavg-sl", "fedprox-sl", "local-sl")
    assert [algorithm(name, mu=0.5).proximal_weight for name in names] == [0, 0, 0.5, 0]
    assert [algorithm(name).embeds for name in names] == [True, False, False, False]


def test_semifl_averages_those_who_had_something_to_learn_and_trains_at_the_server_last() -> None:
    semifl, start = algorithm("semifl", "ls-biid-c10"), STATE._replace(params=Params(vector(1, 1)))
    sent = {0: vector(3, 5), 1: vector(1, 1), 2: vector(5, 1)}  # client 1 sends back what it received
    updates = [Update(client, semifl.upload(Params(sigma), start.params).params, 9) for client, sigma in sent.items()]
    config = make_config("ls-biid-c10", model="semifl")
    assert folded(config, start, updates).params.sigma.tolist() == [4, 3]
    assert folded(config, start, updates[1:2]).params is start.params

    def train(state: ServerState) -> ServerState:
        return state._replace(params=Params(state.params.sigma + 10))

    averaging = make_config("ls-biid-c10", model="fedprox-sl")
    for one, before, after in ((config, [1, 1], [14, 13]), (averaging, [11, 11], [3, 7 / 3])):
        assert make_algorithm(one).before_clients(start, train).params.sigma.tolist() == before
        assert folded(one, start, updates, train).params.sigma.tolist() == pytest.approx(after)


@pytest.mark.parametrize(
    ("task", "model", "clients", "train", "expected"),
    [
        # Half of the last step is added: from 9 to a mean of 3 is -6; from 3 to 3 is 0, and half of -6.
        ("lc-biid-c10", "fedavg-sl", [3.0, 3.0], 0, [3.0, 0.0]),
        ("lc-biid-c10", "fedprox-sl", [3.0, 3.0], 0, [3.0, 0.0]),
        # The server's epochs add 10 before the clients' part, which is a step from there: from 19 to 3 is -16.
        ("ls-biid-c10", "fedavg-sl", [3.0, 3.0], 10, [3.0, -5.0]),  # from 13 to 3 is -10, and half of -16
        # SemiFL's come last: 3 + 10; then from 13 to 3 is -10, and half of -6: 0 + 10.
        ("ls-biid-c10", "semifl", [3.0, 3.0], 10, [13.0, 10.0]),
    ],
)
def test_the_servers_momentum_adds_to_the_step_from_what_clients_were_sent_to_their_mean(
    task: str, model: str, clients: list[float], train: float, expected: list[float]
) -> None:
    config = make_config(task, model=model, server_momentum=0.5)
    state = server.initial_state(config, Params(vector(9)))

    def epochs(state: ServerState) -> ServerState:
        return state._replace(params=Params(state.params.sigma + np.float32(train)))

    for client, after in zip(clients, expected):
        state = make_algorithm(config).before_clients(state, epochs)
        state = folded(config, state, [Update(0, Params(vector(client)), 1)], epochs)
        assert state.params.sigma.tolist() == [after]


def test_sigma_and_psi_have_a_momentum_each_at_the_server() -> None:
    config = make_config("lc-biid-c10", server_momentum=0.5)
    state = server.initial_state(config, Params(vector(9), vector(1)))
    for sigma, psi in (([3.0], [2.0]), ([0.0], [2.5])):
        state = folded(config, state, [Update(0, Params(vector(3), vector(2)), 1)])
        assert (state.params.sigma.tolist(), state.params.parts[1].tolist()) == (sigma, psi)
    assert [each.tolist() for each in state.memory] == [[-3.0], [0.5]]
    assert folded(config, state, []).params is state.params, "no update, no step"
