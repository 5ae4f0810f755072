"""Several runs: what is done is found again by what it is, and how long the rest takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.results import sweep
from fedmatch_tf.results.time_left import TimeLeft, total_hours
from tests.results.made_up_runs import write_run


def test_the_time_left_learns_from_the_runs_that_are_done() -> None:
    config = make_config("lc-biid-c10", num_rounds=10)
    total, left = total_hours([config]), TimeLeft()
    assert total is not None
    estimate = 3600 * total
    assert left.of([(config, 0)]) == pytest.approx(estimate + 30)
    left.learn(config, num_rounds=5, seconds=estimate, wall=estimate + 100)  # twice as slow as thought
    assert left.of([(config, 0)] * 2) == pytest.approx(2 * (2 * estimate + 100))
    assert left.of([(config, 5), (config, 10)]) == pytest.approx(estimate + 100)


def test_the_time_of_what_nobody_has_counted_is_known_when_a_run_has_shown_it() -> None:
    config, left = make_config("lc-biid-own", source="x.npz", num_rounds=10), TimeLeft()
    assert total_hours([config]) is None
    assert total_hours([make_config("lc-biid-c10"), make_config("lc-biid-c10", arch="my:network")]) is None
    assert left.of([(config, 0)]) is None
    left.learn(config, num_rounds=5, seconds=50, wall=60)  # ten seconds a round, and ten around them
    assert left.of([(config, 4)]) == pytest.approx(6 * 10 + 10)


def test_runs_are_found_again_by_what_they_are(tmp_path: Path) -> None:
    config = make_config("lc-biid-c10", num_rounds=3, output_path=str(tmp_path), seed=2)
    assert sweep.find([config]) == [None]
    (tmp_path / "logs" / "no run").mkdir(parents=True)
    first = write_run(tmp_path / "logs" / "other", [0.1] * 3, seed=1)
    write_run(tmp_path / "logs" / "other-lr", [0.1] * 3, seed=2, lr=0.1)
    assert sweep.find([config]) == [None]
    write_run(tmp_path / "logs" / "partial", [0.1], seed=2, num_rounds=3, workers=7)
    write_run(tmp_path / "logs" / "further", [0.1, 0.2], seed=2, num_rounds=3)
    assert sweep.find([config]) == [None], "without a checkpoint it can't go on"
    for name in ("partial", "further"):
        (tmp_path / "check_pts" / name).mkdir(parents=True)
    (result,) = sweep.find([config])
    assert result is not None
    assert (result.name, result.state, sweep.is_done(result)) == ("further", "partial", False)
    write_run(tmp_path / "logs" / "whole", [0.1] * 3, seed=2)
    elsewhere = make_config("lc-biid-c10", num_rounds=3, output_path=str(tmp_path), source="elsewhere.npz")
    seed_1 = make_config("lc-biid-c10", num_rounds=3, output_path=str(tmp_path))
    found = sweep.find([elsewhere, seed_1, config])
    assert [result and result.folder for result in found] == [None, str(first), str(tmp_path / "logs" / "whole")]
    assert [sweep.is_done(result) for result in found] == [False, True, True]
