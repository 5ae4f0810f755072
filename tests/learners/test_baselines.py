"""The baselines' steps against losses and gradients worked out here, and FedMatch without decomposition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.config import make_config
from fedmatch_tf.learners.learner import Batch, make_learner
from fedmatch_tf.learners.semifl import mixture_share
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params
from tests.conftest import made_up_images

X, LABELS = made_up_images(24, num_classes=4, size=24)
Y = np.eye(4, dtype=np.float32)[LABELS]
LABELED, UNLABELED = slice(0, 8), slice(8, 24)
LR = 0.01
CE = tf.keras.losses.categorical_crossentropy


class Bench:
    """A small plain network and a method's steps on it; the strong view is the image upside down."""

    def __init__(self, model: str, task: str = "lc-biid-c10", **given: Any) -> None:
        self.config = make_config(task, model=model, arch="alexnet", **given)
        self.model = networks.build_network("alexnet", (24, 24, 3), 4, decomposed=self.config.decomposed)
        shapes = networks.kernel_shapes(self.model)
        self.before = networks.from_kernels(
            networks.independent_kernels(shapes, np.random.default_rng(1)), 0.2, self.config.decomposed
        )
        networks.write(self.model, self.before)
        upside_down = lambda x, rows, seed: tf.gather(x, rows)[:, ::-1]  # noqa: E731
        proximal_weight = make_algorithm(self.config).proximal_weight
        self.learner = make_learner(self.config, self.model, upside_down, proximal_weight)
        self.learner.begin_round()

    def run(self, share_done: float = 0.0, labeled: bool = True, unlabeled: bool = True, **more: Any) -> list[Any]:
        batch = Batch(
            X[LABELED] if labeled else None,
            Y[LABELED] if labeled else None,
            X[UNLABELED] if unlabeled else None,
            Y[UNLABELED] if unlabeled else None,
            np.zeros((0, 16, 4), np.float32),
            np.array([1, 2], np.int32),
            tf.constant(share_done),
            tf.constant(LR),
            **more,
        )
        return [(kind, step()) for kind, step in self.learner.client_steps(batch)]

    def probs(self, x: np.ndarray) -> tf.Tensor:
        return self.model(tf.cast(x, tf.float32) / 255, training=True)

    def moved(self) -> np.ndarray:
        """By how much the parameters went, over the learning rate."""
        result: np.ndarray = (self.before.sigma - networks.read(self.model).sigma) / LR
        return result

    def gradient(self, loss: Any) -> tuple[float, np.ndarray]:
        """(value, gradient) of a loss at the starting parameters."""
        networks.write(self.model, self.before)
        with tf.GradientTape() as tape:
            value = loss()
        parts = tape.gradient(value, networks.sigmas(self.model))
        return float(value), np.concatenate([part.numpy().ravel() for part in parts])


def assert_step(bench: Bench, loss: Any, value: float, moved: np.ndarray) -> None:
    expected, gradient = bench.gradient(loss)
    assert value == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(moved, gradient, atol=2e-4 * float(np.abs(gradient).max()))


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_supervised_learning_takes_all_images_with_their_true_labels(algorithm: str) -> None:
    bench = Bench(f"{algorithm}-sl")
    ((kind, loss),) = bench.run()
    assert kind == "s"
    moved = bench.moved()
    assert_step(bench, lambda: 10 * tf.reduce_mean(CE(Y, bench.probs(X))), float(loss), moved)


def test_supervised_learning_in_labels_at_server_uses_the_clients_true_labels() -> None:
    bench = Bench("fedavg-sl", "ls-biid-c10")
    ((_, loss),) = bench.run(labeled=False)
    moved = bench.moved()
    assert_step(bench, lambda: 10 * tf.reduce_mean(CE(Y[UNLABELED], bench.probs(X[UNLABELED]))), float(loss), moved)


def uda_unlabeled(bench: Bench) -> tf.Tensor:
    weak, strong = bench.probs(X[UNLABELED]).numpy(), bench.probs(X[UNLABELED][:, ::-1])
    return tf.reduce_mean(tf.reduce_sum(weak * tf.math.log(weak / strong), axis=-1))


def test_uda_anneals_labels_and_pulls_the_strong_view_to_the_plain_one() -> None:
    bench = Bench("fedavg-uda")
    right = bench.probs(X[LABELED]).numpy()[np.arange(8), LABELS[LABELED]]
    # A share_done whose threshold exp(5 (p - 1)) 3/4 + 1/4 lies between the fourth and the fifth of the eight.
    middle = np.sort(right)[3:5].mean()
    share_done = 1 + np.log((middle - 0.25) / 0.75) / 5 if middle > 0.25 else 0.0
    threshold = np.exp(5 * (share_done - 1)) * 0.75 + 0.25
    kept = right <= threshold
    ((kind, terms),) = bench.run(share_done)
    moved = bench.moved()

    def loss() -> tf.Tensor:
        rows = CE(Y[LABELED][kept], bench.probs(X[LABELED][kept]))
        return 10 * tf.reduce_mean(rows) + uda_unlabeled(bench)

    assert 0 < kept.sum() <= 8
    assert kind == "u"
    assert_step(bench, loss, float(terms.loss), moved)
    assert terms.kept.numpy().all()


