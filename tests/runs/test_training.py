"""Training through the command line on small data: what it writes, that it repeats itself, what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import make_config
from fedmatch_tf.data import files
from fedmatch_tf.federation.inputs import read_kernels, read_probe
from fedmatch_tf.networks.build import original_kernels
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import ensure_partitions
from tests.command_server import CommandServer
from tests.conftest import ROOT, assert_refused, made_up_images, needs_bfloat16, run_main, save_npz
from tests.networks.test_networks import ALEXNET

# Images of 24x24 and AlexNet keep a round short; 2 of 4 clients per round.
TINY = (
    "--arch=alexnet --image-size=24 --num-clients=4 --frac-clients=0.5 --num-test=30 --num-valid=20 "
    "--labels-per-class=2 --num-rounds=3 --helper-interval=2 --confidence=0.21 --seed=5 --backend=inline "
    "--threads-per-worker=1"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    x, y = made_up_images(300, num_classes=5, size=24)
    return save_npz(tmp_path_factory.mktemp("source") / "own.npz", x, y)


def train(
    source: Path, cwd: Path, *flags: str, task: str = "lc-biid-own", run: Any = run_main
) -> subprocess.CompletedProcess[str]:
    result: subprocess.CompletedProcess[str] = run(
        "--task", task, "--source", str(source), *TINY.split(), *flags, cwd=cwd
    )
    return result


def folder_of(result: subprocess.CompletedProcess[str], cwd: Path) -> Path:
    assert result.returncode == 0, result.stderr
    return cwd / result.stdout.splitlines()[-1]


def rounds(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def first_run(
    source: Path, tmp_path_factory: pytest.TempPathFactory, commands: CommandServer
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    cwd = tmp_path_factory.mktemp("first")
    result = train(source, cwd, run=commands.run)
    return folder_of(result, cwd), result


def test_a_run_writes_its_records_and_prints_its_folder_last(
    first_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, result = first_run
    assert (folder.parent.parent.parent / "datasets" / "lc-biid-own" / "manifest.json").exists()  # made on the way
    assert folder.parent.name == "logs"
    assert folder.name[8] == "-"
    assert folder.name.endswith("-fedmatch-lc-biid-own")
    lines = rounds(folder)
    assert [line["round"] for line in lines] == [0, 1, 2]
    keys = "round task_step clients test_acc test_loss local_test_acc valid_loss s2c c2s confident pseudo_label_acc"
    later = (
        "train_loss confident_rows norms global_valid_loss server_lr dropped test_acc_sigma test_acc_psi labeled_acc "
        "hosts"
    )
    assert list(lines[0]) == [*keys.split(), "helpers", "lr", "seconds", *later.split()]
    for line in lines:
        assert len(line["clients"]) == 2
        assert 0 <= line["test_acc"] <= 1
        assert line["local_test_acc"] is None  # batch tasks don't test at clients unless told to
        for way in ("s2c", "c2s"):
            assert list(line[way]) == ["sum", "sigma", "psi", "helpers", "bytes"]
            parts = line[way]["sigma"] + line[way]["psi"] + line[way]["helpers"]
            assert line[way]["sum"] == pytest.approx(parts)
    assert lines[0]["s2c"]["sum"] == 2.0
    assert lines[0]["helpers"] == {}
    settings = json.loads((folder / "config.json").read_text())
    assert settings["settings"]["num_clients"] == 4
    assert settings["versions"]["tensorflow"].startswith("2.")
    bases = [name for name in ("tensorflow-addons", "tf-keras") if name in settings["versions"]]
    assert len(bases) == 1, "one of them tells the base"
    assert "round 3/3" in result.stderr
    assert "test accuracy" in result.stdout
    assert (folder / "curve.png").read_bytes()[:4] == b"\x89PNG"
    state = np.load(folder.parent.parent / "check_pts" / folder.name / "state.npz")
    assert int(state["rounds_done"]) == 3
    assert state["sigma"].shape == state["psi"].shape
    sigma, psi = state["sigma"].astype(float), state["psi"].astype(float)
    sizes = np.linalg.norm(sigma), np.linalg.norm(psi)
    assert tuple(lines[-1]["norms"].values()) == pytest.approx((*sizes, sigma @ psi / sizes[0] / sizes[1]))
    for line in lines:
        total, *terms = line["train_loss"].values()
        assert total == pytest.approx(sum(term or 0.0 for term in terms))
        assert line["train_loss"]["supervised"] > 0
        assert line["train_loss"]["proximal"] is None
        assert (line["confident_rows"] > 0) == (line["confident"] > 0) == (line["train_loss"]["pseudo"] is not None)


def test_logs_have_the_originals_keys_and_one_entry_a_round(
    first_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    folder, _ = first_run
    lines = rounds(folder)
    server = json.loads((folder / "server.txt").read_text())
    assert {way: list(server[way]) for way in ("c2s", "s2c")} == {
        "c2s": ["sum", "sig", "psi"],
        "s2c": ["sum", "sig", "psi", "hlp"],
    }
    assert server["scores"]["aggr_acc"] == [line["test_acc"] for line in lines]
    assert server["s2c"]["sum"] == [line["s2c"]["sum"] for line in lines]
    assert server["options"]["scenario"] == "labels-at-client"
    visits: dict[int, int] = {}
    for line in lines:
        for client in line["clients"]:
            visits[client] = visits.get(client, 0) + 1
    logs = {int(path.stem.split("-")[1]): json.loads(path.read_text()) for path in folder.glob("client-*.txt")}
    assert logs.keys() == visits.keys()
    for client, log in logs.items():
        scores = log["scores"]
        assert len(log["s2c"]["ratio"]) == len(scores["valid_loss"]) == len(scores["train_loss"]) == visits[client]
        assert log["s2c"]["ratio"][0] == 2.0  # a first visit is counted in full
        assert log["scores"]["test_acc"] == []


def without_time(folder: Path) -> list[dict[str, Any]]:
    return [{**line, "seconds": None} for line in rounds(folder)]


@pytest.fixture(scope="module")
def inline_runs(
    source: Path,
    tmp_path_factory: pytest.TempPathFactory,
    first_run: tuple[Path, subprocess.CompletedProcess[str]],
    commands: CommandServer,
) -> dict[str, Path]:
    """A run in one process for each scenario; with labels at the server, its clients test as well."""
    cwd = tmp_path_factory.mktemp("inline")
    labels_at_server = train(source, cwd, *FLAGS["ls-bimb-own"], task="ls-bimb-own", run=commands.run)
    return {"lc-biid-own": first_run[0], "ls-bimb-own": folder_of(labels_at_server, cwd)}


FLAGS: dict[str, tuple[str, ...]] = {"lc-biid-own": (), "ls-bimb-own": ("--eval-clients=always",)}


def assert_same_run(ours: Path, theirs: Path) -> None:
    assert without_time(ours) == without_time(theirs)
    states = [np.load(run.parent.parent / "check_pts" / run.name / "state.npz") for run in (ours, theirs)]
    for part in ("sigma", "psi", "embeddings"):
        np.testing.assert_array_equal(states[0][part], states[1][part])
    logs = {path.name for path in theirs.glob("*.txt")}
    assert {path.name for path in ours.glob("*.txt")} == logs
    for name in logs:
        both = [json.loads((run / name).read_text()) for run in (ours, theirs)]
        assert all(both[0][key] == both[1][key] for key in ("s2c", "c2s", "scores"))


needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed: pip install -r requirements/ray.txt"
)


@pytest.mark.parametrize(
    ("task", "backend", "workers"),
    [
        ("lc-biid-own", "process", 2),
        pytest.param("ls-bimb-own", "process", 2, marks=pytest.mark.slow),
        pytest.param("lc-biid-own", "ray", 2, marks=[needs_ray, pytest.mark.slow]),
        pytest.param("ls-bimb-own", "ray", 2, marks=[needs_ray, pytest.mark.slow]),
        pytest.param("lc-biid-own", "process", 3, marks=pytest.mark.slow),
        pytest.param("ls-bimb-own", "process", 3, marks=pytest.mark.slow),
        pytest.param("lc-biid-own", "process", 1, marks=pytest.mark.slow),
    ],
)
def test_the_result_is_the_same_bit_for_bit_whoever_computes_it(
    task: str, backend: str, workers: int, source: Path, tmp_path: Path, inline_runs: dict[str, Path]
) -> None:
    flags = (f"--backend={backend}", f"--workers={workers}", *FLAGS[task])
    result = train(source, tmp_path, *flags, task=task)
    ours = folder_of(result, tmp_path)
    if backend == "process":
        said = re.compile(r"(\w[\w. -]* \.\.\.|round \d/3[: ].*|3 rounds, about .*)")
        assert [line for line in result.stderr.splitlines() if not said.fullmatch(line)] == [], "TensorFlow is silent"
    assert_same_run(ours, inline_runs[task])
    assert any(line["confident"] > 0 for line in rounds(ours)), "augmentation must have had something to do"
    assert any(line["helpers"] for line in rounds(ours))


@pytest.mark.slow
def test_a_run_killed_in_mid_round_goes_on_to_the_same_bits(
    source: Path, tmp_path: Path, inline_runs: dict[str, Path]
) -> None:
    command = [sys.executable, str(ROOT / "main.py"), "--task", "lc-biid-own", "--source", str(source), *TINY.split()]
    process = subprocess.Popen(
        [*command, "--backend=process", "--workers=2"], cwd=tmp_path, stderr=subprocess.DEVNULL, start_new_session=True
    )
    while process.poll() is None and not list(tmp_path.glob("outputs/logs/*/rounds.jsonl")):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    (folder,) = (tmp_path / "outputs" / "logs").iterdir()
    assert len(rounds(folder)) < 3
    result = run_main("--resume", str(folder), "--workers", "1", cwd=tmp_path)
    assert_same_run(folder_of(result, tmp_path), inline_runs["lc-biid-own"])
    assert_refused(
        run_main("--resume", str(folder), "--lr", "1", cwd=tmp_path), "--lr: the run has 0.001, received 1.0"
    )


RECIPE = """
import sys
import fedmatch_tf as fm

