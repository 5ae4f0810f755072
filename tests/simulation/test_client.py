"""A client's steps: which part of the parameters each one moves, by how much, and on which rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from data import augment
from data.files import Examples
from data.loader import ClientData, EvalData
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.core import networks
from fedmatch_tf.core.evaluate import Evaluator
from fedmatch_tf.core.params import Params, kernels_in_use
from fedmatch_tf.core.schedule import Plateau
from fedmatch_tf.core.wire import full_broadcast
from fedmatch_tf.learners.fedmatch import FedMatch
from fedmatch_tf.simulation import scoring
from fedmatch_tf.simulation.client import Client, batches, check_finite, progress, slices
from fedmatch_tf.simulation.scoring import clients_test
from fedmatch_tf.simulation.tasks import ClientTask, EvalTask, Score, Step, TrainingError
from tests.conftest import made_up_images

X, LABELS = made_up_images(24, num_classes=4, size=24)
Y = np.eye(4, dtype=np.float32)[LABELS]
NO_HELPERS = np.zeros((0, 24, 4), np.float32)
SEED = np.array([1, 2], np.int32)
LR = tf.constant(0.01)


class Bench:
    """A small network, its steps, and its parameters before and after one of them."""

    def __init__(self, **given: Any) -> None:
        self.config: Config = make_config("lc-biid-c10", arch="alexnet", **given)
        self.model = networks.build_network("alexnet", (24, 24, 3), 4, l1_thres=self.config.l1_thres)
        rng = np.random.default_rng(1)
        self.before = networks.initial_params(networks.kernel_shapes(self.model), 0.2, True, rng)
        self.method = FedMatch(self.config, self.model, augment.identity)
        self.evaluator = Evaluator(networks.build_network("alexnet", (24, 24, 3), 4, decomposed=False))
        self.restore()

    def restore(self) -> None:
        networks.write(self.model, self.before)

    def after(self) -> Params:
        return networks.read(self.model)

    def probs(self, x: np.ndarray = X) -> np.ndarray:
        result: np.ndarray = self.model(tf.cast(x, tf.float32) / 255, training=True).numpy()
        return result


def flat(tensors: list[Any]) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors])


def test_the_supervised_step_moves_sigma_alone_down_the_gradient() -> None:
    bench = Bench()
    with tf.GradientTape() as tape:
        probs = bench.model(tf.cast(X, tf.float32) / 255, training=True)
        expected_loss = 10 * tf.reduce_mean(tf.keras.losses.categorical_crossentropy(Y, probs))
    gradient = flat(tape.gradient(expected_loss, networks.sigmas(bench.model)))
    loss = bench.method.supervised_step(X, Y, LR)
    after = bench.after()
    assert float(loss) == pytest.approx(float(expected_loss), rel=1e-5)
    np.testing.assert_allclose(after.sigma, bench.before.sigma - 0.01 * gradient, atol=1e-6)
    np.testing.assert_array_equal(after.psi, bench.before.psi)


def test_weight_decay_is_added_where_it_is_set() -> None:
    plain, decayed = Bench(), Bench(wd=0.5)
    loss = float(plain.method.supervised_step(X, Y, LR))
    expected = loss + 0.5 * float(np.square(plain.before.sigma, dtype=np.float64).sum())
    assert float(decayed.method.supervised_step(X, Y, LR)) == pytest.approx(expected, rel=1e-4)


def test_without_a_confident_row_only_the_penalties_move_psi() -> None:
    bench = Bench(confidence=1.0)
    terms = bench.method.unsupervised_step(X, NO_HELPERS, SEED, LR)
    sigma, psi = (part.astype(np.float64) for part in bench.before)
    penalty = 1e-4 * np.abs(psi).sum() + 10 * ((sigma - psi) ** 2).sum()
    moved = psi - 0.01 * (1e-4 * np.sign(psi) + 20 * (psi - sigma))
    assert float(terms.loss) == pytest.approx(penalty, rel=1e-5)
    assert (float(terms.icc), float(terms.pseudo_ce)) == (0.0, 0.0)
    assert not terms.kept.numpy().any()
    assert set(terms.pseudo_labels.numpy()) == {-1}
    np.testing.assert_allclose(bench.after().psi, moved, atol=1e-6)
    np.testing.assert_array_equal(bench.after().sigma, bench.before.sigma)


def test_confident_rows_learn_their_own_prediction_when_there_are_no_helpers() -> None:
    bench = Bench()
    threshold = float(np.median(bench.probs().max(axis=1)))
    bench = Bench(confidence=threshold)
    probs = bench.probs()
    kept = probs.max(axis=1) >= np.float32(threshold)
    labels = np.eye(4, dtype=np.float32)[probs.argmax(axis=1)]
    with tf.GradientTape() as tape:
        strong = bench.model(tf.cast(X[kept], tf.float32) / 255, training=True)
        pseudo_ce = tf.reduce_mean(tf.keras.losses.categorical_crossentropy(labels[kept], strong))
    gradient = flat(tape.gradient(pseudo_ce, networks.psis(bench.model)))
    terms = bench.method.unsupervised_step(X, NO_HELPERS, SEED, LR)
    sigma, psi = bench.before
    penalties = 1e-4 * np.sign(psi) + 20 * (psi - sigma)
    np.testing.assert_array_equal(terms.kept, kept)
    np.testing.assert_array_equal(terms.pseudo_labels.numpy()[kept], probs.argmax(axis=1)[kept])
    assert float(terms.pseudo_ce) == pytest.approx(float(pseudo_ce), rel=1e-4)
    np.testing.assert_allclose(bench.after().psi, psi - 0.01 * (0.01 * gradient + penalties), atol=1e-6)


@pytest.mark.parametrize("icc_rows", ["confident", "all"])
def test_helpers_pull_the_prediction_towards_theirs_on_the_rows_of_the_profile(icc_rows: str) -> None:
    threshold = float(np.median(Bench().probs().max(axis=1)))
    bench = Bench(confidence=threshold, icc_rows=icc_rows)
    helpers = np.random.default_rng(3).dirichlet(np.ones(4), (2, 24)).astype(np.float32)
    probs = bench.probs().astype(np.float64)
    rows = probs.max(axis=1) >= threshold if icc_rows == "confident" else np.ones(24, bool)
    kl = (helpers * np.log(helpers / probs)).sum(axis=-1)[:, rows].mean()
    terms = bench.method.unsupervised_step(X, helpers, SEED, LR)
    assert float(terms.icc) == pytest.approx(kl, rel=1e-3)
    votes = np.eye(4)[probs.argmax(1)] + np.eye(4)[helpers.argmax(-1)].sum(0)
    kept = terms.kept.numpy()
    np.testing.assert_array_equal(terms.pseudo_labels.numpy()[kept], votes.argmax(axis=1)[kept])
    bench.restore()
    with tf.GradientTape() as tape:
        own = bench.model(tf.cast(X[rows], tf.float32) / 255, training=True)
        pull = tf.reduce_mean(tf.keras.losses.kl_divergence(helpers[:, rows], tf.stack([own, own])))
        strong = bench.model(tf.cast(X[kept], tf.float32) / 255, training=True)
        labels = np.eye(4, dtype=np.float32)[votes.argmax(axis=1)]
        loss = 0.01 * pull + 0.01 * tf.reduce_mean(tf.keras.losses.categorical_crossentropy(labels[kept], strong))
    gradient = flat(tape.gradient(loss, networks.psis(bench.model)))
    bench.method.unsupervised_step(X, helpers, SEED, LR)
    sigma, psi = bench.before
    penalties = 1e-4 * np.sign(psi) + 20 * (psi - sigma)
    np.testing.assert_allclose(bench.after().psi, psi - 0.01 * (gradient + penalties), atol=1e-6)


def test_with_all_rows_helpers_count_even_if_no_row_is_confident() -> None:
    bench = Bench(confidence=1.0, icc_rows="all")
    helpers = np.random.default_rng(3).dirichlet(np.ones(4), (1, 24)).astype(np.float32)
    terms = bench.method.unsupervised_step(X, helpers, SEED, LR)
    assert float(terms.icc) > 0
    assert float(terms.pseudo_ce) == 0
    assert np.isfinite(bench.after().psi).all()


def test_each_step_is_traced_once_whatever_the_size_of_the_batch() -> None:
    bench = Bench()
    for size in (24, 10, 7):
        bench.method.supervised_step(X[:size], Y[:size], LR)
        bench.method.unsupervised_step(X[:size], NO_HELPERS[:, :size], SEED, LR)
    assert bench.method.supervised_step.experimental_get_tracing_count() == 1
    assert bench.method.unsupervised_step.experimental_get_tracing_count() == 1


def test_an_evaluation_is_the_mean_over_all_examples_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(l1_thres=1e-3)
    thresholded = np.where(np.abs(bench.before.psi) <= 1e-3, 0, bench.before.psi).astype(np.float32)
    networks.write(bench.model, Params(bench.before.sigma, thresholded))
    probs = bench.probs().astype(np.float64)
    bench.restore()
    loss = -np.log(probs[np.arange(24), LABELS]).mean()
    evals = EvalData(Examples(X, Y), Examples(X[:10], Y[:10]))
    theta = bench.before.sigma + thresholded
    exact: dict[int, Score] = {}
    for batch_size, num_parts in ((24, 1), (10, 1), (10, 2), (10, 3), (5, 1), (5, 2), (5, 4), (5, 5), (1000, 1)):
        config = replace(bench.config, batch_size_test=batch_size)
        monkeypatch.setattr(scoring, "PASS", batch_size)
        client = Client(config, bench.model, bench.method, bench.evaluator, evals, np.zeros((1, 24, 24, 3), np.float32))
        tasks = [EvalTask(0, "theta", "valid", theta, part, num_parts) for part in range(num_parts)]
        results = [client.score(task) for task in reversed(tasks)]
        assert sum(sum(result.num_rows) for result in results) == 24
        assert max(max(result.num_rows) for result in results) <= batch_size
        score = scoring.add_up(results)["theta", "valid"]
        assert score == exact.setdefault(batch_size, score), "the cut changes no bit"
        with pytest.raises(ValueError, match="once"):
            scoring.add_up([*results, results[0]])
        assert score.loss == pytest.approx(loss, rel=1e-4)
        assert score.accuracy == pytest.approx((probs.argmax(1) == LABELS).mean())


def learning(steps: int, **given: Any) -> tuple[list[float], Params, tuple[float, ...]]:
    """(losses of both steps in turn, the parameters afterwards, losses of an evaluation)."""
    bench = Bench(confidence=0.0, lambda_a=1.0, lambda_i=1.0, **given)
    shape, precision, xla = (24, 24, 3), bench.config.precision, bench.config.xla
    bench.model = networks.build_network("alexnet", shape, 4, precision=precision)
    bench.restore()
    method = FedMatch(bench.config, bench.model, augment.identity)
    x, y, helpers, lr = X[:8], Y[:8], np.full((1, 8, 4), 0.25, np.float32), tf.constant(2e-3)
    losses = []
    for _ in range(steps):
        losses.append(float(method.supervised_step(x, y, lr)))
        losses.append(float(method.unsupervised_step(x, helpers, SEED, lr).loss))
    evaluator = Evaluator(networks.build_network("alexnet", shape, 4, decomposed=False, precision=precision), xla)
    evaluator.load(kernels_in_use(bench.after()))
    return losses, bench.after(), evaluator.score(Examples(x, y), [slice(0, 8)])[0]


@pytest.mark.parametrize(
    ("given", "tolerance", "far"), [({"xla": True}, 1e-4, 1e-3), ({"precision": "mixed"}, 1e-2, 0.2)]
)
def test_xla_and_mixed_precision_learn_the_same_within_rounding(
    given: dict[str, Any], tolerance: float, far: float
) -> None:
    plain, other = learning(4), learning(4, **given)
    assert plain[0][-2] < 0.9 * plain[0][0], "labels have been learnt"
    assert other[0] == pytest.approx(plain[0], rel=tolerance)
    assert other[2] == pytest.approx(plain[2], rel=tolerance)
    assert other[1].sigma.dtype == np.float32
    moved = plain[1].sigma - Bench().before.sigma
    assert np.linalg.norm(other[1].sigma - plain[1].sigma) < far * np.linalg.norm(moved)


def test_mixed_precision_computes_in_half_and_keeps_what_is_small() -> None:
    model = networks.build_network("alexnet", (24, 24, 3), 4, precision="mixed")
    assert {layer.compute_dtype for layer in model.layers[1:-1]} == {"float16"}
    assert model.output.dtype == tf.float32
    assert {variable.dtype for variable in networks.sigmas(model) + networks.psis(model)} == {tf.float32}
    assert networks.build_network("alexnet", (24, 24, 3), 4).layers[1].compute_dtype == "float32"
    # sigma + psi in half precision would be 1: 1.00048828125 needs 11 bits behind the point, float16 has 10.
    layer = model.layers[1]
    layer.sigma.assign(tf.ones_like(layer.sigma))
    layer.psi.assign(tf.fill(layer.psi.shape, 0.0004))
    before = float(layer.theta(training=True)[0, 0, 0, 0])
    layer.sigma.assign(tf.fill(layer.sigma.shape, 1.0002))
    assert float(layer.theta(training=True)[0, 0, 0, 0]) > before


def test_small_evaluation_batches_are_joined_and_parts_cover_a_set_once() -> None:
    config = make_config("lc-biid-c10")  # batches of 100, so five at once

    def ends(*parts: int, num_rows: int = 2000) -> list[int]:
        return [rows.stop for rows in scoring.passes(config, num_rows, *parts)]

    assert ends() == [500, 1000, 1500, 2000]
    assert ends(num_rows=1100) == [500, 1000, 1100]
    assert (ends(0, 2), ends(1, 2)) == ([500, 1000], [1500, 2000])
    assert (ends(0, 3), ends(1, 3), ends(2, 3)) == ([500], [1000], [1500, 2000])
    config = replace(config, batch_size_test=300)
    assert ends() == [300, 600, 900, 1200, 1500, 1800, 2000]
    config = replace(config, batch_size_test=4000)
    assert ends() == [2000]
    config = replace(config, batch_size_test=100, image_size=64)  # four times the pixels
    assert ends(num_rows=400) == [100, 200, 300, 400]


def data(labeled: int | None, unlabeled: int) -> ClientData:
    def examples(count: int) -> Examples:
        return Examples(np.zeros((count, 1, 1, 1), np.uint8), np.zeros((count, 2), np.float32))

    return ClientData(0, None if labeled is None else examples(labeled), examples(unlabeled))


def rows(parts: Iterable[slice | None]) -> list[tuple[int, int] | None]:
    return [None if part is None else (part.start, part.stop) for part in parts]


def test_labelled_batches_decide_the_steps_and_unlabelled_examples_are_spread_over_them() -> None:
    config = make_config("lc-biid-c10")
    pairs = batches(config, data(50, 490))  # 50 / 10 = 5 steps; 490 / 5 = 98
    assert rows([labeled for labeled, _ in pairs]) == [(0, 10), (10, 20), (20, 30), (30, 40), (40, 50)]
    assert rows([unlabeled for _, unlabeled in pairs]) == [(0, 98), (98, 196), (196, 294), (294, 392), (392, 490)]
    assert rows([unlabeled for _, unlabeled in batches(config, data(20, 41))]) == [(0, 21), (21, 42)]
    assert rows([unlabeled for _, unlabeled in batches(config, data(3, 41))]) == [(0, 41)]  # at least one step


def test_labels_at_server_takes_whole_unlabelled_batches() -> None:
    config = make_config("ls-biid-c10")
    assert [labeled for labeled, _ in batches(config, data(None, 549))] == [None] * 5  # 5.49 rounds down
    assert len(batches(config, data(None, 551))) == 6
    assert rows([part for _, part in batches(config, data(None, 30))]) == [(0, 100)]


def test_a_given_unlabelled_batch_size_wins_and_labelled_steps_go_on_when_nothing_unlabelled_is_left() -> None:
    lc = make_config("lc-biid-c10", batch_size_unlabeled=30)
    assert rows([part for _, part in batches(lc, data(50, 70))]) == [(0, 30), (30, 60), (60, 90), None, None]
    ls = make_config("ls-biid-c10", batch_size_unlabeled=30)
    assert len(batches(ls, data(None, 90))) == 3


def test_slices_round_half_to_even_as_the_original_does() -> None:
    assert [len(slices(n, 10)) for n in (4, 14, 15, 25, 26, 100)] == [1, 1, 2, 2, 3, 10]


def test_clients_test_as_the_task_needs_or_as_they_are_told() -> None:
    assert not clients_test(make_config("lc-biid-c10"))
    assert clients_test(make_config("lc-simb-fmnist"))
    assert clients_test(make_config("lc-biid-c10", model="local-sl"))
    assert clients_test(make_config("lc-biid-c10", eval_clients="always"))
    assert not clients_test(make_config("lc-simb-fmnist", eval_clients="valid"))


def test_a_loss_that_is_not_a_number_is_named_by_place() -> None:
    steps = [Step("s", 1.0), Step("u", float("nan"))]
    with pytest.raises(TrainingError, match=r"received nan in round 3, client 7, step 1 \(unsupervised\)"):
        check_finite(steps, "round 3, client 7")


def test_progress_is_the_share_of_all_rounds_that_is_done() -> None:
    config = make_config("lc-biid-c10", num_rounds=4)
    assert [float(progress(config, round_num, part)) for round_num, part in ((0, 0.0), (1, 0.5), (3, 1.0))] == [
        0,
        0.375,
        1,
    ]


class Recorder:
    """A method that notes what it is given and moves the model to a known place."""

    def __init__(self, bench: Any) -> None:
        self.bench, self.batches = bench, list[Any]()

    def begin_round(self) -> None:
        self.begun = networks.read(self.bench.model).sigma.copy()

    def client_steps(self, batch: Any) -> list[Any]:
        self.batches.append(batch)
        good, bad = self.bench.good, self.bench.bad

        def to(params: Params) -> Any:
            networks.write(self.bench.model, params)
            return tf.constant(1.0)

        return [("s", lambda: to(good)), ("s", lambda: to(bad))]


def test_a_clients_round_counts_examples_and_measures_forgetting_around_the_last_step_of_a_batch() -> None:
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
    method: Any = Recorder(bench)
    config = replace(bench.config, num_rounds=4, num_epochs_client=2, model="fedavg-uda", batch_size_client=3)
    client = Client(
        config,
        bench.model,
        method,
        bench.evaluator,
        EvalData(twos, twos),
        np.zeros((1, 24, 24, 3), np.float32),
    )
    data = ClientData(0, twos, Examples(X[6:16], Y[6:16]))
    task = ClientTask(1, 0, 0, full_broadcast(Params(bench.before.sigma, bench.before.psi)), Plateau(0.5, 9.0, 3))
    result = client.update(task, data, known=twos)
    assert result.num_examples == 16
    assert result.known_acc == (1.0, 0.0)
    np.testing.assert_array_equal(method.begun, bench.before.sigma)
    # Two epochs of two steps in round 1 of 4: (1 + 0, 1/4, 2/4, 3/4) / 4.
    assert [float(batch.progress) for batch in method.batches] == [0.25, 0.3125, 0.375, 0.4375]
    assert [len(batch.x_unlabeled) for batch in method.batches] == [5, 5, 5, 5]
    assert {tuple(batch.seed) for batch in method.batches} != {tuple(method.batches[0].seed)}
    assert float(method.batches[0].lr) == 0.5
    assert result.upload.cost.sum == 1.0
    assert [score.split for score in result.scored] == ["valid"]
    assert result.theta is None