def test_uda_at_a_client_without_labels_has_the_consistency_alone() -> None:
    bench = Bench("fedavg-uda", "ls-biid-c10", lambda_u=3.0)
    ((_, terms),) = bench.run(labeled=False)
    moved = bench.moved()
    assert_step(bench, lambda: 3 * uda_unlabeled(bench), float(terms.loss), moved)


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_fixmatch_learns_confident_labels_on_the_strong_view(scenario: str) -> None:
    threshold = float(np.median(Bench("fedavg-fixmatch").probs(X[UNLABELED]).numpy().max(axis=1)))
    bench = Bench("fedavg-fixmatch", f"{scenario}-biid-c10", confidence=threshold)
    ((_, terms),) = bench.run(labeled=scenario == "lc")
    moved = bench.moved()
    networks.write(bench.model, bench.before)
    weak = bench.probs(X[UNLABELED]).numpy()
    kept, labels = weak.max(axis=1) >= np.float32(threshold), np.eye(4, dtype=np.float32)[weak.argmax(axis=1)]

    def loss() -> tf.Tensor:
        rows = CE(labels[kept], bench.probs(X[UNLABELED][kept][:, ::-1]))
        supervised = 10 * tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED]))) if scenario == "lc" else 0.0
        return supervised + tf.reduce_sum(rows) / 16  # over all rows, confident or not

    np.testing.assert_array_equal(terms.kept.numpy(), kept)
    assert 0 < kept.sum() < 16
    assert_step(bench, loss, float(terms.loss), moved)


def test_fixmatch_without_a_confident_row_learns_the_labels_alone() -> None:
    bench = Bench("fedavg-fixmatch", confidence=1.0)
    ((_, terms),) = bench.run()
    moved = bench.moved()
    assert not terms.kept.numpy().any()
    assert_step(bench, lambda: 10 * tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED]))), float(terms.loss), moved)


@pytest.mark.parametrize("learner", ["sl", "uda", "fixmatch"])
def test_fedprox_pulls_back_to_what_was_received(learner: str) -> None:
    near, far = Bench(f"fedprox-{learner}", mu=2.0), Bench(f"fedavg-{learner}", mu=2.0)
    ((_, first), (_, plain)) = (*near.run(), *far.run())

    def loss(terms: Any) -> float:
        return float(terms.loss if hasattr(terms, "loss") else terms)

    assert loss(first) == pytest.approx(loss(plain), rel=1e-6)  # at the received parameters the term is 0
    np.testing.assert_allclose(near.moved(), far.moved(), atol=1e-3 * float(np.abs(far.moved()).max()))
    distance = np.square(near.before.sigma - networks.read(near.model).sigma, dtype=np.float64).sum()
    ((_, second), (_, second_plain)) = (*near.run(), *far.run())
    # mu / 2 |theta - received|^2 = distance: the only difference between the two losses.
    assert loss(second) - loss(second_plain) == pytest.approx(distance, rel=0.05, abs=2e-4)
    # What the next client receives is the new reference, so the two losses are equal again.
    networks.write(far.model, networks.read(near.model))
    near.learner.begin_round()
    ((_, third), (_, third_plain)) = (*near.run(), *far.run())
    assert loss(third) == pytest.approx(loss(third_plain), rel=1e-6)


def test_the_servers_step_has_no_proximal_term_and_weight_decay_where_it_is_set() -> None:
    bench = Bench("fedprox-fixmatch", "ls-biid-c10", mu=5.0, wd=0.1)
    elsewhere = Params(np.float32(1.1) * bench.before.sigma, bench.before.psi)
    networks.write(bench.model, elsewhere)
    value = float(bench.learner.server_step(X[LABELED], Y[LABELED], tf.constant(0.0), tf.constant(LR)))
    networks.write(bench.model, elsewhere)
    expected = 10 * float(tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED]))))
    expected += 0.1 * float(np.square(elsewhere.sigma, dtype=np.float64).sum())
    assert value == pytest.approx(expected, rel=1e-4)


def test_labels_alone_are_learnt_when_the_unlabelled_images_are_used_up() -> None:
    for model in ("fedavg-uda", "fedprox-fixmatch", "fedavg-sl", "fedmatch"):
        bench = Bench(model)
        ((kind, _),) = bench.run(share_done=1.0, unlabeled=False)
        assert kind == "s"


