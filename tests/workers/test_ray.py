"""The same runs on a Ray cluster: a real one, of one or two nodes on this machine."""

from __future__ import annotations

import http.server
import multiprocessing
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

pytest.importorskip("ray", reason="Ray is not installed: pip install -r requirements/ray.txt")

from fedmatch_tf.config import Config, ConfigError, make_config
from fedmatch_tf.federation.tasks import InitTask
from fedmatch_tf.runs.partition_folder import ensure_partitions
from fedmatch_tf.workers import choose
from fedmatch_tf.workers.ray import RayBackend
from tests.conftest import kill, session
from tests.runs.stand_in_run import SETTINGS, content, finish, start, wait_for, wait_for_line

ROUND_2 = "fault-1-3"  # client 3 takes part in the second round
RAY = Path(sys.executable).with_name("ray")


def free_ports() -> list[int]:
    with socket.socket() as one, socket.socket() as other:
        for free in (one, other):
            free.bind(("127.0.0.1", 0))
        return [free.getsockname()[1] for free in (one, other)]


class Cluster:
    """Nodes of one CPU each, started as a user would."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        port, other = free_ports()
        self.address = f"127.0.0.1:{port}"
        head = ["--head", f"--port={port}", f"--ray-client-server-port={other}", f"--temp-dir={folder}"]
        self.nodes = [self._start(*head, "--include-dashboard=false")]

    def add_node(self) -> None:
        """Elsewhere by its address; Ray must not take it for the node of this machine, though they share a folder."""
        here = Path(self._folder) / "session_latest" / "node_ip_address.json"
        address = here.read_text() if here.exists() else None  # newer releases of Ray have none
        self.nodes.append(self._start(f"--address={self.address}", "--node-ip-address=127.0.0.2"))
        if address is not None:
            here.write_text(address)

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        said = Path(self._folder) / f"node-{time.monotonic_ns()}.txt"
        with said.open("w") as output:
            node = subprocess.Popen(
                [RAY, "start", "--block", "--num-cpus=1", "--num-gpus=0", "--disable-usage-stats", *arguments],
                cwd=self._folder,
                text=True,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        wait_for(node, lambda: "Ray runtime started" in said.read_text())
        assert node.poll() is None, said.read_text()
        return node

    def lose(self, node: subprocess.Popen[str]) -> None:
        """The node's processes die at once, as if its machine had."""
        kill(session(node.pid))
        node.wait()

    def actors(self, node: subprocess.Popen[str]) -> list[int]:
        """The node's processes that are at work on a task."""
        return session(node.pid, b"ray::_Actor.run")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with pytest.MonkeyPatch.context() as patch:  # as docs/CLUSTER.md says
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield from two_nodes()


def two_nodes() -> Iterator[Cluster]:
    folder = tempfile.mkdtemp(dir="/tmp")  # sockets need a short path
    cluster = Cluster(folder)
    cluster.add_node()
    yield cluster
    for node in cluster.nodes:
        cluster.lose(node)
    shutil.rmtree(folder, ignore_errors=True)


def run(cwd: Path, *arguments: str) -> Path:
    """The folder of a run in a process of its own, which takes Ray along when it ends."""
    code, out, errors = finish(start(cwd, *arguments))
    assert code == 0, errors
    return cwd / out.splitlines()[-1]


class Expected(NamedTuple):
    settings: list[str]
    end: Any


