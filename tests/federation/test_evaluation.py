"""Scores of a model: means over all examples, whatever they were cut into."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import EvalData
from fedmatch_tf.federation import scoring
from fedmatch_tf.federation.evaluation import Evaluation
from fedmatch_tf.federation.scoring import clients_test
from fedmatch_tf.federation.tasks import GLOBAL, EvalTask, Score
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params
from tests.small_network import LABELS, Bench, X, Y


def test_an_evaluation_is_the_mean_over_all_examples_whatever_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(l1_thres=1e-3)
    thresholded = np.where(np.abs(bench.before.parts[1]) <= 1e-3, 0, bench.before.parts[1]).astype(np.float32)
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
        evaluation = Evaluation(config, bench.evaluator, evals)
        tasks = [EvalTask(0, GLOBAL, "valid", theta, part, num_parts) for part in range(num_parts)]
        results = [evaluation.score(task) for task in reversed(tasks)]
        assert sum(sum(result.num_rows) for result in results) == 24
        assert max(max(result.num_rows) for result in results) <= batch_size
        score = scoring.add_up(results)[GLOBAL, "valid"]
        assert score == exact.setdefault(batch_size, score), "the cut changes no bit"
        with pytest.raises(ValueError, match="once"):
            scoring.add_up([*results, results[0]])
        assert score.loss == pytest.approx(loss, rel=1e-4)
        assert score.accuracy == pytest.approx((probs.argmax(1) == LABELS).mean())


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


def test_clients_test_as_the_task_needs_or_as_they_are_told() -> None:
    assert not clients_test(make_config("lc-biid-c10"))
    assert clients_test(make_config("lc-simb-fmnist"))
    assert clients_test(make_config("lc-biid-c10", model="local-sl"))
    assert clients_test(make_config("lc-biid-c10", eval_clients="always"))
    assert not clients_test(make_config("lc-simb-fmnist", eval_clients="valid"))
