"""Every model, scenario and kind of task end to end through the command line, on tiny data."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.config import KINDS, MODELS, ConfigError, make_config
from tests.conftest import ROOT, made_up_images, save_npz

TINY = (
    "--arch=alexnet",
    "--image-size=20",
    "--num-clients=3",
    "--frac-clients=0.67",
    "--num-test=20",
    "--num-valid=20",
    "--labels-per-class=2",
    "--num-rounds=2",
    "--helper-interval=2",
    "--confidence=0.3",
    "--seed=5",
    "--backend=inline",
    "--threads-per-worker=1",
    "--quiet",
)


class Shell:
    """A process that runs commands in a directory."""

    def __init__(self, cwd: Path, root: Path = ROOT) -> None:
        self.cwd = cwd
        x, y = made_up_images(150, num_classes=5, size=20)
        self.source = save_npz(cwd / "own.npz", x, y)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.command_server"],
            cwd=cwd,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(root), "MPLBACKEND": "Agg"},
        )

    def run(self, *arguments: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(list(arguments)) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def train(self, task: str, model: str, *flags: str) -> list[dict[str, Any]]:
        """The lines of rounds.jsonl."""
        rounds = (self.train_in(task, model, *flags) / "rounds.jsonl").read_text()
        return [json.loads(line) for line in rounds.splitlines()]

    def train_in(self, task: str, model: str, *flags: str) -> Path:
        """The run's folder."""
        streaming = ["--num-steps=2"] if "-simb-" in task else []
        arguments = ("--task", task, "--model", model, "--source", str(self.source), *TINY, *streaming, *flags)
        answer = self.run(*arguments)
        assert answer["code"] == 0, answer["errors"]
        return self.cwd / str(answer["out"].splitlines()[-1])


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    yield from running(Shell(tmp_path_factory.mktemp("models")))


def running(shell: Shell) -> Iterator[Shell]:
    yield shell
    assert shell.process.stdin is not None
    shell.process.stdin.close()
    shell.process.wait(20)


def combinations() -> list[Any]:
    """All of them; those of another kind than the model's own of the three are marked slow."""
    found = []
    for number, model in enumerate(MODELS):
        for scenario in ("lc", "ls"):
            for place, kind in enumerate(KINDS):
                if scenario == "ls" and model.startswith("local-"):
                    continue
                marks = [] if place == number % 3 else [pytest.mark.slow]
                found.append(pytest.param(model, scenario, kind, marks=marks, id=f"{model}-{scenario}-{kind}"))
    return found


@pytest.mark.parametrize(("model", "scenario", "kind"), combinations())
def test_every_model_trains_on_every_kind_of_task(model: str, scenario: str, kind: str, shell: Shell) -> None:
    lines = shell.train(f"{scenario}-{kind}-own", model)
    assert [line["task_step"] for line in lines] == ([0, 1] if kind == "simb" else [0, 0])
    for line in lines:
        assert np.isfinite([line["test_acc"], line["test_loss"], line["valid_loss"], line["lr"]]).all()
        assert (line["local_test_acc"] is not None) == (kind == "simb" or model.startswith("local-"))
        if model.startswith("local-"):
            assert line["s2c"]["sum"] == line["c2s"]["sum"] == line["c2s"]["bytes"] == 0
            assert line["test_acc"] == pytest.approx(line["local_test_acc"])
        elif model != "fedmatch":
            assert line["s2c"]["sum"] == line["c2s"]["sum"] == 1.0
            assert line["c2s"]["bytes"] == line["s2c"]["bytes"] > 1e6
        if model.endswith("-uda"):
            assert line["confident"] == 1.0
        if model.endswith("-sl"):
            assert (line["confident"], line["pseudo_label_acc"]) == (0.0, None)


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_ablations_of_fedmatch_train_and_record_what_they_are_for(scenario: str, shell: Shell) -> None:
    lines = shell.train(f"{scenario}-biid-own", "fedmatch", "--no-icc", "--ablate-eval", "--labeled-acc")
    for line in lines:
        assert line["helpers"] == {}
        assert {"test_acc_sigma", "test_acc_psi"} <= line.keys()
        assert all(0 <= line["labeled_acc"][when] <= 1 for when in ("before", "after"))
    plain = shell.train(f"{scenario}-biid-own", "fedmatch", "--no-decomposition", "--delta-thres=0")
    assert all(line["c2s"]["psi"] == 0 for line in plain)
    assert plain[0]["c2s"]["sigma"] > 0  # in labels-at-server, too: clients train the one set of parameters
    assert plain[1]["helpers"]
    assert plain[1]["s2c"]["helpers"] > 0
    assert "test_acc_sigma" not in plain[0]