if __name__ == "__main__":
    settings = dict(
        source=sys.argv[1], arch="alexnet", image_size=24, num_clients=4, frac_clients=0.5, num_test=30, num_valid=20,
        labels_per_class=2, num_rounds=3, helper_interval=2, confidence=0.21, seed=5, threads_per_worker=1,
        backend="inline", num_epochs_client=2, num_epochs_server=2, batch_size_server=5, weak="flip-crop",
        lr_schedule="cosine", momentum=0.9, nesterov=True, server_momentum=0.5, clip_norm=1.0,
    )
    print(fm.train("ls-biid-own", output_path="whole", **settings).folder)
    begun = fm.train("ls-biid-own", output_path="begun", on_round=lambda record: False, **settings).folder
    print(fm.resume(begun, backend="process", workers=2).folder)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_the_fields_recipe_goes_on_to_the_same_bits_with_any_workers(source: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    command = [sys.executable, str(tmp_path / "recipe.py"), str(source)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    whole, resumed = (tmp_path / folder for folder in done.stdout.split())
    assert_same_run(resumed, whole)
    first, *_, last = rounds(whole)
    assert (first["lr"], last["lr"]) == pytest.approx((1e-3, 2.5e-4))  # (1 + cos(2 pi / 3)) / 2 is a quarter
    assert any(line["helpers"] for line in rounds(whole))
    assert any(line["confident"] > 0 for line in rounds(whole))
    memories = [np.load(run.parent.parent / "check_pts" / run.name / "state.npz") for run in (whole, resumed)]
    assert not memories[0]["memory_0"].any(), "the server trains sigma, so its step to the clients' mean is 0"
    assert memories[0]["memory_1"].any()
    np.testing.assert_array_equal(memories[0]["memory_1"], memories[1]["memory_1"])


def test_labels_at_server_trains_sigma_at_the_server_and_uploads_psi_only(inline_runs: dict[str, Path]) -> None:
    folder = inline_runs["ls-bimb-own"]
    for line in rounds(folder):
        assert line["c2s"]["sigma"] == 0
        assert line["local_test_acc"] is not None
    server = json.loads((folder / "server.txt").read_text())
    assert len(server["scores"]["valid_loss"]) == len(server["scores"]["test_acc"]) == 3


def test_the_paper_profile_and_streaming_train_too(source: Path, tmp_path: Path, commands: CommandServer) -> None:
    flags = ("--num-steps=3", "--profile=paper", "--profile-run")
    folder = folder_of(train(source, tmp_path, *flags, task="lc-simb-own", run=commands.run), tmp_path)
    lines = rounds(folder)
    assert [line["task_step"] for line in lines] == [0, 1, 2]
    assert all(line["local_test_acc"] is not None for line in lines)
    (trace,) = folder.glob("tensorboard/plugins/profile/*/*.xplane.pb")
    assert b"unsupervised_step" in trace.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["fedmatch", "fedprox-uda"])
@pytest.mark.parametrize(
    "flags", [("--xla",), ("--precision=float16",), pytest.param(("--precision=bfloat16",), marks=needs_bfloat16)]
)
def test_xla_and_half_precision_train_every_kind_of_method(
    model: str, flags: tuple[str, ...], source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = tmp_path / "compiled"
    monkeypatch.setenv("XLA_FLAGS", f"--xla_dump_to={compiled}")  # what XLA compiles leaves a trace there
    common = (f"--model={model}", "--num-rounds=2", "--augment=none")
    plain = rounds(folder_of(train(source, tmp_path, *common, task="ls-biid-own"), tmp_path))
    assert not compiled.exists()
    time.sleep(1)  # runs are named by the second
    result = train(source, tmp_path, *common, *flags, task="ls-biid-own")
    folder = folder_of(result, tmp_path)
    for one, other in zip(rounds(folder), plain):
        assert one["test_loss"] == pytest.approx(other["test_loss"], rel=0.02)
        assert one["valid_loss"] == pytest.approx(other["valid_loss"], rel=0.02)
        if "--xla" not in flags:
            assert one["test_loss"] != other["test_loss"], "the flag reaches the worker"
    assert compiled.exists() == ("--xla" in flags)
    settings = json.loads((folder / "config.json").read_text())["settings"]
    assert settings["xla"] == ("--xla" in flags)
    assert settings["precision"] == ("float32" if "--xla" in flags else flags[0].split("=")[1])


@needs_bfloat16
@pytest.mark.slow
def test_bfloat16_has_the_same_bits_with_any_workers_and_goes_on_only_as_it_was(
    source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    folders = []
    for how in (("--workers=1",), ("--backend=process", "--workers=2")):
        (cwd := tmp_path / how[0]).mkdir()
        common = ("--precision=bfloat16", "--arch=resnet8", *how)
        folders.append(folder_of(train(source, cwd, *common, run=commands.run), cwd))
    one, two = (rounds(folder) for folder in folders)
    assert [{**line, "seconds": 0} for line in one] == [{**line, "seconds": 0} for line in two]
    refused = commands.run("--resume", str(folders[0]), "--precision=float32", cwd=tmp_path)
    assert_refused(refused, "--precision: the run has bfloat16, received float32")
    # An evaluation computes as the run did, unless it is told otherwise.
    state = (f"--run={folders[0]}", f"--output-path={tmp_path}", f"--dataset-path={tmp_path / '--workers=1/datasets'}")
    found = []
    for given in ((), ("--precision=float32",)):
        done = commands.run("--work-type", "evaluate", *state, *given, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        written = Path(done.stdout.splitlines()[-1]) / "evaluation.json"
        found.append(json.loads((tmp_path / written).read_text()))
    assert found[0]["accuracy"] == one[-1]["test_acc"]
    assert found[0]["loss"] != found[1]["loss"] == pytest.approx(found[0]["loss"], rel=0.02)


def test_a_partition_file_that_is_gone_is_missed_before_the_first_round(tmp_path: Path) -> None:
    config = make_config("lc-biid-digits", dataset_path=str(tmp_path))
    ensure_partitions(config, progress_for(True))
    (tmp_path / "lc-biid-digits" / "s_digits_3.npy").unlink()
    with pytest.raises(DataError, match=r"missing 1, such as s_digits_3\.npy\. Make the partitions again"):
        ensure_partitions(config, progress_for(True))


def test_partitions_that_do_not_match_the_run_are_refused(
    source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    assert train(source, tmp_path, "--work-type=gen_data", run=commands.run).returncode == 0
    shutil.copytree(tmp_path / "datasets" / "lc-biid-own", tmp_path / "theirs" / "lc-biid-own")
    (tmp_path / "theirs" / "lc-biid-own" / "manifest.json").unlink()
    result = train(source, tmp_path, "--dataset-path=theirs", "--num-clients=3", "--frac-clients=1", run=commands.run)
    assert_refused(result, "expected 3 clients and 1 steps, found files of 4 and 1")
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("flag", "content", "message"),
    [
        ("init-weights", {"sigma_0": np.zeros((4, 4, 3, 64))}, "missing sigma_1, sigma_2, sigma_3, sigma_4, sigma_5"),
        ("init-weights", {f"sigma_{i}": np.zeros((2, 2)) for i in range(6)}, "expected [4, 4, 3, 64], received [2, 2]"),
        ("init-weights", b"nonsense", "--init-weights:"),
        ("probe-image", np.zeros((1, 32, 32, 3), np.float32), "expected float32 [1, 24, 24, 3], received float32"),
        ("probe-image", np.zeros((1, 24, 24, 3)), "expected float32 [1, 24, 24, 3], received float64"),
        ("probe-image", np.full((1, 24, 24, 3), 2, np.float32), "expected values in [0, 1], received 2.0"),
        ("probe-image", np.full((1, 24, 24, 3), np.nan, np.float32), "expected values in [0, 1]"),
        ("probe-image", b"nonsense", "expected an .npy file"),
        ("probe-image", None, "No such file"),
    ],
)
def test_bad_weights_and_probe_images_are_refused(flag: str, content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("given.npz" if flag == "init-weights" else "given.npy")
    if isinstance(content, dict):
        np.savez(path, **content)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        np.save(path, content)
    readers: dict[str, Any] = {
        "init-weights": partial(read_kernels, shapes=ALEXNET),
        "probe-image": partial(read_probe, image_shape=(24, 24, 3)),
    }
    with pytest.raises(DataError) as error:
        readers[flag](path)
    assert message in str(error.value)
    assert f"--{flag}" in str(error.value)


def test_a_refused_input_exits_with_2_and_leaves_no_run(source: Path, tmp_path: Path, commands: CommandServer) -> None:
    np.savez(tmp_path / "given.npz", **{f"sigma_{i}": np.zeros((2, 2)) for i in range(6)})
    assert_refused(
        train(source, tmp_path, "--init-weights=given.npz", run=commands.run), "expected [4, 4, 3, 64], received [2, 2]"
    )
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize("name", ["init-weights", "probe-image"])
def test_an_input_that_is_not_there_is_refused_before_anything_is_made(
    name: str, source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    result = train(source, tmp_path, f"--{name}=absent", run=commands.run)
    assert_refused(result, f"--{name}: expected a file, found none at ")
    assert not (tmp_path / "datasets").exists()


def test_a_loss_that_explodes_stops_the_run_with_its_state_saved(
    source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    result = train(source, tmp_path, "--lr=1e30", run=commands.run)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "expected a finite loss, received " in result.stderr
    assert re.search(r"in round \d, client \d, step \d \((un)?supervised\)", result.stderr)
    (saved,) = (tmp_path / "outputs" / "check_pts").glob("*/state.npz")
    assert np.isfinite(np.load(saved)["sigma"]).all()


def start_of(folder: Path) -> dict[str, np.ndarray]:
    """The starting weights of that run."""
    with np.load(folder.parent.parent / "check_pts" / folder.name / "init.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("model", ["fedmatch", "fedavg-sl"])
def test_a_run_can_start_where_another_one_did(
    model: str, source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    def start(*flags: str) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
        common = (f"--model={model}", "--num-rounds=1", "--dataset-path", str(tmp_path / "data"))
        folder = folder_of(train(source, tmp_path, *common, *flags, run=commands.run), tmp_path)
        return without_time(folder), start_of(folder)

    first, kernels = start("--init-draws=independent")
    assert (kernels["sigma_0"] != original_kernels([(4, 4, 3, 64)], seed=5)[0]).all()
    assert list(kernels) == [f"sigma_{number}" for number in range(6)]
    np.savez(tmp_path / "elsewhere.npz", **kernels)
    again, same = start("--init-weights=elsewhere.npz")
    assert again == first
    assert all((same[name] == kernel).all() for name, kernel in kernels.items())


def test_the_official_profile_starts_with_the_originals_draw(
    first_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    np.testing.assert_array_equal(start_of(first_run[0])["sigma_0"], original_kernels([(4, 4, 3, 64)], seed=5)[0])


def test_the_originals_starting_weights_are_read(tmp_path: Path) -> None:
    kernels = np.empty(2, object)
    kernels[:] = [np.ones((2, 3), np.float32), np.zeros(4, np.float32)]
    np.save(tmp_path / "init_sig.npy", kernels, allow_pickle=True)
    first, second = read_kernels(tmp_path / "init_sig.npy", [(2, 3), (4,)])
    assert (first.tolist(), second.tolist()) == ([[1] * 3] * 2, [0] * 4)
    assert files.decode_npy((tmp_path / "init_sig.npy").read_bytes())[0].shape == (2, 3)


def test_an_interrupt_exits_with_130_and_saves_the_model(source: Path, tmp_path: Path) -> None:
    tiny = [*TINY.split(), "--model=fedavg-sl", "--num-rounds=500"]
    command = [sys.executable, str(ROOT / "main.py"), "--task", "lc-biid-own", "--source", str(source), *tiny]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list(tmp_path.glob("outputs/logs/*/rounds.jsonl")):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "python main.py --resume outputs/logs/" in errors
    (saved,) = (tmp_path / "outputs" / "check_pts").glob("*/state.npz")
    assert int(np.load(saved)["rounds_done"]) >= 1
    (picture,) = (tmp_path / "outputs" / "logs").glob("*/curve.png")
    assert picture.read_bytes()[:4] == b"\x89PNG"
