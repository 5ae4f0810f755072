"""A client's round as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.algorithms.wire import full_broadcast
from fedmatch_tf.data import augment
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData, EvalData
from fedmatch_tf.federation.client import Client
from fedmatch_tf.federation.evaluation import Evaluation
from fedmatch_tf.federation.steps import train_epoch
from fedmatch_tf.federation.tasks import ClientTask, Losses, ServerTask
from fedmatch_tf.learners.batches import ClientRound, Minibatches
from fedmatch_tf.learners.fedmatch import FedMatch
from fedmatch_tf.learners.learner import Learner, Terms
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params
from tests.small_network import LABELS, Bench, X, Y


class Recorder(Learner):
    """A learner that notes what it is given and moves the model to known places."""

    def __init__(self, bench: Any) -> None:
        super().__init__(bench.config, bench.model, augment.identity)
        self.bench = bench

    def begin_round(self) -> None:
        self.begun = networks.read(self.bench.model).sigma.copy()

    def batches(self, given: ClientRound) -> Minibatches:
        self.given = given
        return super().batches(given)

    def client_steps(self, batch: Any) -> list[Any]:
        def to(params: Params) -> Terms:
            networks.write(self.bench.model, params)
            return Terms({"total": tf.constant(1.0)})

        return [lambda: to(self.bench.good), lambda: to(self.bench.bad)]


def test_a_clients_round_counts_examples_and_measures_labelled_accuracy_around_the_last_step_of_a_batch() -> None:
    bench: Any = Bench()
    # A model that is always right on labels of class 2, and one that never is: the last layer decides.
    shapes = networks.kernel_shapes(bench.model)
    last = int(np.prod(shapes[-1]))
    weights = np.zeros(shapes[-1], np.float32)

    def sure_of(label: int) -> Params:
        sigma = np.full(len(bench.before.sigma), 0.01, np.float32)
        head = weights.copy()
        head[:, label] = 1.0
        sigma[-last:] = head.ravel()
        return Params(sigma, np.zeros_like(sigma))

    bench.good, bench.bad = sure_of(2), sure_of(1)
    twos = Examples(X[:6], np.eye(4, dtype=np.float32)[[2] * 6])
    config = replace(bench.config, num_rounds=4, num_epochs_client=2, model="fedavg-uda", batch_size_client=3)
    bench.config = config
    learner = Recorder(bench)
    evaluation = Evaluation(config, bench.evaluator, EvalData(twos, twos))
    probe = np.zeros((1, 24, 24, 3), np.float32)
    client = Client(config, make_algorithm(config), bench.model, learner, evaluation, probe)
    data = ClientData(0, twos, Examples(X[6:16], Y[6:16]))
    task = ClientTask(1, 0, 0, full_broadcast(bench.before), Plateau(0.25, 9.0, 3), lr=0.5)
    result = client.update(task, data, labeled_acc_on=twos)
    assert (result.client, result.num_examples, result.num_unlabeled) == (0, 16, 20)
    assert result.embedding is None, "FedAvg has no use for it"
    assert result.losses == Losses(2.0)  # of a batch, whose steps have 1 each
    # Four batches of two steps: to a model that is always right, then with unlabelled images to one that never is.
    assert result.labeled_acc == (1.0, 0.0, (1.0, 0.0) * 4)
    np.testing.assert_array_equal(learner.begun, bench.before.sigma)
    # What the received model predicts, also when another one is in training.
    network = networks.build_network("alexnet", (24, 24, 3), 4, decomposed=False)
    networks.write(network, Params(bench.before.theta(config.l1_thres)))
    np.testing.assert_allclose(learner.given.predict(X[:5]), network(X[:5].astype(np.float32) / 255), atol=1e-5)
    assert result.c2s.sum == 1.0
    assert [score.split for score in result.scored] == ["valid"]
    assert result.theta is None


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_a_sigma_that_was_not_trained_does_not_cross(scenario: str) -> None:
    bench: Any = Bench()
    config = replace(bench.config, task=f"{scenario}-biid-c10", num_epochs_server=1, batch_size_server=1)
    algorithm = make_algorithm(config)
    evaluation = Evaluation(config, bench.evaluator, EvalData(Examples(X[:6], Y[:6]), Examples(X[:6], Y[:6])))
    moved = Params(bench.before.sigma + np.float32(0.5 * (scenario == "lc")), bench.before.psi + np.float32(0.5))
    bench.good = bench.bad = moved
    bench.config = config
    learner = Recorder(bench)
    client = Client(config, algorithm, bench.model, learner, evaluation, np.zeros((1, 24, 24, 3), np.float32))
    data = ClientData(0, Examples(X[:6], Y[:6]) if scenario == "lc" else None, Examples(X[6:16], Y[6:16]))
    result = client.update(ClientTask(1, 0, 0, full_broadcast(bench.before), Plateau(0.25, 9.0, 3), lr=0.5), data)
    assert (result.sigma is None) == (scenario == "ls")
    np.testing.assert_allclose(moved.sigma if result.sigma is None else result.sigma, moved.sigma)
    assert result.psi is not None
    np.testing.assert_allclose(result.psi, moved.parts[1])


def test_with_weak_views_an_epoch_and_its_helpers_see_the_same_images_and_each_epoch_others() -> None:
    bench: Any = Bench()
    bench.good = bench.bad = bench.before
    config = bench.config = replace(bench.config, weak="flip-crop", num_epochs_client=2, batch_size_client=3)
    labeled, unlabeled = Examples(X[:6], Y[:6]), Examples(X[6:16], Y[6:16])
    learner = Recorder(bench)
    evaluation = Evaluation(config, bench.evaluator, EvalData(labeled, labeled))
    client = Client(config, make_algorithm(config), bench.model, learner, evaluation, np.zeros((1, 24, 24, 3), "f4"))
    helper = -np.float32(2) * bench.before.psi
    broadcast = full_broadcast(bench.before)._replace(helpers=(helper,))

    def views_of(round_num: int) -> list[Any]:
        client.update(
            ClientTask(round_num, 0, 0, broadcast, Plateau(0.25, 9.0, 3), lr=0.0), ClientData(0, labeled, unlabeled)
        )
        return list(learner.given.views)

    first, second = views_of(1)
    network = networks.build_network("alexnet", (24, 24, 3), 4, decomposed=False)
    networks.write(network, Params(bench.before.sigma + helper))
    for view in (first, second):
        np.testing.assert_array_equal(view.data.unlabeled.y, unlabeled.y)
        np.testing.assert_array_equal(view.data.labeled.y, labeled.y)
        expected = network(view.data.unlabeled.x.astype(np.float32) / 255)
        np.testing.assert_allclose(view.helper_probs[0], expected, atol=1e-5)
    again, other = views_of(1)[0], views_of(2)[0]
    np.testing.assert_array_equal(first.data.unlabeled.x, again.data.unlabeled.x)
    for one, two in ((first, second), (first, other)):
        assert (one.data.unlabeled.x != two.data.unlabeled.x).any()
        assert (one.data.labeled.x != two.data.labeled.x).any()


def test_the_servers_epochs_see_weak_views_of_their_own() -> None:
    bench: Any = Bench(weak="flip-crop")
    seen = []

    class Server(Recorder):
        def server_step(self, x: Any, y: Any, share_done: Any, lr: Any) -> Terms:
            seen.append(x)
            return Terms({"total": tf.constant(1.0)})

    config = replace(bench.config, task="ls-biid-c10", num_epochs_server=2, batch_size_server=6)
    for when in ((1, 0), (1, 0), (1, 1), (2, 0)):
        task = ServerTask(*when, bench.before, lr=0.0)
        train_epoch(config, bench.model, Server(bench), Examples(X[:6], Y[:6]), task)
    np.testing.assert_array_equal(seen[0], seen[1])
    assert all((seen[0] != x).any() for x in (X[:6], *seen[2:]))


def log_loss(probs: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -log p(label)."""
    return float(-np.log(probs[np.arange(len(probs)), labels]).mean())


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_every_term_reaches_the_result_as_a_mean_over_the_batches(scenario: str) -> None:
    bench = Bench()
    # Ten images, those first that the network is sure of: two batches, and four confident rows in the first one.
    probs = bench.probs().astype(np.float64)
    order = np.argsort(-probs.max(axis=1))[:10]
    threshold = float(np.sort(probs.max(axis=1))[-5:-3].mean())
    settings: dict[str, Any] = {"batch_size_client": 3 if scenario == "lc" else 5, "num_epochs_client": 2}
    settings.update(task=f"{scenario}-biid-c10", num_epochs_server=1, batch_size_server=4, confidence=threshold)
    config = replace(bench.config, **settings)
    learner = FedMatch(config, bench.model, augment.identity)
    labeled, unlabeled = Examples(X[:6], Y[:6]), Examples(X[order], Y[order])
    evaluation = Evaluation(config, bench.evaluator, EvalData(labeled, labeled))
    client = Client(config, make_algorithm(config), bench.model, learner, evaluation, np.zeros((1, 24, 24, 3), "f4"))
    sigma, psi = bench.before.parts
    helper = -np.float32(2) * psi
    broadcast = full_broadcast(bench.before)._replace(helpers=(helper,))
    data = ClientData(0, labeled if scenario == "lc" else None, unlabeled)
    # At a rate of 0 the network stays what it is, so each batch can be worked out by itself.
    result = client.update(ClientTask(1, 0, 0, broadcast, Plateau(0.25, 9.0, 3), lr=0.0), data)
    network = networks.build_network("alexnet", (24, 24, 3), 4, decomposed=False)
    networks.write(network, Params(sigma + helper))
    helped = network(X[order].astype(np.float32) / 255).numpy().astype(np.float64)[:4]
    own = probs[order[:4]]
    votes = np.where(helped.argmax(axis=1) < own.argmax(axis=1), helped.argmax(axis=1), own.argmax(axis=1))
    expected = {
        "inter_client": 0.01 * (helped * np.log(helped / own)).sum(axis=1).mean() / 2,  # in one of two batches
        "pseudo": 0.01 * log_loss(own, votes) / 2,  # of one vote each, the lower class wins
        "l1": config.lambda_l1 * np.abs(psi).sum(dtype=np.float64),
        "l2": config.lambda_l2 * np.square(sigma - psi, dtype=np.float64).sum(),
    }
    if scenario == "lc":
        expected["supervised"] = 10 * (log_loss(probs[:3], LABELS[:3]) + log_loss(probs[3:6], LABELS[3:6])) / 2
    received = {name: value for name, value in result.losses._asdict().items() if value is not None}
    assert received == pytest.approx({**expected, "total": sum(expected.values())}, rel=1e-4)
    assert (result.num_unlabeled, result.confident_rows) == (20, 8)
    assert result.num_correct == 2 * (votes == LABELS[order[:4]]).sum()
    alone = client.update(ClientTask(1, 0, 0, full_broadcast(bench.before), Plateau(0.25, 9.0, 3), lr=0.0), data)
    assert alone.losses.inter_client is None, "without helpers"
    # The server's epoch, in batches of 4 and 2.
    epoch = train_epoch(config, bench.model, learner, labeled, ServerTask(1, 0, bench.before, lr=0.0))
    supervised = 10 * (log_loss(probs[:4], LABELS[:4]) + log_loss(probs[4:6], LABELS[4:6])) / 2
    assert epoch.losses == pytest.approx(Losses(total=supervised, supervised=supervised), rel=1e-4)
