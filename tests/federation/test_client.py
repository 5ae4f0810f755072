"""A client's round as a whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.algorithms.wire import full_broadcast
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData, EvalData
from fedmatch_tf.federation.client import Client
from fedmatch_tf.federation.evaluation import Evaluation
from fedmatch_tf.federation.tasks import ClientTask
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params
from tests.small_network import Bench, X, Y


class Recorder:
    """A learner that notes what it is given and moves the model to a known place."""

    uses_received, uses_partners = True, True

    def __init__(self, bench: Any, chosen: list[int] | None = None) -> None:
        self.bench, self.batches, self.chosen = bench, list[Any](), chosen

    def begin_round(self) -> None:
        self.begun = networks.read(self.bench.model).sigma.copy()

    def chosen_rows(self, received_probs: Any) -> Any:
        return None if self.chosen is None else np.array(self.chosen)

    def client_steps(self, batch: Any) -> list[Any]:
        self.batches.append(batch)
        good, bad = self.bench.good, self.bench.bad

        def to(params: Params) -> Any:
            networks.write(self.bench.model, params)
            return tf.constant(1.0)

        return [("s", lambda: to(good)), ("s", lambda: to(bad))]


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
    learner: Any = Recorder(bench)
    config = replace(bench.config, num_rounds=4, num_epochs_client=2, model="fedavg-uda", batch_size_client=3)
    evaluation = Evaluation(config, bench.evaluator, EvalData(twos, twos))
    probe = np.zeros((1, 24, 24, 3), np.float32)
    client = Client(config, make_algorithm(config), bench.model, learner, evaluation, probe)
    data = ClientData(0, twos, Examples(X[6:16], Y[6:16]))
    task = ClientTask(1, 0, 0, full_broadcast(bench.before), Plateau(0.25, 9.0, 3), lr=0.5)
    result = client.update(task, data, labeled_acc_on=twos)
    assert result.update.num_examples == 16
    assert result.update.embedding is None, "FedAvg has no use for it"
    # Four batches of two steps: to a model that is always right, then with unlabelled images to one that never is.
    assert result.labeled_acc == (1.0, 0.0, (1.0, 0.0) * 4)
    np.testing.assert_array_equal(learner.begun, bench.before.sigma)
    # Two epochs of two steps in round 1 of 4: (1 + 0, 1/4, 2/4, 3/4) / 4.
    assert [float(batch.share_done) for batch in learner.batches] == [0.25, 0.3125, 0.375, 0.4375]
    assert [len(batch.x_unlabeled) for batch in learner.batches] == [5, 5, 5, 5]
    assert {tuple(batch.seed) for batch in learner.batches} != {tuple(learner.batches[0].seed)}
    assert float(learner.batches[0].lr) == 0.5
    # What the received model predicts on the batch's images, and on as many others, drawn anew for every batch.
    network = networks.build_network("alexnet", (24, 24, 3), 4, decomposed=False)
    networks.write(network, Params(bench.before.theta(config.l1_thres), np.zeros(0, np.float32)))
    for batch in learner.batches:
        for x, probs in ((batch.x_unlabeled, batch.received_probs), (batch.x_partner, batch.partner_probs)):
            np.testing.assert_allclose(probs, network(x.astype(np.float32) / 255), atol=1e-5)
        assert all(any((image == other).all() for other in X[6:16]) for image in batch.x_partner)
    assert (learner.batches[0].x_partner != learner.batches[2].x_partner).any()
    assert result.update.upload.cost.sum == 1.0
    assert [score.split for score in result.scored] == ["valid"]
    assert result.theta is None


def test_batches_are_made_of_the_rows_that_a_learner_chose_and_partners_of_all() -> None:
    bench: Any = Bench()
    bench.good = bench.bad = bench.before
    config = replace(bench.config, task="ls-biid-c10", batch_size_client=2, batch_size_server=1, num_epochs_server=1)
    config = replace(config, num_epochs_client=5)
    examples = Examples(X[:6], Y[:6])
    evaluation = Evaluation(config, bench.evaluator, EvalData(examples, examples))
    learner: Any = Recorder(bench, chosen=[1, 4, 5, 7, 9])
    probe = np.zeros((1, 24, 24, 3), np.float32)
    client = Client(config, make_algorithm(config), bench.model, learner, evaluation, probe)
    task = ClientTask(0, 0, 0, full_broadcast(bench.before), Plateau(0.25, 9.0, 3), lr=0.5)
    result = client.update(task, ClientData(0, None, Examples(X[6:16], Y[6:16])))
    expected = evaluation.predict(bench.before.theta(config.l1_thres), X[6:16])
    assert len(learner.batches) == 15
    for number, batch in enumerate(learner.batches):
        rows = np.array(([1, 4], [5, 7], [9])[number % 3])
        np.testing.assert_array_equal(batch.x_unlabeled, X[6 + rows])
        np.testing.assert_array_equal(batch.y_unlabeled, Y[6 + rows])
        np.testing.assert_allclose(batch.received_probs, expected[rows], atol=1e-6)
    partners = [image for batch in learner.batches for image in batch.x_partner]
    assert any(not any((image == other).all() for other in X[[7, 10, 11, 13, 15]]) for image in partners)
    assert result.rows_left_out == 25  # five of ten, in each of five epochs


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_a_sigma_that_was_not_trained_does_not_cross(scenario: str) -> None:
    bench: Any = Bench()
    config = replace(bench.config, task=f"{scenario}-biid-c10", num_epochs_server=1, batch_size_server=1)
    algorithm = make_algorithm(config)
    evaluation = Evaluation(config, bench.evaluator, EvalData(Examples(X[:6], Y[:6]), Examples(X[:6], Y[:6])))
    moved = Params(bench.before.sigma + np.float32(0.5 * (scenario == "lc")), bench.before.psi + np.float32(0.5))
    bench.good = bench.bad = moved
    learner: Any = Recorder(bench)
    client = Client(config, algorithm, bench.model, learner, evaluation, np.zeros((1, 24, 24, 3), np.float32))
    data = ClientData(0, Examples(X[:6], Y[:6]) if scenario == "lc" else None, Examples(X[6:16], Y[6:16]))
    result = client.update(ClientTask(1, 0, 0, full_broadcast(bench.before), Plateau(0.25, 9.0, 3), lr=0.5), data)
    sigma, psi = result.update.upload.params
    assert len(sigma) == (len(bench.before.sigma) if scenario == "lc" else 0)
    np.testing.assert_allclose(psi, moved.psi)
