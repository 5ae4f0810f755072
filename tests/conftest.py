"""What several test modules need: the command line as users run it, small data, the shared folder if it is there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest

from fedmatch_tf.base.quiet import set_variables
from fedmatch_tf.config import ConfigError
from fedmatch_tf.workers.environment import check_cpu_precision
from tests.command_server import CommandServer

set_variables()

# Tests that were started in the background (nohup, &) would hand on to their commands that these are ignored.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

hypothesis.settings.register_profile("untimed", deadline=None)  # no test asserts a time
hypothesis.settings.load_profile("untimed")

ROOT = Path(__file__).resolve().parent.parent
ORIGINAL = ROOT / "tests" / "original"  # what the original computed
SHARED = ROOT.parent / "shared"


def _has_bfloat16() -> bool:
    try:
        check_cpu_precision("bfloat16")
    except ConfigError:
        return False
    return True


HAS_BFLOAT16 = _has_bfloat16()
needs_bfloat16 = pytest.mark.skipif(not HAS_BFLOAT16, reason="this processor does not compute in bfloat16")
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="real data are not beside the project")


# The longest, by what they take. They go first, so that no process has a long one left when the others are done.
LONG = (
    "test_ray.py",
    "test_models.py",
    "test_training.py",
    "test_front_door.py",
    "test_runs.py",
    "test_fidelity.py",
    "test_trained.py",
    "test_fedmatch.py",
    "test_cli.py",
    "test_process.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command with these variables as well; what it writes is caught."""
    variables = {**os.environ, "MPLBACKEND": "Agg", **environment}
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=280, check=False)


def run_main(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python main.py` with these arguments; FEDMATCH_DATA and Keras' cache are empty unless given."""
    clean = {"FEDMATCH_DATA": "", "KERAS_HOME": str(cwd / "no-keras-cache"), **environment}
    return run(sys.executable, str(ROOT / "main.py"), *arguments, cwd=cwd, **clean)


def assert_refused(result: subprocess.CompletedProcess[str], *texts: str) -> None:
    """Exit code 2, these texts in one message on stderr, no traceback."""
    assert result.returncode == 2, result.stderr
    assert "Traceback" not in result.stderr
    for text in texts:
        assert text in result.stderr


class Process(NamedTuple):
    pid: int
    parent: int
    session: int
    command: bytes


def processes() -> Iterator[Process]:
    """Those that run on this machine; one that ends while it is looked at is left out."""
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent, _, session, *_ = (path / "stat").read_text(errors="replace").rsplit(")", 1)[1].split()
            command = (path / "cmdline").read_bytes()
            if state != "Z":
                yield Process(int(path.name), int(parent), int(session), command)


def session(leader: int, running: bytes = b"") -> list[int]:
    """The processes of a session that run this command."""
    return [process.pid for process in processes() if process.session == leader and running in process.command]


def kill(pids: list[int]) -> None:
    """At once; who is gone already is no matter."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def made_up_images(num_examples: int, num_classes: int = 10, size: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """Different random images, labels that go round."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (num_examples, size, size, 3), np.uint8)
    return x, np.arange(num_examples) % num_classes


def save_npz(path: Path, x: np.ndarray, y: np.ndarray, num_test: int = 0, **more: Any) -> Path:
    """An .npz in Keras' layout, the last `num_test` examples as its test set."""
    cut = len(x) - num_test
    np.savez(path, x_train=x[:cut], y_train=y[:cut], x_test=x[cut:], y_test=y[cut:], **more)
    return path


@pytest.fixture(scope="session")
def commands() -> Iterator[CommandServer]:
    """Runs commands in one process, for tests of what they do rather than of how they start and end."""
    with CommandServer(ROOT) as server:
        yield server


@pytest.fixture(scope="session")
def small_npz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """600 images of 10 classes."""
    x, y = made_up_images(600)
    return save_npz(tmp_path_factory.mktemp("source") / "small.npz", x, y, num_test=100)


SMALL = ("--num-clients", "4", "--num-test", "40", "--num-valid", "40", "--quiet")
