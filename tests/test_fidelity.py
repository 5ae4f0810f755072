"""The original's traces replayed: every number that it logged, within ten times the spread of its own two runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.config import Config, make_config
from fedmatch_tf.data import files
from fedmatch_tf.federation import loop, server
from fedmatch_tf.federation.tasks import ClientResult, ClientTask, InitTask, ServerResult
from fedmatch_tf.learners.learner import Terms
from fedmatch_tf.workers.choose import make_worker
from fedmatch_tf.workers.inline import InlineBackend
from tests.conftest import ORIGINAL, run_main
from tests.networks.test_networks import RESNET9
from tests.stand_in import MemoryStore

pytestmark = pytest.mark.timeout(600)


def problem(seed: int = 67, clients: int = 4) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """The images and labels that the traces were made on."""
    rng = np.random.default_rng(seed)
    pattern = rng.standard_normal((10, 32, 32, 3))

    def draw(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        noise = rng.standard_normal((len(y), 32, 32, 3))
        return np.clip(127 + 40 * pattern[y] + 25 * noise, 0, 255).astype(np.uint8), y

    parts = {}
    for client in range(clients):
        parts[f"s{client}"] = draw(np.tile(np.arange(10), 2))
        parts[f"u{client}"] = draw(np.tile(np.arange(10), 4))
    parts["s"] = draw(np.tile(np.arange(10), 4))
    for name in ("valid", "test"):
        parts[name] = draw(np.tile(np.arange(10), 5))
    return parts


def prepare(folder: Path, scenario: str) -> Path:
    """Writes partitions as the original would, starting weights and the probe image."""
    parts, data = problem(), folder / f"{scenario}-biid-c10"
    data.mkdir(parents=True)
    names = {"valid_cifar_10.npy": "valid", "test_cifar_10.npy": "test"}
    for client in range(4):
        names[f"u_cifar_10_{client}.npy"] = f"u{client}"
        if scenario == "lc":
            names[f"s_cifar_10_{client}.npy"] = f"s{client}"
    if scenario == "ls":
        names["s_cifar_10.npy"] = "s"
    for name, part in names.items():
        (data / name).write_bytes(files.encode(name, *parts[part], 10))
    rng = np.random.default_rng(11)
    kernels = [(rng.standard_normal(s) * np.sqrt(1.0 / np.prod(s[:-1]))).astype(np.float32) for s in RESNET9]
    np.savez(folder / "init.npz", **{f"sigma_{i}": kernel for i, kernel in enumerate(kernels)})
    as_objects = np.empty(len(kernels), object)
    as_objects[:] = kernels
    np.save(folder / "init_sig.npy", as_objects, allow_pickle=True)
    np.save(folder / "probe.npy", np.random.default_rng(5).random((1, 32, 32, 3)).astype(np.float32))
    return folder


def settings_of(scenario: str, folder: Path) -> dict[str, Any]:
    return {
        "num_clients": 4,
        "num_rounds": 4,
        "frac_clients": 1.0,
        "lr": 1e-4,
        "helper_interval": 2,
        "batch_size_test": 25,
        "confidence": 0.157 if scenario == "lc" else 0.1385,
        "batch_size_client": 10 if scenario == "lc" else 20,
        "batch_size_server": 20,
        "eval_clients": "always",
        "augment": "none",
        "dataset_path": str(folder),
        "init_weights": str(folder / ("init.npz" if scenario == "lc" else "init_sig.npy")),
        "probe_image": str(folder / "probe.npy"),
        "backend": "inline",
    }


def trace_of(scenario: str) -> dict[str, Any]:
    trace: dict[str, Any] = json.loads((ORIGINAL / f"trace_{scenario}.json").read_text())
    return trace


def same_helpers(ours: tuple[int, ...], theirs: list[int] | None) -> bool:
    """The same two helpers; which of them is nearer may differ between two runs of the original as well."""
    return sorted(ours) == sorted(theirs or [])


class Watched:
    """A worker whose clients' steps are kept."""

    def __init__(self, config: Config, steps: dict[tuple[int, int], list[Terms]]) -> None:
        self.worker, self.steps, self.of_task = make_worker(config), steps, list[Terms]()
        learner = self.worker._learner
        client_steps = learner.client_steps
        learner.client_steps = lambda batch: [partial(self.watched, step) for step in client_steps(batch)]

    def watched(self, step: Callable[[], Terms]) -> Terms:
        self.of_task.append(step())
        return self.of_task[-1]

    def run(self, task: Any) -> Any:
        if isinstance(task, ClientTask):
            self.of_task = self.steps[task.round_num, task.client] = []
        return self.worker.run(task)


