"""What trains in this process: `backend="inline"`.

TensorFlow's threads are set once per process, so these tests have one of their own: tests/test_front_door.py runs them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmatch_tf as fm
from fedmatch_tf.base import signals
from fedmatch_tf.main import main
from tests.conftest import ROOT, made_up_images, save_npz

TINY: dict[str, Any] = {
    "model": "fedavg-sl",
    "arch": "alexnet",
    "image_size": 20,
    "num_clients": 3,
    "num_test": 20,
    "num_valid": 20,
    "labels_per_class": 2,
    "num_rounds": 3,
    "backend": "inline",
    "threads_per_worker": 1,
}


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a run that takes seconds, in a directory of its own."""
    x, y = made_up_images(150, num_classes=5, size=20)
    monkeypatch.chdir(tmp_path)
    return {**TINY, "source": str(save_npz(tmp_path / "own.npz", x, y))}


def test_a_run_from_python_says_nothing_and_gives_plain_data(
    tiny: dict[str, Any], capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[dict[str, Any]] = []

    def stop_after_two(record: dict[str, Any]) -> bool:
        seen.append(record)
        record["clients"] = "a hook may do what it likes with its copy"
        return len(seen) < 2

    handler = signal.getsignal(signal.SIGINT)
    caplog.set_level(logging.INFO, "fedmatch_tf")
    result = fm.train("lc-biid-own", on_round=stop_after_two, **tiny)
    assert [record["round"] for record in seen] == [0, 1]
    assert (len(result.rounds), result.finished) == (2, False)
    assert "2 of 3 rounds; stopped by on_round" in str(result)
    assert fm.load_model(result.folder).count_params() > 0
    models = result.folder.parent.parent / "check_pts" / result.folder.name
    assert (models / "model.keras").exists(), "a run that was stopped has its model, too"
    result = fm.resume(result.folder, on_round=seen.append)
    assert [record["round"] for record in seen] == [0, 1, 2]
    assert result.finished
    assert "Going on after 2 of 3 rounds" in caplog.text
    lines = [json.loads(text) for text in (result.folder / "rounds.jsonl").read_text().splitlines()]
    assert result.rounds == lines
    assert result.test_acc == lines[-1]["test_acc"]
    assert result.class_names == ("0", "1", "2", "3", "4")
    assert (result.settings["num_rounds"], result.settings["arch"]) == (3, "alexnet")
    assert capfd.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is handler
    assert fm.load_run(str(result.folder)) == fm.load_run(result) == result
    assert result.folder.is_absolute()
    assert result.best is None
    assert "3, 3 of 3 clients per round" in str(result)


def test_a_stopped_run_ends_as_an_unbroken_one(tiny: dict[str, Any]) -> None:
    tiny["model"] = "fedmatch"
    whole = fm.train("lc-biid-own", **tiny)
    halves = fm.resume(fm.train("lc-biid-own", on_round=lambda record: False, **tiny).folder)

    def weights(result: fm.TrainingResult) -> np.ndarray:
        with np.load(result.folder.parent.parent / "check_pts" / result.folder.name / "state.npz") as state:
            return np.concatenate([state["sigma"], state["psi"]])

    np.testing.assert_array_equal(weights(whole), weights(halves))


def test_numpys_false_stops_a_run_and_none_does_not(tiny: dict[str, Any]) -> None:
    answers: list[Any] = [None, np.float64(0.25) > 0.5]
    result = fm.train("lc-biid-own", on_round=lambda record: answers.pop(0), **tiny)
    assert (len(result.rounds), answers) == (2, [])


def test_an_inline_run_leaves_the_environment_as_it_was(tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    fm.train("lc-biid-own", **{**tiny, "num_rounds": 1})
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"
    with pytest.raises(fm.ConfigError, match="--threads-per-worker: expected 7, but TensorFlow runs in this process"):
        fm.train("lc-biid-own", **{**tiny, "threads_per_worker": 7})


def test_a_hook_that_raises_leaves_a_run_that_can_go_on(tiny: dict[str, Any]) -> None:
    def fail(record: dict[str, Any]) -> None:
        raise LookupError("the user's own")

    with pytest.raises(LookupError, match="the user's own"):
        fm.train("lc-biid-own", on_round=fail, **tiny)
    (folder,) = Path("outputs/logs").iterdir()
    assert (folder / "stopped.txt").read_text() == "LookupError: the user's own\n"
    assert len(fm.resume(folder).rounds) == 3
    assert not (folder / "stopped.txt").exists()


def test_training_in_a_thread_works_without_signals(tiny: dict[str, Any]) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(fm.train("lc-biid-own", **{**tiny, "num_rounds": 1})))
    thread.start()
    thread.join()
    assert results[0].finished


def test_mistakes_are_exceptions_with_a_message(tiny: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(fm.ConfigError, match="--lr: expected a number greater than 0"):
        fm.train("lc-biid-digits", lr=-1.0)
    with pytest.raises(fm.ConfigError, match=r"received num_round; did you mean num_rounds\?"):
        fm.make_config("lc-biid-digits", num_round=3)
    with pytest.raises(fm.ConfigError, match="on_round: expected a function"):
        fm.train("lc-biid-digits", on_round=3)  # type: ignore[arg-type]
    with pytest.raises(fm.ConfigError, match="progress: expected True, False or 'notes', received 'yes'"):
        fm.train("lc-biid-digits", progress="yes")  # type: ignore[arg-type]
    with pytest.raises(fm.ConfigError, match="a Config and lr"):
        fm.train(fm.make_config("lc-biid-digits"), lr=0.1)
    with pytest.raises(fm.DataError, match="nothing"):
        fm.train("lc-biid-own", source=str(tmp_path / "absent"))
    with pytest.raises(fm.DataError, match="expected the folder of a run"):
        fm.load_run(tmp_path / "absent")
    with pytest.raises(fm.ConfigError, match="expected the folder of a run"):
        fm.load_model(tmp_path)
    with pytest.raises(fm.TrainingError, match="finite"):
        fm.train("lc-biid-own", **{**tiny, "lr": 1e30})
    run = fm.train("lc-biid-own", **{**tiny, "num_rounds": 1, "source": Path(tiny["source"])}).folder
    with pytest.raises(fm.ConfigError, match=r"received num_round; did you mean num_rounds\?"):
        fm.resume(run, num_round=2)
    with pytest.raises(fm.ConfigError, match="--num-rounds: expected a whole number, received '2'"):
        fm.resume(run, num_rounds="2")
    with pytest.raises(AttributeError, match="no attribute 'fit'"):
        _ = fm.fit


def test_the_calls_from_the_command_line_to_the_gradient_step_are_those_of_the_map(
    tiny: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from fedmatch_tf.learners.fedmatch import FedMatch

    calls: list[list[str]] = []
    step = FedMatch._unsupervised_step

    def watched(self: FedMatch, *arguments: Any) -> Any:
        frames = [frame for frame in traceback.extract_stack() if str(ROOT / "fedmatch_tf") in frame.filename]
        calls.append([f"{Path(frame.filename).relative_to(ROOT / 'fedmatch_tf')} {frame.name}" for frame in frames])
        return step(self, *arguments)

    monkeypatch.setattr(FedMatch, "_unsupervised_step", watched)
    with signals.restored():
        settings = [
            f"--{name.replace('_', '-')}={value}"
            for name, value in {**tiny, "model": "fedmatch", "num_rounds": 1}.items()
        ]
        assert main(["--task=lc-biid-own", "--quiet", *settings]) == 0
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text().split("From the command line to the gradient step")[1]
    files = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`[, ]*)+)", text.split("\n\n")[0])
    documented = [f"{file} {name}" for file, names in files for name in re.findall(r"\w+", names)]
    assert [*calls[0], "learners/fedmatch.py _unsupervised_step"] == documented
