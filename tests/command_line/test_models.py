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

from fedmatch_tf.algorithms.algorithm import ServerState, Update
from fedmatch_tf.config import MODELS, ConfigError, make_config
from fedmatch_tf.data.dealing import KINDS
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params
from tests.command_server import CommandServer
from tests.conftest import ROOT, assert_refused, made_up_images, run_main, save_npz

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
    "--confidence=0.21",
    "--seed=5",
    "--backend=inline",
    "--threads-per-worker=1",
    "--quiet",
)


class Shell:
    """A directory with a few images, in which models are trained."""

    def __init__(self, cwd: Path, commands: CommandServer) -> None:
        self.cwd, self.commands = cwd, commands
        x, y = made_up_images(150, num_classes=5, size=20)
        self.source = save_npz(cwd / "own.npz", x, y)

    def train(self, task: str, model: str, *flags: str) -> list[dict[str, Any]]:
        """The lines of rounds.jsonl; the weights are gone, as those of hundreds of runs would fill a disk."""
        folder = self.train_in(task, model, *flags)
        shutil.rmtree(folder.parent.parent / "check_pts" / folder.name)
        return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]

    def train_in(self, task: str, model: str, *flags: str) -> Path:
        """The run's folder."""
        streaming = ["--num-steps=2"] if "-simb-" in task else []
        arguments = ("--task", task, "--model", model, "--source", str(self.source), *TINY, *streaming, *flags)
        result = self.commands.run(*arguments, cwd=self.cwd)
        assert result.returncode == 0, result.stderr
        return self.cwd / result.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, commands: CommandServer) -> Shell:
    return Shell(tmp_path_factory.mktemp("models"), commands)


LOCAL_TOO = ("local-labels", "local-flexmatch", "local-freematch")


def combinations() -> list[Any]:
    """All of them; not slow is one of each model, so that every learner and kind of algorithm has both scenarios.

    But for `local-*` of learners that do the same with FedAvg.
    """
    found = []
    for number, model in enumerate(MODELS):
        scenarios = ("lc", "ls") if model == "fedmatch" else ("ls",) if model[:7] in ("fedprox", "semifl") else ("lc",)
        for scenario in ("lc", "ls"):
            for place, kind in enumerate(KINDS):
                if scenario in ("ls" if model.startswith("local-") else "", "lc" if model == "semifl" else ""):
                    continue
                quick = scenario in scenarios and place == number % len(KINDS) and model not in LOCAL_TOO
                marks = [] if quick else [pytest.mark.slow]
                found.append(pytest.param(model, scenario, kind, marks=marks, id=f"{model}-{scenario}-{kind}"))
    return found


@pytest.mark.parametrize(("model", "scenario", "kind"), combinations())
def test_every_model_trains_on_every_kind_of_task(model: str, scenario: str, kind: str, shell: Shell) -> None:
    lines = shell.train(f"{scenario}-{kind}-own", model)
    assert [line["task_step"] for line in lines] == ([0, 1] if kind == "simb" else [0, 0])
    for line in lines:
        assert np.isfinite([line["test_acc"], line["test_loss"], line["valid_loss"], line["lr"]]).all()
        assert line["dropped"] is None
        assert (line["local_test_acc"] is not None) == (kind == "simb" or model.startswith("local-"))
        if model.startswith("local-"):
            assert line["s2c"]["sum"] == line["c2s"]["sum"] == line["c2s"]["bytes"] == 0
            assert line["test_acc"] == pytest.approx(line["local_test_acc"])
        elif model != "fedmatch":
            assert line["s2c"]["sum"] == line["c2s"]["sum"] == 1.0
            assert line["c2s"]["bytes"] == line["s2c"]["bytes"] > 1e6
        if model.endswith("-uda"):
            assert line["confident"] == 1.0
        if model.endswith(("-sl", "-labels")):
            assert (line["confident"], line["pseudo_label_acc"]) == (0.0, None)