class Replay:
    """One run of four rounds through the library, with every step and upload at hand."""

    def __init__(self, config: Config) -> None:
        self.results: list[dict[int, ClientResult]] = []
        self.steps: dict[tuple[int, int], list[Terms]] = {}  # by round and client
        self.server_results: list[ServerResult] = []
        self.rounds = []
        worker = InlineBackend(lambda: Watched(config, self.steps)).__enter__()
        (start,) = worker.map([InitTask()])
        replay = self

        class Watching:
            def map(self, tasks: Any) -> list[Any]:
                results = list(worker.map(tasks))
                if isinstance(results[0], ClientResult):
                    replay.results.append({result.client: result for result in results})
                replay.server_results += [result for result in results if isinstance(result, ServerResult)]
                return results

        for record, state in loop.run(config, server.initial_state(config, start.params), Watching(), MemoryStore()):
            self.rounds.append((record, state))


@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_every_step_embedding_helper_and_weight_is_the_originals(scenario: str, tmp_path: Path) -> None:
    folder = prepare(tmp_path, scenario)
    trace = trace_of(scenario)
    tolerance = {name: 10 * value for name, value in trace["tolerance"].items() if name != "note"}
    # Two rounds, the second with helpers; the command line's test below goes through all four.
    replay = Replay(make_config(f"{scenario}-biid-c10", **{**settings_of(scenario, folder), "num_rounds": 2}))
    assert len(replay.rounds) == len(replay.results) == 2
    for (record, state), results, expected in zip(replay.rounds, replay.results, trace["rounds"]):
        for client, result in results.items():
            steps = [step for step in expected["steps"] if step["client"] == client]
            taken = replay.steps[record.round, client]
            assert [step["kind"] for step in steps] == ["s" if step.kept is None else "u" for step in taken]
            for ours, step in zip(taken, steps):
                assert float(ours.losses["total"]) == pytest.approx(step["loss"], rel=tolerance["step_loss_rel"])
                if ours.kept is not None:
                    compare_unsupervised(ours, step, trace["options"], tolerance)
            theirs = expected["embedding"][str(client)]
            assert result.embedding is not None
            np.testing.assert_allclose(result.embedding, theirs, atol=tolerance["embedding"])
            assert same_helpers(tuple(record.helpers.get(client, ())), expected["helpers"][str(client)])
        compare_weights(state.params.sigma, expected["sigma"], tolerance)
        compare_weights(state.params.parts[1], expected["psi"], tolerance)
    epochs = trace["server_training"][:2] if scenario == "ls" else []
    assert len(epochs) == len(replay.server_results) == (2 if scenario == "ls" else 0)
    for trained, (record, _), expected in zip(replay.server_results, replay.rounds, epochs):
        assert record.actors is not None
        scores = record.actors.server
        assert scores.valid_loss == pytest.approx(expected["valid_loss"], abs=tolerance["score_valid_loss"])
        assert scores.valid_acc == pytest.approx(expected["valid_acc"], abs=0.021)
        assert scores.test_loss == pytest.approx(expected["test_loss"], abs=tolerance["score_test_loss"])
        compare_weights(trained.params.sigma, expected["sigma"], tolerance)


