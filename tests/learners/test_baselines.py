"""The baselines' steps against losses and gradients worked out here, and FedMatch without decomposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.base.plugins import learners
from fedmatch_tf.config import make_config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.learners.batches import Batch, ClientRound, View
from fedmatch_tf.learners.learner import ABSENT, Terms
from fedmatch_tf.learners.sage import soft_targets
from fedmatch_tf.learners.semifl import mixture_share
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params
from tests.conftest import made_up_images
from tests.small_network import numbers

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
        make = learners()[self.config.learner].make
        self.learner = make(self.config, self.model, upside_down, proximal_weight)
        self.learner.begin_round()

    def run(self, share_done: float = 0.0, labeled: bool = True, unlabeled: bool = True, *extra: Any) -> list[Terms]:
        batch = Batch(
            X[LABELED] if labeled else None,
            Y[LABELED] if labeled else None,
            X[UNLABELED] if unlabeled else None,
            Y[UNLABELED] if unlabeled else None,
            rows=slice(0, 16),
            helper_probs=np.zeros((0, 16, 4), np.float32),
            seed=np.array([1, 2], np.int32),
            rng=np.random.default_rng(0),
            share_done=np.float32(share_done),
            lr=np.float32(LR),
            extra=extra,
        )
        return [step() for step in self.learner.client_steps(batch)]

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


def assert_step(bench: Bench, step: Terms, **expected: Any) -> None:
    """The step went down the gradient of the sum of these losses, and said what each of them is."""
    moved = bench.moved()
    value, gradient = bench.gradient(lambda: tf.add_n([loss() for loss in expected.values()]))
    terms = {name: float(loss()) for name, loss in expected.items()}  # at the starting parameters
    assert numbers(step) == pytest.approx({**terms, "total": value}, rel=1e-4)
    np.testing.assert_allclose(moved, gradient, atol=2e-4 * float(np.abs(gradient).max()))


def cross_entropy(bench: Bench, weight: float, x: np.ndarray, y: np.ndarray) -> Callable[[], tf.Tensor]:
    return lambda: weight * tf.reduce_mean(CE(y, bench.probs(x)))


@pytest.mark.parametrize("algorithm", ["fedavg", "local"])
def test_supervised_learning_takes_all_images_with_their_true_labels(algorithm: str) -> None:
    bench = Bench(f"{algorithm}-sl")
    (step,) = bench.run()
    assert step.kept is None, "there is no pseudo-label to count"
    assert_step(bench, step, supervised=cross_entropy(bench, 10, X, Y))


def test_supervised_learning_in_labels_at_server_uses_the_clients_true_labels() -> None:
    bench = Bench("fedavg-sl", "ls-biid-c10")
    (step,) = bench.run(labeled=False)
    assert_step(bench, step, supervised=cross_entropy(bench, 10, X[UNLABELED], Y[UNLABELED]))


def test_labels_alone_take_no_unlabelled_image_into_a_step_or_a_figure() -> None:
    def predict(x: np.ndarray) -> np.ndarray:
        raise AssertionError("expected no pass over unlabelled images")

    bench = Bench("fedavg-labels", batch_size_client=4, num_epochs_client=3)
    made = bench.learner.batches(client_round(predict))
    assert (made.num_batches, made.num_unlabeled) == (6, 0)
    batches = list(made.batches)
    assert [batch.x_unlabeled for batch in batches] == [None] * 6
    np.testing.assert_array_equal(
        np.concatenate([batch.x_labeled for batch in batches]), np.tile(X[LABELED], (3, 1, 1, 1))
    )
    (step,) = (take() for take in bench.learner.client_steps(batches[1]._replace(lr=np.float32(LR))))
    assert step.kept is None
    assert_step(bench, step, supervised=cross_entropy(bench, 10, X[4:8], Y[4:8]))
    assert bench.learner.num_examples(client_round(predict).views[0].data) == 8
    unlabeled = client_round(predict, labeled=False)
    nothing = bench.learner.batches(unlabeled)
    assert (nothing.num_batches, nothing.num_unlabeled, list(nothing.batches)) == (0, 0, [])
    assert bench.learner.num_examples(unlabeled.views[0].data) == 0


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
    (step,) = bench.run(share_done)
    assert 0 < kept.sum() <= 8
    supervised = cross_entropy(bench, 10, X[LABELED][kept], Y[LABELED][kept])
    assert_step(bench, step, supervised=supervised, pseudo=lambda: uda_unlabeled(bench))
    assert step.kept.numpy().all()


def test_uda_at_a_client_without_labels_has_the_consistency_alone() -> None:
    bench = Bench("fedavg-uda", "ls-biid-c10", lambda_u=3.0)
    (step,) = bench.run(labeled=False)
    assert_step(bench, step, pseudo=lambda: 3 * uda_unlabeled(bench))


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_fixmatch_learns_confident_labels_on_the_strong_view(scenario: str) -> None:
    threshold = float(np.median(Bench("fedavg-fixmatch").probs(X[UNLABELED]).numpy().max(axis=1)))
    bench = Bench("fedavg-fixmatch", f"{scenario}-biid-c10", confidence=threshold)
    weak = bench.probs(X[UNLABELED]).numpy()
    kept, labels = weak.max(axis=1) >= np.float32(threshold), np.eye(4, dtype=np.float32)[weak.argmax(axis=1)]
    (step,) = bench.run(labeled=scenario == "lc")

    def pseudo() -> tf.Tensor:
        rows = CE(labels[kept], bench.probs(X[UNLABELED][kept][:, ::-1]))
        return tf.reduce_sum(rows) / 16  # over all rows, confident or not

    np.testing.assert_array_equal(step.kept.numpy(), kept)
    assert 0 < kept.sum() < 16
    supervised = {"supervised": cross_entropy(bench, 10, X[LABELED], Y[LABELED])} if scenario == "lc" else {}
    assert_step(bench, step, **supervised, pseudo=pseudo)


def test_fixmatch_without_a_confident_row_learns_the_labels_alone() -> None:
    bench = Bench("fedavg-fixmatch", confidence=1.0)
    (step,) = bench.run()
    assert not step.kept.numpy().any()
    assert np.isnan(numbers(step)["pseudo"]), "it did not occur"
    rest = {name: loss for name, loss in step.losses.items() if name != "pseudo"}
    assert_step(bench, Terms(rest), supervised=cross_entropy(bench, 10, X[LABELED], Y[LABELED]))


@pytest.mark.parametrize("learner", ["sl", "uda", "fixmatch"])
def test_fedprox_pulls_back_to_what_was_received(learner: str) -> None:
    near, far = Bench(f"fedprox-{learner}", mu=2.0, wd=0.1), Bench(f"fedavg-{learner}", mu=2.0, wd=0.1)
    (first, plain) = (numbers(step) for bench in (near, far) for step in bench.run())
    assert first == pytest.approx({**plain, "proximal": 0.0}, rel=1e-6, nan_ok=True)  # at the received parameters
    np.testing.assert_allclose(near.moved(), far.moved(), atol=1e-3 * float(np.abs(far.moved()).max()))
    here = networks.read(near.model)
    networks.write(far.model, here)
    (second, plain) = (numbers(step) for bench in (near, far) for step in bench.run())
    # mu / 2 |theta - received|^2 and wd |theta|^2
    distance = np.square(near.before.sigma - here.sigma, dtype=np.float64).sum()
    decay = 0.1 * np.square(here.sigma, dtype=np.float64).sum()
    assert second["proximal"] == pytest.approx(distance, rel=1e-4)
    assert second["l2"] == pytest.approx(decay, rel=1e-4)
    assert second["total"] == pytest.approx(plain["total"] + distance, rel=1e-5)
    assert plain.keys() == second.keys() - {"proximal"}
    # What the next client receives is the new reference.
    near.learner.begin_round()
    (third,) = near.run()
    assert numbers(third)["proximal"] == 0


def test_the_servers_step_has_no_proximal_term_and_weight_decay_where_it_is_set() -> None:
    bench = Bench("fedprox-fixmatch", "ls-biid-c10", mu=5.0, wd=0.1)
    elsewhere = Params(np.float32(1.1) * bench.before.sigma)
    networks.write(bench.model, elsewhere)
    step = bench.learner.server_step(X[LABELED], Y[LABELED], np.float32(0), np.float32(LR))
    networks.write(bench.model, elsewhere)
    supervised = 10 * float(tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED]))))
    decay = 0.1 * float(np.square(elsewhere.sigma, dtype=np.float64).sum())
    expected = {"supervised": supervised, "l2": decay, "total": supervised + decay}
    assert numbers(step) == pytest.approx(expected, rel=1e-4)


def test_labels_alone_are_learnt_when_the_unlabelled_images_are_used_up() -> None:
    for model in ("fedavg-uda", "fedprox-fixmatch", "fedavg-sl", "fedmatch"):
        bench = Bench(model)
        (step,) = bench.run(share_done=1.0, unlabeled=False)
        assert (step.kept, "pseudo" in step.losses) == (None, False)


def test_fedmatch_without_decomposition_trains_one_set_with_both_losses() -> None:
    threshold = float(np.median(Bench("fedmatch", no_decomposition=True).probs(X[UNLABELED]).numpy().max(axis=1)))
    bench = Bench("fedmatch", no_decomposition=True, confidence=threshold)
    (_, step) = bench.run()
    after = networks.read(bench.model)
    assert after.psi is None
    # The labelled step first, then the unlabelled one, each on the same parameters; no penalties without a psi.
    _, gradient = bench.gradient(lambda: 10 * tf.reduce_mean(CE(Y[LABELED], bench.probs(X[LABELED]))))
    middle = bench.before.sigma - LR * gradient
    networks.write(bench.model, Params(middle))
    weak = bench.probs(X[UNLABELED]).numpy()
    kept, labels = weak.max(axis=1) >= np.float32(threshold), np.eye(4, dtype=np.float32)[weak.argmax(axis=1)]
    with tf.GradientTape() as tape:
        loss = 0.01 * tf.reduce_mean(CE(labels[kept], bench.probs(X[UNLABELED][kept][:, ::-1])))
    second = np.concatenate([part.numpy().ravel() for part in tape.gradient(loss, networks.sigmas(bench.model))])
    expected = {"inter_client": ABSENT, "pseudo": float(loss), "total": float(loss)}
    assert numbers(step) == pytest.approx(expected, rel=1e-3, nan_ok=True)
    np.testing.assert_allclose(after.sigma, middle - LR * second, atol=1e-6)


def client_round(predict: Callable[[np.ndarray], np.ndarray], labeled: bool = True) -> ClientRound:
    """Of a client that holds all images, whose received model predicts this."""
    data = ClientData(0, Examples(X[LABELED], Y[LABELED]) if labeled else None, Examples(X[UNLABELED], Y[UNLABELED]))
    return ClientRound(0, 0, LR, [View(data, np.zeros((0, 16, 4), np.float32))], predict)


def predictions(seed: int) -> np.ndarray:
    """What a received model might say of the sixteen unlabelled images."""
    return np.random.default_rng(seed).dirichlet(np.ones(4), 16).astype(np.float32)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox"])
def test_global_pseudo_labels_come_from_the_received_model_whatever_the_local_one_says(algorithm: str) -> None:
    received = predictions(3)
    kept = received.max(axis=1) >= 0.6
    assert 0 < kept.sum() < 16
    bench = Bench(f"{algorithm}-gpl", confidence=0.6)
    made = bench.learner.batches(client_round(lambda x: received))
    (batch,) = made.batches
    (step,) = (take() for take in bench.learner.client_steps(batch))
    targets = np.eye(4, dtype=np.float32)[received.argmax(axis=1)]

    def pseudo() -> tf.Tensor:
        return tf.reduce_sum(CE(targets[kept], bench.probs(X[UNLABELED][kept][:, ::-1]))) / 16

    assert step.kept.numpy().tolist() == kept.tolist()
    assert step.labels.numpy().tolist() == received.argmax(axis=1).tolist()
    rest = Terms({name: loss for name, loss in step.losses.items() if name != "proximal"})  # 0 at what was received
    assert_step(bench, rest, supervised=cross_entropy(bench, 10, X[LABELED], Y[LABELED]), pseudo=pseudo)


def sure_of(*classes: int, count: int, confidence: float = 0.8) -> np.ndarray:
    """Predictions of three classes: these ones with that confidence, and the others of so many images below it."""
    rows = np.full((count, 3), (0.4, 0.3, 0.3), np.float32)
    for row, label in enumerate(classes):
        rows[row] = (1 - confidence) / 2
        rows[row, label] = confidence
    return rows


def test_flexmatchs_thresholds_are_lower_for_classes_of_fewer_confident_images() -> None:
    flexmatch: Any = Bench("fedavg-flexmatch", confidence=0.8).learner
    # Four confident images of class 0, two of class 1, none of 2; as many as of class 0 are unsure: beta 1, 1/2, 0.
    few = flexmatch.thresholds(sure_of(0, 0, 1, 0, 1, 0, count=10))
    np.testing.assert_allclose(few, [0.8, 0.8 / 3, 0], rtol=1e-6)
    # Eight are unsure: beta 1/2, 1/4, 0.
    many = flexmatch.thresholds(sure_of(0, 0, 1, 0, 1, 0, count=14))
    np.testing.assert_allclose(many, [0.8 / 3, 0.8 / 7, 0], rtol=1e-6)
    assert flexmatch.thresholds(sure_of(count=5)).tolist() == [0, 0, 0]


def test_freematchs_thresholds_follow_the_mean_confidence_and_the_mean_prediction() -> None:
    freematch: Any = Bench("fedavg-freematch").learner
    probs = np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1]], np.float32)
    # Mean confidence 0.65; mean prediction 0.4, 0.5, 0.1, which is 0.8, 1 and 0.2 of its largest.
    np.testing.assert_allclose(freematch.thresholds(probs), [0.52, 0.65, 0.13], rtol=1e-6)


@pytest.mark.parametrize("learner", ["flexmatch", "freematch"])
def test_a_row_counts_if_it_reaches_the_threshold_of_its_class(learner: str) -> None:
    bench: Any = Bench(f"local-{learner}")
    weak = bench.probs(X[UNLABELED]).numpy()
    labels = weak.argmax(axis=1)
    first = np.bincount(labels).argmax()
    thresholds = np.zeros(4, np.float32)
    thresholds[first] = np.median(weak[labels == first].max(axis=1))
    kept = weak.max(axis=1) >= thresholds[labels]
    assert 0 < kept[labels == first].sum() < (labels == first).sum()
    received = predictions(3)
    (batch,) = bench.learner.batches(client_round(lambda x: received)).batches
    np.testing.assert_allclose(batch.extra[0], bench.learner.thresholds(received), rtol=1e-6)
    (step,) = bench.run(0.0, True, True, thresholds)

    def pseudo() -> tf.Tensor:
        targets = np.eye(4, dtype=np.float32)[labels[kept]]
        return tf.reduce_sum(CE(targets, bench.probs(X[UNLABELED][kept][:, ::-1]))) / 16

    assert step.kept.numpy().tolist() == kept.tolist()
    assert step.labels.numpy().tolist() == labels.tolist()
    assert_step(bench, step, supervised=cross_entropy(bench, 10, X[LABELED], Y[LABELED]), pseudo=pseudo)


def test_sages_label_leans_on_the_received_models_by_half_for_every_five_points_between_them() -> None:
    local = [[0.9, 0.1, 0], [0.95, 0.05, 0], [0.8, 0.2, 0], [0.7, 0.3, 0], [0.9, 0.1, 0]]
    received = [[0.15, 0.85, 0], [0.15, 0.85, 0], [0.2, 0.8, 0], [0.3, 0.7, 0], [0.6, 0.4, 0]]
    found = soft_targets(tf.constant(local), tf.constant(received), 0.8).numpy()
    # 5 points: half each. 10: a quarter. None: the local label alone. An unsure local model: the received one's label.
    expected = np.array([[0.5, 0.5, 0], [0.25, 0.75, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]])
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_sage_learns_rows_that_one_of_the_two_models_is_sure_of(scenario: str) -> None:
    received = predictions(3)
    local = Bench("fedavg-sage").probs(X[UNLABELED]).numpy()
    threshold = float(np.median(local.max(axis=1)))
    received[received.max(axis=1) > 0.6] = 0.25  # so that the local model decides on some rows
    bench = Bench("fedavg-sage", f"{scenario}-biid-c10", confidence=threshold)
    kept = (local.max(axis=1) >= np.float32(threshold)) | (received.max(axis=1) >= np.float32(threshold))
    assert 0 < kept.sum() < 16
    targets = soft_targets(tf.constant(local), tf.constant(received), threshold).numpy()
    (batch,) = bench.learner.batches(client_round(lambda x: received, scenario == "lc")).batches
    (step,) = (take() for take in bench.learner.client_steps(batch))

    def pseudo() -> tf.Tensor:
        return tf.reduce_sum(CE(targets[kept], bench.probs(X[UNLABELED][kept][:, ::-1]))) / 16

    assert step.kept.numpy().tolist() == kept.tolist()
    assert step.labels.numpy().tolist() == targets.argmax(axis=1).tolist()
    supervised = {"supervised": cross_entropy(bench, 10, X[LABELED], Y[LABELED])} if scenario == "lc" else {}
    assert_step(bench, step, **supervised, pseudo=pseudo)


def test_semifl_fixes_confident_labels_and_mixes_them_with_other_images() -> None:
    received, others = predictions(3), predictions(4)
    partners = np.random.default_rng(5).permutation(X[UNLABELED])
    bench = Bench("semifl", "ls-biid-c10", confidence=0.6)
    (step,) = bench.run(0.0, False, True, received, partners, others)
    share = float(mixture_share(tf.constant([1, 2], tf.int32)))
    own, other = (np.eye(4, dtype=np.float32)[probs.argmax(axis=1)] for probs in (received, others))
    mixed = share * X[UNLABELED].astype(np.float32) + (1 - share) * partners.astype(np.float32)

    def loss() -> tf.Tensor:
        fix = tf.reduce_mean(CE(own, bench.probs(X[UNLABELED][:, ::-1])))
        probs = bench.probs(mixed)
        mix = share * tf.reduce_mean(CE(own, probs)) + (1 - share) * tf.reduce_mean(CE(other, probs))
        return fix + mix

    assert_step(bench, step, pseudo=loss)
    assert step.kept.numpy().all()


def test_semifls_batches_have_every_confident_image_once_and_any_other_beside_it() -> None:
    # Of sixteen images, five reach 0.6; the third one exactly.
    best = np.array([0.5, 0.7, 0.59, 0.3, 0.6, 0.9, 0.4, 0.8, 0.3, 0.61, *[0.5] * 6], np.float32)
    probs = np.stack([best, (1 - best) / 3, (1 - best) / 3, (1 - best) / 3], axis=1)
    bench = Bench("semifl", "ls-biid-c10", confidence=0.6, batch_size_client=2, num_epochs_client=5)
    made = bench.learner.batches(client_round(lambda x: probs, labeled=False))
    assert (made.num_batches, made.num_unlabeled) == (15, 80)
    partners = []
    for number, batch in enumerate(made.batches):
        rows = np.array(([1, 4], [5, 7], [9])[number % 3])
        assert batch.x_unlabeled is not None
        assert batch.y_unlabeled is not None
        np.testing.assert_array_equal(batch.x_unlabeled, X[UNLABELED][rows])
        np.testing.assert_array_equal(batch.y_unlabeled, Y[UNLABELED][rows])
        own, x_other, probs_other = batch.extra
        np.testing.assert_array_equal(own, probs[rows])
        for image, said in zip(x_other, probs_other):
            (place,) = (place for place in range(16) if (image == X[UNLABELED][place]).all())
            np.testing.assert_array_equal(said, probs[place])
            partners.append(place)
    assert len(set(partners)) > 5, "not confident ones alone"
    nobody = bench.learner.batches(client_round(lambda x: np.full((16, 4), 0.25, np.float32), labeled=False))
    assert (nobody.num_batches, nobody.num_unlabeled, list(nobody.batches)) == (0, 80, [])


def test_a_mixtures_share_is_drawn_from_beta_075_075() -> None:
    """Of Beta(a, a): mean 1/2, variance 1 / (4 (2a + 1)) = 0.1."""
    shares = np.array([float(mixture_share(tf.constant([seed, 7], tf.int32))) for seed in range(3000)])
    assert abs(shares.mean() - 0.5) < 5 * np.sqrt(0.1 / 3000)
    assert shares.var() == pytest.approx(0.1, rel=0.1)
    assert ((shares > 0) & (shares < 1)).all()
