"""gen_data of lc-bimb-c10 beside reading its source and writing the same bytes: python -m benchmarks.gen_data

Needs CIFAR-10 where it is looked up (for example FEDMATCH_DATA); uses made-up images of the same size otherwise.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measure import arguments
from fedmatch_tf.data import readers, sources

REPEATS = 5
ROOT = Path(__file__).resolve().parent.parent


def find_source(folder: Path) -> Path:
    for place in sources.places("c10"):
        if place.path.exists():
            return place.path
    print("CIFAR-10 not found: made-up images of its size instead")
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (60000, 32, 32, 3), np.uint8), np.arange(60000) % 10
    np.savez(folder / "made_up.npz", x_train=x[:50000], y_train=y[:50000], x_test=x[50000:], y_test=y[50000:])
    return folder / "made_up.npz"


def seconds(work) -> float:  # type: ignore[no-untyped-def]
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main() -> None:
    arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = find_source(folder)
        made = folder / "d" / "lc-bimb-c10"
        command = [sys.executable, str(ROOT / "main.py"), "--work-type", "gen_data", "--task", "lc-bimb-c10", "--quiet"]
        command += ["--source", str(source), "--dataset-path", str(folder / "d"), "--force"]

        def generate() -> None:
            subprocess.run(command, check=True, capture_output=True)

        def read_and_write() -> None:
            readers.read(source, 32)
            for path, content in payloads.items():
                path.write_bytes(content)

        generate()
        (folder / "copy").mkdir()
        payloads = {folder / "copy" / path.name: path.read_bytes() for path in made.iterdir()}
        ours, bare = [], []
        for _ in range(REPEATS):
            ours.append(seconds(generate))
            bare.append(seconds(read_and_write))
        ratios = sorted(a / b for a, b in zip(ours, bare))
        print(f"gen_data lc-bimb-c10, 100 clients, {sum(map(len, payloads.values())) / 1e6:.0f} MB, {REPEATS} repeats")
        print(f"  whole command           {statistics.median(ours):6.2f} s (median)")
        print(f"  read source, write same {statistics.median(bare):6.2f} s (median)")
        print(f"  ratio                   {statistics.median(ratios):6.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


if __name__ == "__main__":
    main()
