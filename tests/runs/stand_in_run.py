"""Runs of the stand-in, a worker that needs no network, in this process or one of their own; and what they leave."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests import stand_in
from tests.conftest import ROOT, session

SETTINGS = {
    "lc": (
        "task=lc-biid-digits",
        "num_rounds=8",
        "num_clients=6",
        "frac_clients=0.5",
        "helper_interval=2",
        "keep_best=1",
    ),
    "ls": ("task=ls-simb-digits", "num_rounds=8", "num_steps=4", "num_clients=4", "helper_interval=2"),
}


def start(cwd: Path, *arguments: str, seconds: float = 0.0, **how: Any) -> subprocess.Popen[str]:
    """The stand-in's training in a session of its own, so that all its processes can be found."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stand_in", str(cwd), *arguments],
        cwd=ROOT,
        env={**os.environ, "FEDMATCH_SECONDS": str(seconds), "MPLBACKEND": "Agg"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **how,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) once it has ended; nothing of its session may be left."""
    out, errors = process.communicate(timeout=240)
    for _ in range(50):
        if not session(process.pid):
            break
        time.sleep(0.1)
    assert session(process.pid) == []
    return process.returncode, out, errors


def call(cwd: Path, *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of the stand-in's training in this process: nothing is killed or interrupted."""
    out, errors, before = io.StringIO(), io.StringIO(), Path.cwd()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = stand_in.main([str(cwd), *arguments])
    finally:
        os.chdir(before)
    return code, out.getvalue(), errors.getvalue()


def run(cwd: Path, *arguments: str) -> Path:
    """The folder of a run in this process."""
    code, out, errors = call(cwd, *arguments)
    assert code == 0, errors
    return cwd / out.splitlines()[-1]


def content(folder: Path) -> dict[str, Any]:
    """All that a run has written, but for times and settings of the machine."""
    check_pts = folder.parent.parent / "check_pts" / folder.name
    found: dict[str, Any] = {}
    for path in folder.glob("*.txt"):
        log = json.loads(path.read_text())
        found[path.name] = {key: value for key, value in log.items() if key != "options"}
    found["rounds"] = [{**json.loads(line), "seconds": 0} for line in (folder / "rounds.jsonl").open()]
    with np.load(check_pts / "state.npz") as state:
        others = ("about", "clients", "records")  # records have times; what else is in them is in the logs
        found.update({name: state[name].tolist() for name in state.files if name not in others})
        clients = state["clients"].tolist()
        about = json.loads(state["about"].tobytes())
    found.update({name: about[name] for name in ("plateau", "best")})
    for client, (version, _, crc, *plateau) in ((client, row) for client, row in enumerate(clients) if row[0]):
        held = np.load(check_pts / "clients" / f"{client}-{version}.npy")
        found[f"held by {client}"] = (crc, plateau, held.tolist())
    return found


def only_run(cwd: Path) -> Path:
    (folder,) = (cwd / "outputs" / "logs").iterdir()
    return folder


def wait_for(process: subprocess.Popen[str], condition: Any) -> None:
    while process.poll() is None and not condition():
        time.sleep(0.005)


def wait_for_line(process: subprocess.Popen[str], *texts: str) -> None:
    """Until it has said one of these, or ended."""
    assert process.stderr is not None
    while (line := process.stderr.readline()) and not any(text in line for text in texts):
        pass
