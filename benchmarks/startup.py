"""From the command to the first training step, beside TensorFlow's bare start: python -m benchmarks.startup

Bare: import TensorFlow, build the same network once, trace its training step and run it once on a batch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import arguments, c10_partitions, machine, median, ratio, seconds

REPEATS = 5
ARCH = "resnet9"
ROOT = Path(__file__).resolve().parent.parent


class UntilFirstStep:
    """A worker that says when its first training step is done."""

    def __init__(self, config: Any, sign: str) -> None:
        from fedmatch_tf.workers.choose import make_worker

        self._worker = make_worker(config)
        step = self._worker._learner.supervised_step

        def first_step(*args: Any) -> Any:
            float(step(*args).losses["total"])
            Path(sign).touch()
            time.sleep(1000)

        self._worker._learner.supervised_step = first_step

    def run(self, task: Any) -> Any:
        return self._worker.run(task)


def make_until_first_step(config: Any, sign: str) -> UntilFirstStep:
    return UntilFirstStep(config, sign)


def train_until_first_step(folder: str) -> None:
    """What main.py does, with the worker above."""
    from parser import parse

    from fedmatch_tf.runs.display import progress_for
    from fedmatch_tf.runs.training import Watch, train

    command = parse(["--task", "lc-biid-c10", "--arch", ARCH, "--dataset-path", folder, "--output-path", folder])
    make = partial(make_until_first_step, sign=f"{folder}/first-step")
    train(command.arguments["config"], Watch(quiet=True, progress=progress_for(True)), make)


def bare_start() -> None:
    from benchmarks.bare import Bare

    Bare(ARCH, 1).run({("train", 10): 1})


def ours(folder: Path) -> float:
    sign = folder / "first-step"
    sign.unlink(missing_ok=True)
    begin = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.startup", "ours", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        while not sign.exists():
            if process.poll() is not None:
                raise RuntimeError("training ended before its first step")
            time.sleep(0.01)
        return time.perf_counter() - begin
    finally:
        process.kill()
        process.wait()


def command(*arguments: str) -> float:
    return seconds(partial(subprocess.run, [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True))


def main() -> None:
    if sys.argv[1:2] == ["ours"]:
        train_until_first_step(sys.argv[2])
        return
    if sys.argv[1:2] == ["bare"]:
        bare_start()
        return
    arguments(__doc__).parse_args()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
    print(f"\nStart of lc-biid-c10, {ARCH}, partitions present. {machine()}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        c10_partitions("lc-biid-c10", folder)
        times: dict[str, list[float]] = {"ours": [], "bare": [], "help": [], "import": []}
        for number in range(REPEATS + 1):
            measured = {
                "ours": ours(folder),
                "bare": command("-m", "benchmarks.startup", "bare"),
                "help": command("main.py", "--help"),
                "import": command("-c", "import tensorflow"),
            }
            for kind, value in measured.items() if number else ():  # the first fills the disk's cache
                times[kind].append(value)
    print(f"  command to first training step: {median(times['ours'])}")
    print(f"  import, build, trace, one step: {median(times['bare'])}")
    print(f"  start-up: {ratio(times['ours'], times['bare'])} times the bare start")
    print(f"  --help: {median(times['help'])}, {ratio(times['help'], times['import'])} times import tensorflow")


if __name__ == "__main__":
    main()
