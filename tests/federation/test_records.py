"""What is recorded of a round, with numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmatch_tf.algorithms.wire import Cost
from fedmatch_tf.federation.records import FIGURES, norms, round_record, scalars
from fedmatch_tf.federation.scoring import Scores
from fedmatch_tf.federation.tasks import GLOBAL, SERVER, ClientResult, Losses, Score, client_model
from fedmatch_tf.learners import schedule
from fedmatch_tf.networks.params import Params
from tests.conftest import ROOT
from tests.results.made_up_runs import record


def params(sigma: list[float], psi: list[float] | None = None) -> Params:
    return Params(np.array(sigma, np.float32), None if psi is None else np.array(psi, np.float32))


def result(client: int, losses: Losses, num_bytes: int) -> ClientResult:
    costs = Cost(1.0, 1.0, 0.5, 8), Cost(0.5, 0.25, 0.0, num_bytes)
    return ClientResult(client, None, None, 10, *costs, schedule.start(0.1, 5), 0.5, losses, 4, 2, 1)


SCORES: Scores = {(GLOBAL, "test"): Score(2.0, 0.25), (client_model(0), "valid"): Score(1.5, 0.5)}


def recorded(losses: list[Losses], server: Losses | None = None) -> Any:
    results = [result(client, each, 4 * client) for client, each in enumerate(losses)]
    scores: Scores = {**SCORES, (SERVER, "test"): Score(1.0, 0.75)}
    return round_record(0, 0, results, {}, scores, 1.0, server_losses=server)


def test_a_rounds_losses_are_means_over_its_clients_term_by_term() -> None:
    without_helpers = Losses(7.0, supervised=4.0, pseudo=3.0)
    with_helpers = Losses(6.0, supervised=2.0, pseudo=1.0, inter_client=3.0)
    found = recorded([without_helpers, with_helpers]).line()["train_loss"]
    assert found["total"] == 6.5
    assert (found["supervised"], found["pseudo"], found["inter_client"]) == (3.0, 2.0, 1.5)
    assert found["supervised"] + found["pseudo"] + found["inter_client"] == found["total"]
    assert found["l1"] is found["l2"] is found["proximal"] is None


def test_a_client_that_took_no_step_has_no_loss() -> None:
    found = recorded([Losses(), Losses(3.0, pseudo=3.0)])
    assert (found.train_loss.total, found.train_loss.pseudo) == (3.0, 3.0)
    assert [client.scores.train_loss for client in found.actors.clients] == [None, 3.0]
    assert set(recorded([Losses(), Losses()]).train_loss) == {None}


def test_the_servers_own_losses_come_on_top() -> None:
    clients = [Losses(1.0, pseudo=1.0), Losses(3.0, pseudo=3.0)]
    found = recorded(clients, Losses(2.0, supervised=2.0))
    assert (found.train_loss.total, found.train_loss.supervised, found.train_loss.pseudo) == (4.0, 2.0, 2.0)
    assert found.actors.server._asdict() == {
        "train_loss": 2.0,
        "valid_loss": None,
        "valid_acc": None,
        "test_loss": 1.0,
        "test_acc": 0.75,
    }


def test_costs_are_means_and_what_was_lost_cost_nothing_to_send_back() -> None:
    results = [result(0, Losses(), 8), result(1, Losses(), 16)]
    found = round_record(0, 0, results, {0: [1]}, SCORES, 1.23456, dropped=(1,))
    assert (found.s2c.sum, found.s2c.helpers, found.s2c.bytes) == (2.5, 0.5, 8)
    assert (found.c2s.sum, found.c2s.sigma, found.c2s.bytes) == (0.375, 0.25, 4)
    assert (found.confident, found.confident_rows, found.pseudo_label_acc) == (0.5, 4, 0.5)
    assert (found.valid_loss, found.test_acc, found.local_test_acc, found.seconds) == (1.5, 0.25, None, 1.235)
    assert found.line()["helpers"] == {"0": [1]}
    assert "actors" not in found.line()


def test_norms_and_the_cosine_between_sigmas_kernels_and_psi() -> None:
    found = norms(params([3.0, 4.0, 12.0], [4.0, 3.0]))  # the last of sigma is a scale, which has no psi
    assert found == pytest.approx((13.0, 5.0, 24 / 25))
    plain, zero = norms(params([3.0, 4.0])), norms(params([3.0, 4.0], [0.0, 0.0]))
    assert (plain.sigma, plain.psi, plain.cosine) == (5.0, None, None)
    assert (zero.sigma, zero.psi, zero.cosine) == (5.0, 0.0, None)
    many = np.full(10**6 + 1, 0.1, np.float32)  # in float32 such a sum would be off in its fourth digit
    assert norms(Params(many, -many)).sigma == pytest.approx(float(many[0]) * np.sqrt(10**6 + 1), rel=1e-12)
    assert norms(Params(many, -many)).cosine == pytest.approx(-1, rel=1e-12)


def test_only_what_was_measured_is_a_scalar() -> None:
    names = scalars(record(0, 0.5).line())
    assert (names["accuracy/global"], names["s2c/sum"]) == (0.5, 2.0)
    assert not {"accuracy/clients", "learning_rate_server", "round", "clients", "train_loss/total"} & set(names)
    more = scalars(record(0, 0.5, server_lr=0.25, train_loss={"total": 3, "l1": 0}, confident_rows=7).line())
    new = {name: value for name, value in more.items() if name not in names}
    assert new == {"learning_rate_server": 0.25, "train_loss/total": 3, "train_loss/l1": 0, "pseudo_labels/rows": 7}


def test_every_figure_is_documented() -> None:
    text = (ROOT / "docs" / "TRAINING.md").read_text()
    assert [figure.name for figure in FIGURES if f"`{figure.path[0]}`" not in text] == []