@pytest.fixture(scope="module")
def inline(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """How the run ends in one process."""
    settings = [*SETTINGS["lc"], "num_rounds=5", f"dataset_path={tmp_path_factory.mktemp('data')}"]
    return Expected(settings, content(run(tmp_path_factory.mktemp("inline"), *settings, "backend=inline")))


def on(cluster: Cluster) -> list[str]:
    return ["backend=ray", f"ray_address={cluster.address}"]


def leftovers(process: subprocess.Popen[str]) -> list[Path]:
    return list(Path("/tmp").glob(f"fedmatch-ray-{process.pid}-*"))


def test_a_cluster_of_its_own_ends_as_inline_and_leaves_nothing(inline: Expected, tmp_path: Path) -> None:
    process = start(tmp_path, *inline.settings, "backend=ray", "workers=2")
    wait_for(process, lambda: leftovers(process))
    code, out, errors = finish(process)  # looks for processes that are left, too
    assert code == 0, errors
    assert content(tmp_path / out.splitlines()[-1]) == inline.end
    assert leftovers(process) == []


@pytest.mark.parametrize("data", ["shared", "ship"])
def test_a_cluster_of_two_nodes_ends_as_inline(data: str, cluster: Cluster, inline: Expected, tmp_path: Path) -> None:
    process = start(tmp_path, *inline.settings, *on(cluster), f"ray_data={data}")
    wait_for(process, lambda: leftovers(process))
    code, out, errors = finish(process)
    assert code == 0, errors
    assert "Ray cluster of 2 nodes: 2 workers with 1 CPU each" in errors
    assert content(tmp_path / out.splitlines()[-1]) == inline.end
    assert leftovers(process) == []


@pytest.mark.parametrize(
    ("fault", "how", "told"),
    [
        ("kill", ["workers=2"], "round 2, client 3: WorkerDied: died ("),
        ("kill", ["workers=1"], "Worker 0 has a place again"),  # nobody else has what was shipped
        # The last line of the remote traceback.
        pytest.param("raise", ["workers=2"], "ValueError: a fault that was asked for", marks=pytest.mark.slow),
        pytest.param(
            "hang",
            ["task_timeout=8"],
            "TimeoutError: no answer for 8 seconds (--task-timeout); trying again",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_fault_changes_nothing_but_the_time(
    fault: str,
    how: list[str],
    told: str,
    cluster: Cluster,
    inline: Expected,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FEDMATCH_FAULTS", str(tmp_path))
    (tmp_path / ROUND_2).write_text(fault)
    process = start(tmp_path, *inline.settings, *on(cluster), "ray_data=ship", *how)
    code, out, errors = finish(process)
    assert code == 0, errors
    assert told in errors
    assert "in _fault" in errors or fault != "raise"
    assert content(tmp_path / out.splitlines()[-1]) == inline.end
    assert leftovers(process) == []


@pytest.mark.slow
def test_what_always_fails_says_where_and_a_resumed_run_ends_as_inline(
    cluster: Cluster, inline: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMATCH_FAULTS", str(tmp_path))
    (tmp_path / ROUND_2).write_text("raise always")
    code, _, errors = finish(start(tmp_path, *inline.settings, *on(cluster), "task_tries=2"))
    assert code == 1
    assert "main.py: error: round 2, client 3: ValueError: a fault that was asked for" in errors
    assert "round 2, client 3 failed 2 times (--task-tries)" in errors
    assert "The last checkpoint is after 1 of 5 rounds" in errors
    (tmp_path / ROUND_2).unlink()
    (folder,) = (tmp_path / "outputs" / "logs").iterdir()
    assert content(run(tmp_path, f"resume={folder}")) == inline.end


def test_a_users_mistake_on_a_node_is_one_message(
    cluster: Cluster, inline: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDMATCH_FAULTS", str(tmp_path))
    (tmp_path / ROUND_2).write_text("data")
    process = start(tmp_path, *inline.settings, *on(cluster))
    code, _, errors = finish(process)
    assert code == 2
    assert errors.splitlines()[-1] == "main.py: error: a user's mistake"
    assert leftovers(process) == []


@pytest.mark.slow
@pytest.mark.parametrize("then", [["backend=process"], []])
def test_a_killed_command_goes_on_to_the_same_end(
    then: list[str], cluster: Cluster, inline: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")  # where Ray's folders are, so that the process backend finds them
    process = start(tmp_path, *inline.settings, *on(cluster), seconds=0.3)
    wait_for(process, lambda: any(path.read_text() for path in tmp_path.glob("outputs/logs/*/rounds.jsonl")))
    assert leftovers(process)
    process.kill()  # nobody is there to remove them
    finish(process)
    for node in cluster.nodes:
        wait_for(node, lambda node=node: not session(node.pid, b"ray::_Actor"))
    (folder,) = (tmp_path / "outputs" / "logs").iterdir()
    assert content(run(tmp_path, f"resume={folder}", *then)) == inline.end
    assert leftovers(process) == []


def test_more_workers_than_the_cluster_has_room_for_are_told(
    cluster: Cluster, inline: Expected, tmp_path: Path
) -> None:
    code, out, errors = finish(start(tmp_path, *inline.settings, *on(cluster), "workers=5"))
    assert code == 0, errors
    assert "Ray cluster of 2 nodes: 5 workers with 1 CPU each, of which 2 have room" in errors
    assert content(tmp_path / out.splitlines()[-1]) == inline.end


def test_a_quick_second_interrupt_is_heard(cluster: Cluster, inline: Expected, tmp_path: Path) -> None:
    process = start(tmp_path, *inline.settings, *on(cluster), seconds=1000)  # no end of the round to wait for
    wait_for(process, lambda: cluster.actors(cluster.nodes[0]))
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "Stopping after this round")
    process.send_signal(signal.SIGINT)
    code, _, errors = finish(process)
    assert code == 130
    assert "The last checkpoint is after 0 of 5 rounds" in errors


@pytest.mark.slow
def test_the_tasks_of_a_lost_node_run_elsewhere_and_a_new_node_is_used(
    cluster: Cluster, inline: Expected, tmp_path: Path
) -> None:
    lost = cluster.nodes.pop()
    process = start(tmp_path, *inline.settings, *on(cluster), "num_rounds=12", "ray_data=ship", seconds=0.7)
    wait_for(process, lambda: cluster.actors(lost))
    wait_for(process, lambda: any(path.read_text() for path in tmp_path.glob("outputs/logs/*/rounds.jsonl")))
    wait_for(process, lambda: cluster.actors(lost))
    cluster.lose(lost)
    cluster.add_node()
    wait_for(process, lambda: cluster.actors(cluster.nodes[-1]))
    code, out, errors = finish(process)
    assert code == 0, errors
    assert "WorkerDied: died (" in errors
    (tmp_path / "inline").mkdir()
    expected = run(tmp_path / "inline", *inline.settings, "num_rounds=12", "backend=inline")
    assert content(tmp_path / out.splitlines()[-1]) == content(expected)


@pytest.mark.slow
def test_a_node_that_does_not_see_the_data_is_named(cluster: Cluster, inline: Expected, tmp_path: Path) -> None:
    # A path that leads into the directory of whoever asks: this command's, or another that the cluster was started in.
    here = "dataset_path=/proc/self/cwd/data"
    shutil.copytree(inline.settings[-1].split("=")[1], tmp_path / "data")
    settings = [*inline.settings[:-1], here, *on(cluster)]
    code, _, errors = finish(start(tmp_path, *settings))
    assert code == 2
    last = errors.splitlines()[-1]
    assert last.startswith("main.py: error: /proc/self/cwd/data/lc-biid-digits: expected the partitions of this run on")
    assert last.endswith("on Ray, --ray-data ship sends them")
    assert not list(tmp_path.glob("outputs/logs/*"))
    assert content(run(tmp_path, *settings, "ray_data=ship")) == inline.end


@pytest.mark.parametrize("address", ["auto", "127.0.0.1:{}"])
def test_an_address_without_a_cluster_is_the_users_mistake(
    address: str, inline: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = address.format(free_ports()[0])
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{free_ports()[0]}")  # `auto` looks here first
    code, _, errors = finish(start(tmp_path, *inline.settings, "backend=ray", f"ray_address={address}"))
    assert code == 2
    assert errors.startswith("main.py: error: --ray-address: expected a running Ray cluster of which this machine is a")
    assert not (tmp_path / "outputs").exists()


def test_what_is_not_ray_is_told_from_it(inline: Expected, tmp_path: Path) -> None:
    with http.server.HTTPServer(("", 0), http.server.BaseHTTPRequestHandler) as other:  # takes connections at once
        address = f"127.0.0.1:{other.server_port}"
        code, _, errors = finish(start(tmp_path, *inline.settings, "backend=ray", f"ray_address={address}"))
    assert code == 2
    assert errors.count("\n") == 1
    assert "does not answer as Ray does" in errors


def test_more_threads_than_any_node_has_are_refused(cluster: Cluster, inline: Expected, tmp_path: Path) -> None:
    code, _, errors = finish(start(tmp_path, *inline.settings, *on(cluster), "threads_per_worker=2"))
    assert code == 2
    assert "2 are wanted" in errors
    assert "the nodes have 1, 1 CPUs" in errors


def test_without_ray_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"--backend: ray is not installed here; .* -r requirements/ray.txt"):
        choose.decide(make_config("lc-biid-digits", backend="ray"))


class Spy:
    """A worker that tells where it is and what it got."""

    def __init__(self, config: Config) -> None:
        pass

    def run(self, task: Any) -> Any:
        time.sleep(0.2)  # so that the other worker gets the next task
        return os.environ["CUDA_VISIBLE_DEVICES"], os.environ.get("TF_DETERMINISTIC_OPS"), address(task), os.getpid()


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = make_config("lc-biid-digits", dataset_path=str(tmp_path), backend="ray")
    ensure_partitions(config, lambda things, *_: things)
    return config


def elsewhere(config: Config, worker: Any, tasks: list[Any]) -> tuple[list[Any], str | None]:
    """The results, and what the run left in CUDA_VISIBLE_DEVICES.

    In a process of its own: Ray's threads open and close files for a while after a run, and other tests count those.
    """
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(results, config, worker, tasks).result()


def results(config: Config, worker: Any, tasks: list[Any]) -> tuple[list[Any], str | None]:
    config = choose.decide(config)
    with RayBackend(config, worker, print) as backend:
        found = list(backend.map(tasks))
        while worker is Spy and len({answer[3] for answer in found}) < (config.workers or 1):  # some start later
            found += list(backend.map(tasks))
    return found, os.environ.get("CUDA_VISIBLE_DEVICES")


def test_an_array_that_several_tasks_need_is_stored_once(config: Config) -> None:
    weights, other = np.ones(10**6, np.float32), np.ones(10**6, np.float32)
    answers, _ = elsewhere(replace(config, workers=1), Spy, [weights, weights, other, weights])
    places = [place for _, _, place, _ in answers]
    assert places[0] == places[1] == places[3] != places[2]


def test_a_gpu_that_tensorflow_does_not_find_is_told(config: Config) -> None:
    with pytest.raises(ConfigError, match=r"expected GPU 0 of .* but TensorFlow finds no GPU there"):
        elsewhere(replace(config, gpu=(0,)), choose.make_worker, [InitTask()])


@pytest.mark.parametrize(
    ("gpu", "seen"),
    [(None, {("-1", None)}), ((0, 2), {("0", "1"), ("2", "1")}), ((1, 1, 2, 2), {("1", "1"), ("2", "1")})],
    ids=["cpu", "gpu", "two workers per gpu"],
)
def test_a_worker_sees_its_gpu_or_none(gpu: Any, seen: Any, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CUDA_VISIBLE_DEVICES", "TF_DETERMINISTIC_OPS"):
        monkeypatch.delenv(name, raising=False)
    # Ray takes our word for it that there are GPUs.
    answers, left = elsewhere(replace(config, gpu=gpu, workers=None), Spy, [np.zeros(1)] * 8)
    assert {(gpu, deterministic) for gpu, deterministic, *_ in answers} == seen
    if gpu is not None:
        assert {id: len({answer[3] for answer in answers if answer[0] == str(id)}) for id in gpu} == Counter(gpu)
    assert left is None