def test_with_labels_at_the_server_labels_alone_are_the_server_alone(shell: Shell) -> None:
    first, second = shell.train("ls-biid-own", "fedavg-labels", "--labels-per-class=10", "--eval-clients=always")
    for line in (first, second):
        assert line["local_test_acc"] == line["test_acc"], "clients send back what they received"
        assert line["train_loss"]["supervised"] == pytest.approx(line["train_loss"]["total"])
    assert first["norms"] != second["norms"], "the server learns"


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_ablations_of_fedmatch_train_and_record_what_they_are_for(scenario: str, shell: Shell) -> None:
    lines = shell.train(f"{scenario}-biid-own", "fedmatch", "--no-icc", "--ablate-eval", "--labeled-acc")
    for line in lines:
        assert line["helpers"] == {}
        assert min(line["test_acc_sigma"], line["test_acc_psi"]) >= 0
        assert all(0 <= line["labeled_acc"][when] <= 1 for when in ("before", "after"))
    plain = shell.train(f"{scenario}-biid-own", "fedmatch", "--no-decomposition", "--delta-thres=0")
    assert all(line["c2s"]["psi"] == 0 for line in plain)
    assert plain[0]["c2s"]["sigma"] > 0  # in labels-at-server, too: clients train the one set of parameters
    assert plain[1]["helpers"]
    assert plain[1]["s2c"]["helpers"] > 0
    assert plain[0]["test_acc_sigma"] is None


def test_a_share_of_labels_at_some_clients_and_lost_updates_train_and_are_recorded(shell: Shell) -> None:
    flags = ("--labeled-fraction=0.3", "--labeled-clients=2", "--frac-clients=1", "--drop-rate=0.7", "--num-rounds=3")
    lines = shell.train("lc-bdir-own", "fedmatch", "--dataset-path=shares", *flags)
    manifest = json.loads((shell.cwd / "shares" / "lc-bdir-own" / "manifest.json").read_text())
    assert [name for name in manifest["files"] if name.startswith("s_")] != []
    assert sum(name.startswith("s_") for name in manifest["files"]) == 2
    assert [len(line["clients"]) for line in lines] == [3, 3, 3]
    dropped = [line["dropped"] for line in lines]
    assert any(dropped), "with this seed"
    assert any(len(gone) < 3 for gone in dropped)
    for line in lines:
        assert set(line["dropped"]) <= {0, 1, 2}
        if len(line["dropped"]) == 3:
            assert line["c2s"]["sum"] == 0


@pytest.mark.parametrize(("model", "scenario"), [("fedprox-fixmatch", "lc"), ("fedavg-uda", "ls"), ("local-uda", "lc")])
def test_labelled_accuracy_is_recorded_for_baselines_alike(model: str, scenario: str, shell: Shell) -> None:
    for line in shell.train(f"{scenario}-biid-own", model, "--labeled-acc"):
        assert all(0 <= line["labeled_acc"][when] <= 1 for when in ("before", "after"))
        assert len(line["labeled_acc"]["steps"]) == 1, "ten labels are one batch"


