"""A round of supervised federated averaging here and in other frameworks: python -m benchmarks.peers

ResNet-9, 5 clients of 490 images, one epoch in batches of 98, no evaluation. Each peer is installed from the package
index into an environment of its own (.tools/peers/) with Python 3.11, which all of them support, and runs at the
settings that its documentation names as fast. They run in turn, every repeat a new process whose first round is left
out; ratios are to our round of the same repeat. Ours runs twice: with the default, two workers of one thread each, and
with two threads each, which leaves no core idle while the fifth client trains alone.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import arguments, machine, median, ratio

ROOT = Path(__file__).resolve().parents[2]


class Peer(NamedTuple):
    packages: tuple[str, ...]
    script: str
    environment: dict[str, str]


ON_CPU = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "1", "CUDA_VISIBLE_DEVICES": "-1"}
PEERS = {
    "Flower": Peer(("flwr[simulation]==1.23.0", "tensorflow==2.15.1", "numpy==1.26.4"), "flower_round.py", ON_CPU),
    "pfl-research": Peer(
        ("pfl[tf]==0.6.0", "tensorflow==2.21.0", "tf-keras==2.21.0", "tensorflow-probability==0.25.0"),
        "pfl_round.py",
        {**ON_CPU, "TF_USE_LEGACY_KERAS": "1"},
    ),
    "FedJAX": Peer(("fedjax==0.0.17", "jax==0.5.3", "jaxlib==0.5.3"), "fedjax_round.py", {"JAX_PLATFORMS": "cpu"}),
}


OURS = "this project"


def installed(name: str, peer: Peer) -> Path | None:
    """Its Python; None, with the reason on the screen, if it can't be installed."""
    folder = ROOT / ".tools" / "peers" / name
    python = folder / "bin" / "python"
    done = folder / "installed.txt"
    if done.is_file() and done.read_text() == "\n".join(peer.packages):
        return python
    print(f"Installing {', '.join(peer.packages)} ...", flush=True)
    subprocess.run([shutil.which("python3.11") or sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check", *peer.packages]
    result = subprocess.run(pip, capture_output=True, text=True, check=False)
    if result.returncode:
        lines = [line for line in result.stderr.splitlines() if line.startswith("ERROR")] or ["no reason given"]
        print(f"{name} could not be installed: {lines[-1]}", flush=True)
        return None
    done.write_text("\n".join(peer.packages))
    return python


def rounds_of(name: str, command: list[str], cwd: Path, environment: dict[str, str], rounds: int) -> list[float] | None:
    """Seconds of its rounds but the first; None, with the reason on the screen, if it does not run."""
    result = subprocess.run(
        [*command, f"--rounds={rounds}"],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    for line in result.stdout.splitlines():
        if line.startswith("ROUNDS "):
            return [float(value) for value in json.loads(line[len("ROUNDS ") :])[1:]]
    last = (result.stderr.strip() or "no output").splitlines()[-1]
    print(f"{name} did not run: {last[:300]}", flush=True)
    return None


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--peers", default=",".join(PEERS), help="which of them")
    parser.add_argument("--install", action="store_true", help="install the peers, and that is all")
    given = parser.parse_args()
    here = Path(__file__).parent
    chosen = {name: peer for name, peer in PEERS.items() if name in given.peers.split(",")}
    found = {name: installed(name, peer) for name, peer in chosen.items()}
    if given.install:
        return
    print(f"\nFederated averaging, ResNet-9, 5 clients of 490 images, one epoch. {machine()}", flush=True)
    names = [OURS, *(name for name, python in found.items() if python)]
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(given.repeats):
        for name in list(times):
            if name == OURS:
                command, cwd, environment = [sys.executable, "-m", "benchmarks.peers.ours_round"], ROOT, {}
            else:
                command, cwd, environment = [str(found[name]), PEERS[name].script], here, PEERS[name].environment
            took = rounds_of(name, command, cwd, environment, given.rounds)
            if took is None:
                if name == OURS:
                    sys.exit("there is nothing to compare with")
                del times[name]
                continue
            times[name].append(statistics.median(took))
            print(f"  {name}: {times[name][-1]:.2f} s per round", flush=True)
    print()
    for name, values in times.items():
        print(f"  {name}: {median(values)} per round, {ratio(values, times[OURS])} times ours")


if __name__ == "__main__":
    main()