def compare_unsupervised(
    ours: Terms, theirs: dict[str, Any], options: dict[str, Any], tolerance: dict[str, float]
) -> None:
    """A row at the edge of confidence, or a vote between two equal classes, may fall either way: one per step.

    The L2 term is a million times as large as the two terms of the consistency, so they are compared apart.
    """
    icc, pseudo_ce = (np.nan_to_num(float(ours.losses[name])) for name in ("inter_client", "pseudo"))  # 0 if absent
    assert icc == pytest.approx(options["lambda_i"] * theirs["icc"], abs=options["lambda_i"] * tolerance["icc"])
    assert ours.kept is not None
    assert ours.labels is not None
    kept = np.flatnonzero(ours.kept.numpy())
    our_rows = dict(zip(kept.tolist(), ours.labels.numpy()[kept].tolist()))
    their_rows = dict(zip(theirs["confident_rows"], theirs["pseudo_labels"]))
    assert len(our_rows.keys() ^ their_rows.keys()) <= 1
    assert sum(their_rows.get(row, label) != label for row, label in our_rows.items()) <= 1
    if our_rows == their_rows:
        limit = options["lambda_a"] * tolerance["pseudo_ce"]
        assert pseudo_ce == pytest.approx(options["lambda_a"] * theirs["pseudo_ce"], abs=limit)


def compare_weights(ours: np.ndarray, theirs: list[dict[str, Any]], tolerance: dict[str, float]) -> None:
    begin = 0
    for shape, expected in zip(RESNET9, theirs):
        kernel = ours[begin : begin + int(np.prod(shape))].astype(np.float64)
        begin += len(kernel)
        assert np.linalg.norm(kernel) == pytest.approx(expected["l2"], rel=tolerance["weights_l2_rel"])
        np.testing.assert_allclose(kernel[:4], expected["head"], atol=tolerance["weights_head"])
    assert begin == len(ours)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["lc", "ls"])
def test_the_log_files_of_the_command_line_are_the_originals(scenario: str, tmp_path: Path) -> None:
    folder = prepare(tmp_path / "data", scenario)
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings_of(scenario, folder).items()]
    result = run_main("--task", f"{scenario}-biid-c10", "--model", "fedmatch", *flags, "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    run = tmp_path / result.stdout.splitlines()[-1]
    trace = trace_of(scenario)
    tolerance = {name: 10 * value for name, value in trace["tolerance"].items() if name != "note"}
    log, expected = json.loads((run / "server.txt").read_text()), trace["server"]
    for way in ("s2c", "c2s"):
        assert log[way].keys() == expected[way].keys()
        for name, values in expected[way].items():
            np.testing.assert_allclose(log[way][name], values, atol=tolerance[way], err_msg=f"{way} {name}")
    assert log["scores"].keys() == expected["scores"].keys()
    losses = {"aggr_lss": "aggr_lss", "valid_loss": "score_valid_loss", "test_loss": "score_test_loss"}
    assert expected["scores"].pop("train_loss") == [], "the original has the key and never fills it"
    assert len(log["scores"]["train_loss"]) == (4 if scenario == "ls" else 0), "ours is of the server's own epochs"
    for name, values in expected["scores"].items():
        limit = tolerance[losses[name]] if name in losses else 0.021  # accuracies are multiples of 1/50
        assert len(log["scores"][name]) == len(values), name
        np.testing.assert_allclose(log["scores"][name], values, atol=limit, err_msg=name)
    for client in range(4):
        compare_client_log(run, client, trace, tolerance)
    lines = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    for line, round_trace in zip(lines, trace["rounds"]):
        for client, theirs in round_trace["helpers"].items():
            assert same_helpers(tuple(line["helpers"].get(client, ())), theirs)
    saved = np.load(tmp_path / "outputs" / "check_pts" / run.name / "state.npz")
    compare_weights(saved["sigma"], trace["rounds"][-1]["sigma"], tolerance)
    compare_weights(saved["psi"], trace["rounds"][-1]["psi"], tolerance)


def compare_client_log(run: Path, client: int, trace: dict[str, Any], tolerance: dict[str, float]) -> None:
    log = json.loads((run / f"client-{client}.txt").read_text())
    for number, expected in enumerate(round_trace["clients"][str(client)] for round_trace in trace["rounds"]):
        for way in ("s2c", "c2s"):
            assert log[way].keys() == expected[way].keys()
            for name, value in expected[way].items():
                assert log[way][name][number] == pytest.approx(value, abs=tolerance[way]), (client, number, name)
        for name, value in expected["scores"].items():
            limit = 0.021 if name.endswith("acc") else tolerance[f"score_{name}"]
            assert log["scores"][name][number] == pytest.approx(value, abs=limit), (client, number, name)