@pytest.mark.parametrize(
    ("task", "given", "message"),
    [
        ("ls-biid-c10", {"model": "local-uda"}, "clients would never learn from labels"),
        ("lc-biid-c10", {"model": "semifl"}, "semifl is for labels-at-server"),
        ("lc-biid-c10", {"model": "local-sl", "drop_rate": 0.5}, "--drop-rate: .* the clients share nothing"),
        ("ls-biid-c10", {"labeled_clients": 5}, "the server has all labels"),
        ("lc-biid-c10", {"labeled_clients": 5, "model": "local-uda"}, "those without labels would never learn"),
        ("lc-biid-c10", {"labeled_clients": 101}, "expected at most the 100 clients"),
        ("lc-biid-c10", {"num_clients": 1}, "nobody could help"),
        ("ls-biid-c10", {"num_epochs_server": 0}, "nobody would see a label"),
        ("lc-biid-c10", {"model": "fedavg-uda", "no_icc": True}, "--no-icc: .* only fedmatch reads"),
        (
            "lc-biid-c10",
            {"model": "fedprox-sl", "no_decomposition": True},
            "--no-decomposition: .* only fedmatch",
        ),
        ("lc-biid-c10", {"model": "fedprox-sl", "ablate_eval": True}, "--ablate-eval: .* only fedmatch reads it"),
        (
            "lc-biid-c10",
            {"no_decomposition": True, "ablate_eval": True},
            "--ablate-eval: .* parameters are one set",
        ),
        ("ls-biid-c10", {"model": "local-labels"}, "clients would never learn from labels"),
        ("lc-biid-c10", {"labeled_clients": 5, "model": "local-labels"}, "those without labels would never learn"),
        ("lc-biid-c10", {"model": "local-sl", "eval_clients": "valid"}, "no model is global"),
        ("lc-biid-c10", {"model": "local-sl", "lr_signal": "server"}, "no model is global"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_with_the_reason(
    task: str, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_config(task, **given)


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_with_the_servers_signal_clients_do_not_validate(scenario: str, shell: Shell) -> None:
    folder = shell.train_in(f"{scenario}-biid-own", "fedavg-sl", "--lr-signal=server")
    for line in (folder / "rounds.jsonl").read_text().splitlines():
        assert np.isfinite(json.loads(line)["valid_loss"])
    for path in folder.glob("client-*.txt"):
        assert json.loads(path.read_text())["scores"]["valid_loss"] == []


def test_one_client_alone_may_train_without_helpers() -> None:
    assert not make_config("lc-biid-c10", num_clients=1, no_icc=True).uses_helpers
    assert not make_config("lc-biid-c10", num_clients=1, num_helpers=0).uses_helpers
    assert make_config("lc-biid-c10", num_clients=1, model="fedavg-uda").clients_per_round == 1


def documented_code(section: str) -> list[str]:
    """The blocks of Python in that section of docs/EXTENDING.md or docs/DATA.md."""
    sections = [
        part for page in ("EXTENDING", "DATA") for part in (ROOT / f"docs/{page}.md").read_text().split("\n## ")
    ]
    (text,) = [each for each in sections if each.startswith(f"{section}\n")]
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


# The file that a section adds: its block of Python with an entry, or else its last one.
ADDED = {
    "Your own dataset": "data/datasets/stripes.py",
    "Your own network": "networks/tiny.py",
    "Your own learner": "learners/entropy.py",
    "Your own algorithm": "algorithms/fedadagrad.py",
}


@pytest.fixture(scope="module")
def extended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """A copy of the project with one file each that docs/EXTENDING.md and docs/DATA.md add to it, and nothing else."""
    folder = tmp_path_factory.mktemp("extended")
    for name in ("main.py", "parser.py", "data", "fedmatch_tf", "study", "tests"):
        source = ROOT / name
        (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
    for section, file in ADDED.items():
        blocks = documented_code(section)
        code = next((block for block in blocks if "ENTRY = " in block), blocks[-1])
        (folder / "fedmatch_tf" / file).write_text(code)
    with CommandServer(folder) as commands:
        yield Shell(folder, commands)


def test_the_documented_dataset_network_and_learner_are_known_found_and_trained_on(extended: Shell) -> None:
    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "main.py", *arguments]
        return subprocess.run(
            command, cwd=extended.cwd, env={**os.environ, **variables}, capture_output=True, text=True
        )

    help_text = " ".join(run("--task=lc-biid-stripes", "--help").stdout.split())
    assert "own,stripes}" in help_text
    assert "mlp, tiny, package" in help_text
    assert "local-entropy" in help_text
    assert "examples set aside for testing; default: 25" in help_text
    assert_refused(run("--task=lc-biid-stripe"), "digits,own,stripes}")
    assert_refused(run("--task=lc-biid-stripes", "--arch=tiny", "--image-size=12"), "expected at least 16 for tiny")
    gen_data = ("--work-type=gen_data", "--task=lc-biid-stripes", *TINY, "--arch=tiny")
    assert_refused(run(*gen_data, FEDMATCH_DATA=str(extended.cwd / "none")), r"stripes.npz (x_train, y_train")
    (extended.cwd / "mine").mkdir()
    save_npz(extended.cwd / "mine" / "stripes.npz", *made_up_images(150, num_classes=3, size=20))
    made = run(*gen_data, FEDMATCH_DATA=str(extended.cwd / "mine"))
    assert made.returncode == 0, made.stderr
    manifest = json.loads((extended.cwd / "datasets" / "lc-biid-stripes" / "manifest.json").read_text())
    assert manifest["class_names"] == ["flat", "rising", "falling"]
    assert {"test_stripes.npy", "s_stripes_2.npy", "u_stripes_2.npy"} <= set(manifest["files"])
    arguments = ("--task=lc-biid-stripes", "--model=fedprox-entropy", *TINY, "--arch=tiny")
    trained = extended.commands.run(*arguments, cwd=extended.cwd)
    assert trained.returncode == 0, trained.stderr
    lines = (extended.cwd / trained.stdout.splitlines()[-1] / "rounds.jsonl").read_text().splitlines()
    assert [json.loads(line)["confident"] for line in lines] == [1.0, 1.0]


def test_the_documented_algorithm_remembers_its_squares_when_a_run_goes_on(extended: Shell) -> None:
    def state(folder: Path) -> dict[str, np.ndarray]:
        with np.load(extended.cwd / "outputs" / "check_pts" / folder.name / "state.npz") as file:
            return {name: file[name] for name in ("sigma", "memory_0")}

    unbroken = state(extended.train_in("lc-biid-own", "fedadagrad-sl", "--num-rounds=3"))
    folder = extended.train_in("lc-biid-own", "fedadagrad-sl", "--num-rounds=2")
    after_two = state(folder)
    result = extended.commands.run("--resume", str(folder), "--num-rounds=3", "--quiet", cwd=extended.cwd)
    assert result.returncode == 0, result.stderr
    after_three = state(folder)
    for name, value in after_three.items():
        np.testing.assert_array_equal(value, unbroken[name])
    assert (after_three["memory_0"] >= after_two["memory_0"]).all()
    assert (after_three["memory_0"] > after_two["memory_0"]).any()


def test_the_documented_algorithm_divides_its_steps_by_those_so_far() -> None:
    (code,) = documented_code("Your own algorithm")
    names: dict[str, Any] = {"__name__": "fedadagrad"}
    exec(compile(code, "docs/EXTENDING.md", "exec"), names)
    algorithm = names["FedAdagrad"](make_config("lc-biid-c10", model="fedavg-sl"))

    def one_weight(value: float) -> Params:
        return Params(np.array([value], np.float32))

    def step(state: ServerState, *uploads: float) -> ServerState:
        total = algorithm.empty(state, [1] * len(uploads))
        for client, value in enumerate(uploads):
            total = algorithm.add(total, Update(client, one_weight(value), 1))
        after: ServerState = algorithm.finish(state, total)
        return after

    start = ServerState(0, one_weight(1.0), Plateau(0.1, 1.0, 1), {})
    first = step(start, 2.0, 4.0)  # the mean is 3, so the step is 2, and its square 4: 1 + 0.01 x 2 / 2.001
    assert (first.params.sigma.tolist(), first.memory[0].tolist()) == ([pytest.approx(1.009995)], [4.0])
    theta = float(first.params.sigma[0])
    second = step(first, theta - 1.5, theta - 1.5)  # a step of -1.5, squares of 6.25: -0.01 x 1.5 / 2.501
    assert second.params.sigma.tolist() == pytest.approx([theta - 0.0059976], abs=1e-6)


def own_network(cwd: Path) -> tuple[str, ...]:
    """The documented network in that directory, and the flags of a run with it."""
    code, *_ = documented_code("Your own network")
    (cwd / "mynet.py").write_text(code)
    x, y = made_up_images(150, num_classes=5, size=20)
    save_npz(cwd / "own.npz", x, y)
    others = [flag for flag in TINY if not flag.startswith(("--arch", "--backend", "--threads"))]
    return ("--task=lc-biid-own", "--source=own.npz", "--arch=mynet:small", *others)


def checkpoint(cwd: Path, run: str) -> Path:
    return cwd / "outputs" / "check_pts" / Path(run).name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_documented_network_trains_in_workers_goes_on_starts_others_and_is_exported(tmp_path: Path) -> None:
    flags = own_network(tmp_path)
    first = run_main(*flags, "--workers=2", "--threads-per-worker=1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    run = first.stdout.splitlines()[-1]
    kernels = [(3, 3, 3, 32), (3, 3, 32, 64), (64, 5)]
    norms = [(32,), (32,), (64,), (64,)]
    with np.load(checkpoint(tmp_path, run) / "init.npz") as start:
        assert [start[f"sigma_{n}"].shape for n in range(7)] == kernels + norms
        assert [set(start[f"sigma_{n}"].tolist()) for n in range(3, 7)] == [{1.0}, {0.0}, {1.0}, {0.0}]
    num_kernels, num_all = 864 + 18432 + 320, 864 + 18432 + 320 + 192
    line = json.loads((tmp_path / run / "rounds.jsonl").read_text().splitlines()[0])
    assert (line["s2c"]["sigma"], line["s2c"]["psi"]) == (1.0, pytest.approx(num_kernels / num_all))
    assert line["s2c"]["bytes"] == 4 * (num_kernels + num_all)
    with np.load(checkpoint(tmp_path, run) / "state.npz") as state:
        assert (len(state["sigma"]), len(state["psi"])) == (num_all, num_kernels)
        assert (state["sigma"][num_kernels:] != np.repeat([1.0, 0.0, 1.0, 0.0], [32, 32, 64, 64])).any(), "it learns"
    going_on = run_main("--resume", run, "--num-rounds=3", "--quiet", cwd=tmp_path)
    assert going_on.returncode == 0, going_on.stderr
    unbroken = run_main(*flags, "--num-rounds=3", "--backend=inline", "--threads-per-worker=1", cwd=tmp_path)
    ends = [checkpoint(tmp_path, each) / "state.npz" for each in (run, unbroken.stdout.splitlines()[-1])]
    with np.load(ends[0]) as resumed, np.load(ends[1]) as whole:
        for name in ("sigma", "psi"):
            np.testing.assert_array_equal(resumed[name], whole[name])
    before = {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()}
    code = (tmp_path / "mynet.py").read_text()
    (tmp_path / "mynet.py").write_text(code.replace("(32, 64)", "(32, 48)"))
    changed = run_main("--resume", run, "--num-rounds=4", "--backend=inline", cwd=tmp_path)
    assert_refused(changed, "Has its code changed since the run?")
    after = {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()}
    differing = {path.name for path in before if after.get(path) != before[path]}
    assert not {name for name in differing if not name.startswith("events.")}, "a mistake changes nothing"
    (tmp_path / "mynet.py").write_text(code)
    assert run_main("--work-type=export", f"--run={run}", "--to=m.keras", cwd=tmp_path).returncode == 0
    count = "import tensorflow as tf; print(tf.keras.models.load_model('m.keras').count_params())"
    alone = [sys.executable, "-c", count]
    counted = subprocess.run(alone, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert counted.stdout.split() == [str(num_all)]
    weights = f"--init-weights={checkpoint(tmp_path, run) / 'init.npz'}"
    other = run_main(*flags, "--model=fedavg-fixmatch", weights, "--backend=inline", "--num-rounds=1", cwd=tmp_path)
    assert other.returncode == 0, other.stderr


@pytest.fixture(scope="module")
def unusable(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose module has networks that can't be used."""
    folder = tmp_path_factory.mktemp("unusable")
    (folder / "unusable.py").write_text(
        "import sys\n\nimport tensorflow as tf\n\nlayers = tf.keras.layers\n\n"
        "class Rude(Exception):\n    def __str__(self):\n        raise ValueError('no text')\n\n"
        "def rude(x, n, conv, dense):\n    raise Rude\n\n"
        "def leaves(x, n, conv, dense):\n    sys.exit()\n\n"
        "def nothing(x, n, conv, dense):\n    dense(n)\n\n"
        "def batch(x, n, conv, dense):\n"
        "    return dense(n)(layers.Flatten()(layers.BatchNormalization()(x)))\n"
    )
    (folder / "leaving.py").write_text("import sys\n\nsys.exit(0)\n")
    (folder / "leaving_package").mkdir()
    (folder / "leaving_package" / "__init__.py").write_text("raise SystemExit\n")
    (folder / "leaving_package" / "net.py").touch()
    return folder


@pytest.mark.parametrize(
    ("arch", "message"),
    [
        ("leaving:small", "the module leaving can't be imported: SystemExit: 0 ("),
        ("leaving_package.net:small", "leaving_package.net can't be imported: SystemExit ("),
        ("unusable:leaves", "unusable:leaves could not be built for images [20, 20, 3]: SystemExit ("),
        ("unusable:rude", "unusable:rude could not be built for images [20, 20, 3]: Rude ("),
        ("sys:exit", "sys:exit could not be built for images [20, 20, 3]: TypeError: "),
        ("absent:small", "expected a module absent, which the network is in, found none"),
        ("unusable.py:small", "did you mean unusable?"),
        ("unusable:absent", "expected a function absent in the module unusable"),
        ("unusable:nothing", "it returned nothing"),
        ("no network", "resnet9, alexnet, wrn28_2, resnet8, mlp, package.module:function or a file"),
        ("unusable:batch", "BatchNormalization layer"),
    ],
)
def test_a_network_that_cannot_be_used_is_one_message(
    arch: str, message: str, unusable: Path, commands: CommandServer
) -> None:
    result = commands.run(*own_network(unusable), f"--arch={arch}", "--backend=inline", cwd=unusable)
    assert_refused(result, message)
    assert not (unusable / "outputs").exists()


@pytest.mark.slow
def test_a_network_of_ones_own_reaches_the_actors_of_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements/ray.txt")
    flags = own_network(tmp_path)
    sigmas = []
    for backend in ("ray", "inline"):
        result = run_main(*flags, f"--backend={backend}", "--threads-per-worker=1", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        with np.load(checkpoint(tmp_path, result.stdout.splitlines()[-1]) / "state.npz") as state:
            sigmas.append(state["sigma"])
    np.testing.assert_array_equal(*sigmas)
