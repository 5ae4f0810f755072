"""A real SuperLink and SuperNodes on 127.0.0.1: the same bits as the simulator, and who is refused.

Needs flwr (requirements/flower.txt). Everything listens on 127.0.0.1 alone.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import ROOT
from tests.deploy.federation import APP, BIN, Federation, hand_out

pytest.importorskip("flwr", reason="flwr is not installed (requirements/flower.txt)")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

FLAGS = (
    "--arch tests.deploy.tiny:tiny --lr 0.01 --num-clients 2 --num-test 100 --num-valid 50 --helper-interval 2 "
    "--threads-per-worker 1 --seed 3"
)


class Trial:
    """A task's partitions, handed out, and the simulated run on them."""

    def __init__(self, folder: Path, task: str, rounds: int, more: str = "") -> None:
        self.folder, self.flags = folder, f"--task {task} --num-rounds {rounds} {FLAGS} {more}"
        self._fedmatch("gen_data", *self.flags.split(), "--quiet")
        self.hosts = [hand_out(folder / "datasets" / task, folder / f"host{client}", client) for client in range(2)]

    def _fedmatch(self, *arguments: str) -> str:
        command = [sys.executable, "-m", "fedmatch_tf", *arguments]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, cwd=self.folder, env=variables, check=True, capture_output=True, text=True)
        return done.stdout

    def simulated(self) -> dict[str, np.ndarray]:
        self._fedmatch(*self.flags.split(), "--backend", "inline", "--output-path", "simulated", "--quiet")
        return self.state(self.folder / "simulated")

    def state(self, output: Path) -> dict[str, np.ndarray]:
        """What both runs must have alike; records and settings name times and workers."""
        (folder,) = (output / "check_pts").iterdir()
        with np.load(folder / "state.npz") as arrays:
            return {name: arrays[name] for name in arrays.files if name not in ("about", "records")}

    def check_same(self) -> None:
        expected, received = self.simulated(), self.state(self.folder / "outputs")
        assert list(expected) == list(received)
        for name, array in expected.items():
            np.testing.assert_array_equal(array, received[name], err_msg=name)


def finished(federation: Federation) -> bool:
    return bool(federation.runs()) and (federation.runs()[-1] / "confusion.json").exists()


class Keys:
    """What keys.sh makes, as options."""

    def __init__(self, folder: Path) -> None:
        subprocess.run(["sh", str(APP / "keys.sh"), str(folder), "127.0.0.1", "one", "two", "stranger"], check=True)
        self._folder = folder
        self.link = (
            *("--ssl-ca-certfile", str(folder / "ca.crt"), "--ssl-certfile", str(folder / "server.pem")),
            *("--ssl-keyfile", str(folder / "server.key"), "--enable-supernode-auth"),
        )
        self.certificate = folder / "ca.crt"

    def node(self, name: str) -> tuple[str, ...]:
        key = str(self._folder / f"{name}.key")
        return ("--root-certificates", str(self.certificate), "--auth-supernode-private-key", key)

    def public(self, name: str) -> str:
        return str(self._folder / f"{name}.pub")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Federation, Trial, Keys]]:
    """A server with TLS that knows two nodes."""
    folder = tmp_path_factory.mktemp("secure")
    trial, keys = Trial(folder, "lc-biid-digits", 3), Keys(folder / "keys")
    with Federation(folder, keys.link) as federation:
        federation.connection(insecure=False, certificate=keys.certificate)
        for name in ("one", "two"):
            command = [str(BIN / "flwr"), "supernode", "register", keys.public(name)]
            subprocess.run(command, env=federation.variables, check=True, cwd=folder, capture_output=True)
        yield federation, trial, keys


def test_a_killed_server_goes_on_and_the_bits_are_those_of_the_simulated_run(
    secure: tuple[Federation, Trial, Keys],
) -> None:
    federation, trial, keys = secure
    for name, host in zip(("one", "two"), trial.hosts):
        federation.start_node(name, f'partition="{host}"', keys.node(name))
    federation.run(trial.flags)
    federation.until(lambda: federation.rounds() >= 1, "the first round")
    federation.kill_server_app()
    done = federation.rounds()
    assert done < 3
    federation.run(f"--resume {federation.runs()[-1]}")
    federation.until(lambda: finished(federation), "the end")
    trial.check_same()
    assert len(federation.runs()) == 1


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("no_key", lambda keys: ("--root-certificates", str(keys.certificate)), "SuperNode authentication is enabled"),
        ("not_registered", lambda keys: keys.node("stranger"), "Failed to activate SuperNode"),
        ("plain_text", lambda keys: ("--insecure",), "could not establish a connection"),
        ("does_not_trust_the_certificate", lambda keys: (), "could not establish a connection"),
    ],
)
def test_who_is_not_known_is_refused(
    secure: tuple[Federation, Trial, Keys], name: str, options: Callable[[Keys], tuple[str, ...]], reason: str
) -> None:
    federation, trial, keys = secure
    before = federation.log().count("Activated node_id")
    federation.start_node(name, f'partition="{trial.hosts[0]}"', (*options(keys), "--max-retries", "1"))
    federation.until(lambda: federation.ended(name), f"{name} to give up", 120)
    assert reason in federation.log(name)
    assert "SuperNode ID" not in federation.log(name)
    assert federation.log().count("Activated node_id") == before


def test_labels_at_the_server_give_the_bits_of_the_simulated_run(tmp_path: Path) -> None:
    trial = Trial(tmp_path, "ls-bimb-digits", 2, "--s2c-content counted")
    with Federation(tmp_path) as federation:
        for client, host in enumerate(trial.hosts):
            federation.start_node(f"node{client}", f'partition="{host}"')
        federation.run(trial.flags)
        federation.until(lambda: finished(federation), "the end")
    trial.check_same()
