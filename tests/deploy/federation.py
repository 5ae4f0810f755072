"""A SuperLink and SuperNodes as processes of this machine, on 127.0.0.1 alone, for tests and for measurements."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.conftest import ROOT

APP = ROOT / "deploy" / "flower"
BIN = Path(sys.executable).parent


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class Federation:
    """Who belongs to one server.

    Args:
        folder: everything is written there.
        link_options: of the SuperLink.
    """

    def __init__(
        self, folder: Path, link_options: Sequence[str] = ("--insecure",), variables: dict[str, str] | None = None
    ) -> None:
        self.folder, self.port = folder, free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        home = folder / "flower"
        home.mkdir(parents=True, exist_ok=True)
        self.variables = {
            **os.environ,
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "FLWR_HOME": str(home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
            "TF_CPP_MIN_LOG_LEVEL": "3",
            **(variables or {}),
        }
        self.connection(insecure=True)
        self.start_link(link_options)

    def connection(self, insecure: bool, certificate: Path | None = None) -> None:
        """How `flwr` reaches the SuperLink."""
        how = "insecure = true" if insecure else f'root-certificates = "{certificate}"'
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "{self.address}"\n{how}\n'
        (self.folder / "flower" / "config.toml").write_text(text)

    def start_link(self, options: Sequence[str] = ("--insecure",)) -> None:
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), *options]
        self._start("link", [*command, "--disable-runtime-dependency-installation"])
        self.until(lambda: "Uvicorn running" in self.log("link") or self._answers(), "the SuperLink")

    def _answers(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 0.2).close()
        except OSError:
            return False
        return True

    def start_node(self, name: str, config: str, options: Sequence[str] = ("--insecure",)) -> None:
        """A SuperNode; `config` is its node config."""
        command = ["flower-supernode", "--superlink", self.address, "--host", "127.0.0.1", "--port", str(free_port())]
        self._start(name, [*command, "--node-config", config, *options])

    def _start(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.variables, cwd=self.folder, start_new_session=True
            )

    def kill(self, name: str) -> None:
        """The process and its children, at once."""
        process = self._processes.pop(name)
        for each in [process.pid, *descendants(process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()

    def kill_server_app(self) -> None:
        """The run's process alone; the SuperLink goes on."""
        (found,) = [
            process
            for process in descendants(self._processes["link"].pid)
            if b"flwr-serverapp" in Path(f"/proc/{process}/cmdline").read_bytes()
        ]
        os.kill(found, signal.SIGKILL)

    def ended(self, name: str) -> bool:
        """Whether the process is gone."""
        return self._processes[name].poll() is not None

    def run(self, flags: str, **config: Any) -> None:
        """`flwr run` with these flags of a training."""
        given = " ".join(f"{name.replace('_', '-')}={value}" for name, value in config.items())
        command = ["flwr", "run", str(APP), "--run-config", f'flags="{flags}" {given}']
        subprocess.run(command, env=self.variables, check=True, cwd=self.folder, capture_output=True, timeout=120)

    def log(self, name: str = "link") -> str:
        path = self.folder / f"{name}.log"
        text = path.read_text(errors="replace") if path.exists() else ""
        return re.sub(r"\x1b\[[0-9;]*m", "", text)

    def runs(self) -> list[Path]:
        return sorted((self.folder / "outputs" / "logs").glob("*"))

    def rounds(self) -> int:
        """How many rounds the newest run has on record."""
        path = self.runs()[-1] / "rounds.jsonl" if self.runs() else None
        return len(path.read_text().splitlines()) if path is not None and path.exists() else 0

    def until(self, what: Callable[[], Any], name: str, seconds: float = 300) -> None:
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                raise AssertionError(f"waited {seconds} s for {name}; the log ends with\n{self.log()[-5000:]}")
            time.sleep(0.2)

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def descendants(process: int) -> list[int]:
    """Its children, their children and so on, as they are now."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    children = [child for child, parent in parents.items() if parent == process]
    return [*children, *(each for child in children for each in descendants(child))]


def hand_out(task: Path, to: Path, client: int) -> Path:
    """One client's files of `gen_data`, as they go to its host."""
    to.mkdir(parents=True)
    own = re.compile(rf"manifest\.json|(test|valid)_.*|[su]_.*_{client}(_\d+)?\.npy|s_[a-z]+\.npy")
    for path in task.iterdir():
        if own.fullmatch(path.name) and not re.fullmatch(r"s_[a-z]+\.npy", path.name):
            shutil.copy(path, to)
    return to
