"""Several runs: what is done is found again by what it is, and how long the rest takes."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import ConfigError, combinations, make_config
from fedmatch_tf.federation.tasks import TrainingError
from fedmatch_tf.results import sweep
from fedmatch_tf.results.time_left import TimeLeft, total_hours
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.training import Watch
from tests.results.made_up_runs import write_run
from tests.stand_in import make_stand_in


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


def test_a_grid_is_every_combination_with_every_seed() -> None:
    grid = {"lr": [1e-3, 2e-3], "confidence": [0.75, 0.85]}
    runs = combinations(grid, 2, {"task": "lc-biid-digits", "num_rounds": 3})
    assert [(config.lr, config.confidence, config.seed) for config in runs] == [
        (1e-3, 0.75, 1),
        (1e-3, 0.75, 2),
        (1e-3, 0.85, 1),
        (1e-3, 0.85, 2),
        (2e-3, 0.75, 1),
        (2e-3, 0.75, 2),
        (2e-3, 0.85, 1),
        (2e-3, 0.85, 2),
    ]
    assert {config.num_rounds for config in runs} == {3}
    assert combinations({}, [7], {"task": "lc-biid-digits"}) == [make_config("lc-biid-digits", seed=7)]


@pytest.mark.parametrize(
    ("grid", "seeds", "message"),
    [
        ({"lrr": [1.0]}, 1, "did you mean lr"),
        ({"lr": []}, 1, "expected a list of values of lr"),
        ({"model": "fedmatch"}, 1, "expected a list of values of model"),
        ({"lr": [0.1, 0.1]}, 1, "expected different values of lr"),
        ({"lr": [-0.1]}, 1, "--lr: expected a number greater than 0"),
        ({"num_rounds": [1, 2]}, 1, "num_rounds is given twice"),
        ({"seed": [1, 2]}, 1, "--seeds does that"),
        ({"workers": [1, 2]}, 1, "workers can't be swept"),
        ({"mu": [0.1, 0.2]}, 1, "mu has no effect in any of the runs"),
        ({}, 0, "expected a number of seeds from 1 to 1000"),
        ({}, [], "expected 1 to 1000 different seeds"),
        ({}, [1, 1], "expected 1 to 1000 different seeds, received .1, 1."),
    ],
)
def test_a_grid_without_meaning_is_refused(grid: dict[str, Any], seeds: int | list[int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        combinations(grid, seeds, {"task": "lc-biid-digits", "num_rounds": 3})


def test_a_run_of_a_keras_file_that_is_another_by_now_is_not_found(tmp_path: Path) -> None:
    file = tmp_path / "net.keras"
    file.write_bytes(b"one network")
    given: dict[str, Any] = {"arch": str(file), "output_path": str(tmp_path), "num_rounds": 2}
    folder = write_run(tmp_path / "logs" / "run", [0.5, 0.6], "lc-biid-digits", **given)
    config = make_config("lc-biid-digits", **given)
    kept = tmp_path / "check_pts" / "run" / "network.keras"
    assert sweep.find([config]) == [None], "nobody knows which network that was"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"one network")
    (found,) = sweep.find([config])
    assert found is not None
    assert found.folder == str(folder)
    file.write_bytes(b"another one")
    assert sweep.find([config]) == [None]


def test_a_seed_beside_seeds_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed: expected none beside seeds"):
        combinations({}, 2, {"task": "lc-biid-digits", "seed": 5})


def recorded(folder: Path) -> list[Any]:
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{**line, "seconds": 0} for line in lines]


def test_runs_beside_each_other_are_those_in_turn_and_are_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small: dict[str, Any] = {"task": "lc-biid-digits", "num_rounds": 2, "num_clients": 3, "backend": "inline"}
    silent = Watch(True, progress_for(True), logging.getLogger("test"))

    def done(output: str, jobs: int) -> list[Path]:
        runs = combinations({"lr": [1e-3, 2e-3]}, 1, {**small, "output_path": output})
        found = dict(sweep.sweep(runs, sweep.find(runs), {}, silent, None, jobs, make_stand_in))
        return [found[config] for config in runs]

    in_turn, beside = done("a", 1), done("b", 2)
    assert [recorded(folder) for folder in in_turn] == [recorded(folder) for folder in beside]
    folders = set((tmp_path / "a" / "logs").iterdir())
    assert {folder.absolute() for folder in done("a", 2)} == {folder.absolute() for folder in in_turn}
    assert set((tmp_path / "a" / "logs").iterdir()) == folders, "what is done is not done again"
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_run_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = combinations({"lr": [1e-3, 2e-3]}, 1, {"task": "lc-biid-digits", "num_rounds": 2, "num_clients": 3})

    def work(job: Any, *_: Any) -> Path:
        if job.config.lr == 1e-3:
            raise TrainingError("expected a finite loss, received nan")
        return write_run(tmp_path / "outputs" / "logs" / "good", [0.1, 0.2], lr=2e-3)

    monkeypatch.setattr(sweep, "_work", work)
    with pytest.raises(TrainingError, match=r"1 of 2 runs failed:\n\[1 of 2\] expected a finite loss") as error:
        sweep.sweep_all(runs, {}, Watch(True, progress_for(True), logging.getLogger("test")))
    assert (Path(str(error.value).rsplit(": ", 1)[1]) / "report.html").is_file()