@pytest.mark.parametrize(("model", "scenario"), [("fedprox-fixmatch", "lc"), ("fedavg-uda", "ls"), ("local-uda", "lc")])
def test_labelled_accuracy_is_recorded_for_baselines_alike(model: str, scenario: str, shell: Shell) -> None:
    for line in shell.train(f"{scenario}-biid-own", model, "--labeled-acc"):
        assert all(0 <= line["labeled_acc"][when] <= 1 for when in ("before", "after"))


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("ls-biid-c10", {"model": "local-uda"}, "clients would never learn from labels"),
        ("lc-biid-c10", {"num_clients": 1}, "nobody could help"),
        ("ls-biid-c10", {"num_epochs_server": 0}, "nobody would see a label"),
        ("lc-biid-c10", {"model": "fedavg-uda", "no_icc": True}, "--no-icc: is for --model fedmatch"),
        ("lc-biid-c10", {"model": "fedprox-sl", "no_decomposition": True}, "--no-decomposition: is for"),
        ("lc-biid-c10", {"model": "fedprox-sl", "ablate_eval": True}, "--ablate-eval: is for --model fedmatch"),
        ("lc-biid-c10", {"no_decomposition": True, "ablate_eval": True}, "tests sigma and psi apart"),
        ("lc-biid-c10", {"model": "local-sl", "eval_clients": "valid"}, "has no global model"),
        ("lc-biid-c10", {"model": "local-sl", "lr_signal": "server"}, "has no global model to validate"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_with_the_reason(
    task: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(task, **given)


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_with_the_servers_signal_clients_do_not_validate(scenario: str, shell: Shell) -> None:
    lines = shell.train(f"{scenario}-biid-own", "fedmatch", "--lr-signal=server")
    for line in lines:
        assert np.isfinite(line["valid_loss"])
    folder = max((shell.cwd / "outputs" / "logs").iterdir(), key=lambda path: path.stat().st_mtime)
    for path in folder.glob("client-*.txt"):
        assert json.loads(path.read_text())["scores"]["valid_loss"] == []


def test_one_client_alone_may_train_without_helpers() -> None:
    assert not make_config("lc-biid-c10", num_clients=1, no_icc=True).uses_helpers
    assert not make_config("lc-biid-c10", num_clients=1, num_helpers=0).uses_helpers
    assert make_config("lc-biid-c10", num_clients=1, model="fedavg-uda").clients_per_round == 1


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A copy of the project with what docs/METHODS.md adds to it."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("main.py", "parser.py", "data", "fedmatch_tf", "tests"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    page = (ROOT / "docs" / "METHODS.md").read_text()
    learner, learner_entry, algorithm, algorithm_entry = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (folder / "fedmatch_tf" / "learners" / "entropy.py").write_text(learner)
    (folder / "fedmatch_tf" / "algorithms" / "fedavgm.py").write_text(algorithm)
    models = folder / "fedmatch_tf" / "config" / "models.py"
    text = models.read_text().replace("\nLEARNERS = {\n", f"\nLEARNERS = {{\n{learner_entry}", 1)
    models.write_text(text.replace("\nALGORITHMS = {\n", f"\nALGORITHMS = {{\n{algorithm_entry}", 1))
    yield from running(Shell(folder, root=folder))


@pytest.mark.parametrize("model", ["fedprox-entropy", "fedavgm-entropy"])
def test_the_documented_learner_and_algorithm_train(model: str, extended: Shell) -> None:
    assert [line["confident"] for line in extended.train("lc-biid-own", model)] == [1.0, 1.0]


def test_the_documented_algorithm_remembers_its_momentum_when_a_run_goes_on(extended: Shell) -> None:
    def state(folder: Path) -> dict[str, np.ndarray]:
        with np.load(extended.cwd / "outputs" / "check_pts" / folder.name / "state.npz") as file:
            return {name: file[name] for name in ("sigma", "memory_0")}

    unbroken = extended.train_in("lc-biid-own", "fedavgm-fixmatch", "--num-rounds=3")
    broken = extended.train_in("lc-biid-own", "fedavgm-fixmatch", "--num-rounds=2")
    after_two = state(broken)
    assert extended.run("--resume", str(broken), "--num-rounds=3", "--quiet")["code"] == 0
    for name, value in state(broken).items():
        np.testing.assert_array_equal(value, state(unbroken)[name])
    # The velocity is what was added in the last round, and 0.9 of the one before is in it.
    np.testing.assert_allclose(state(broken)["memory_0"], state(broken)["sigma"] - after_two["sigma"], atol=1e-6)
    fedavg = extended.train_in("lc-biid-own", "fedavg-fixmatch", "--num-rounds=1")
    first = extended.train_in("lc-biid-own", "fedavgm-fixmatch", "--num-rounds=1")
    with np.load(extended.cwd / "outputs" / "check_pts" / fedavg.name / "state.npz") as plain:
        np.testing.assert_allclose(state(first)["sigma"], plain["sigma"], atol=1e-6)  # no momentum yet