def test_fedmatch_without_decomposition_trains_one_set_with_both_losses() -> None:
    threshold = float(np.median(Bench("fedmatch", no_decomposition=True).probs(X[UNLABELED]).numpy().max(axis=1)))
    bench = Bench("fedmatch", no_decomposition=True, confidence=threshold)
    (_, (kind, terms)) = bench.run()
    after = networks.read(bench.model)
    assert kind == "u"
    assert len(after.psi) == 0
    # The labelled step first, then the unlabelled one, each on the same parameters; no penalties without a psi.
    _, gradient = bench.gradient(lambda: 10 * tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED]))))
    middle = bench.before.sigma - LR * gradient
    networks.write(bench.model, Params(middle, after.psi))
    weak = bench.probs(X[UNLABELED]).numpy()
    kept, labels = weak.max(axis=1) >= np.float32(threshold), np.eye(4, dtype=np.float32)[weak.argmax(axis=1)]
    with tf.GradientTape() as tape:
        loss = 0.01 * tf.reduce_mean(CE(labels[kept], bench.probs(X[UNLABELED][kept][:, ::-1])))
    second = np.concatenate([part.numpy().ravel() for part in tape.gradient(loss, networks.sigmas(bench.model))])
    assert float(terms.loss) == pytest.approx(float(loss), rel=1e-3)
    np.testing.assert_allclose(after.sigma, middle - LR * second, atol=1e-6)


def predictions(seed: int) -> np.ndarray:
    """What a received model might say of the sixteen unlabelled images."""
    return np.random.default_rng(seed).dirichlet(np.ones(4), 16).astype(np.float32)


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_global_pseudo_labels_come_from_the_received_model_whatever_the_local_one_says(algorithm: str) -> None:
    received = predictions(3)
    kept = received.max(axis=1) >= 0.6
    assert 0 < kept.sum() < 16
    bench = Bench(f"{algorithm}-gpl", confidence=0.6)
    ((kind, terms),) = bench.run(received_probs=received)
    moved = bench.moved()
    targets = np.eye(4, dtype=np.float32)[received.argmax(axis=1)]

    def loss() -> tf.Tensor:
        strong = bench.probs(X[UNLABELED][kept][:, ::-1])
        supervised = tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED])))
        return 10 * supervised + tf.reduce_sum(CE(targets[kept], strong)) / 16

    assert kind == "u"
    assert terms.kept.numpy().tolist() == kept.tolist()
    assert terms.pseudo_labels.numpy()[kept].tolist() == received.argmax(axis=1)[kept].tolist()
    assert_step(bench, loss, float(terms.loss), moved)


def test_semifl_fixes_confident_labels_and_mixes_them_with_other_images() -> None:
    received, others = predictions(3), predictions(4)
    partners = np.random.default_rng(5).permutation(X[UNLABELED])
    bench = Bench("semifl", "ls-biid-c10", confidence=0.6)
    ((_, terms),) = bench.run(labeled=False, received_probs=received, x_partner=partners, partner_probs=others)
    moved = bench.moved()
    share = float(mixture_share(tf.constant([1, 2], tf.int32)))
    own, other = (np.eye(4, dtype=np.float32)[probs.argmax(axis=1)] for probs in (received, others))
    mixed = share * X[UNLABELED].astype(np.float32) + (1 - share) * partners.astype(np.float32)

    def loss() -> tf.Tensor:
        fix = tf.reduce_mean(CE(own, bench.probs(X[UNLABELED][:, ::-1])))
        probs = bench.probs(mixed)
        mix = share * tf.reduce_mean(CE(own, probs)) + (1 - share) * tf.reduce_mean(CE(other, probs))
        return fix + mix

    assert_step(bench, loss, float(terms.loss), moved)
    assert terms.kept.numpy().all()
    sure = [[0.1, 0.6, 0.2, 0.1], [0.3, 0.3, 0.2, 0.2], [0.01, 0.01, 0.01, 0.97], [0.59, 0.41, 0, 0]]
    chosen = bench.learner.chosen_rows(np.array(sure, np.float32))
    assert chosen is not None
    assert chosen.tolist() == [0, 2]


def test_a_mixtures_share_is_drawn_from_beta_075_075() -> None:
    """Of Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)) = 0.1."""
    shares = np.array([float(mixture_share(tf.constant([seed, 7], tf.int32))) for seed in range(3000)])
    assert abs(shares.mean() - 0.5) < 5 * np.sqrt(0.1 / 3000)
    assert shares.var() == pytest.approx(0.1, rel=0.1)
    assert ((shares > 0) & (shares < 1)).all()
