"""Rounds with two values of one setting, in turn: python -m benchmarks.setting precision=float32,bfloat16 [arch=...]

Two runs that differ in nothing else take their rounds in turn; the first round of each, which compiles, is left out.
Other settings, such as arch=alexnet, hold for both.
"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measure import arguments, c10_partitions, in_turn, machine, median, ratio, running_rounds
from fedmatch_tf.config import make_config, settings
from fedmatch_tf.workers.environment import keep_memory


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("settings", nargs="+", metavar="NAME=VALUE", help="the first one with two values")
    parser.add_argument("--task", default="lc-biid-c10")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    (name, both), *others = (text.split("=", 1) for text in given.settings)
    first, second = both.split(",")

    def typed(setting: str, value: str) -> Any:
        return settings()[setting].kind(value)

    keep_memory()  # as main.py does
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        c10_partitions(given.task, Path(folder))
        shared = {other: typed(other, value) for other, value in others}
        shared.update(dataset_path=folder, output_path=folder, num_rounds=given.rounds + 2)
        print(f"\n{given.task}, {' '.join(given.settings)}. {machine()}", flush=True)
        running = {
            value: running_rounds(stack, make_config(given.task, **shared, **{name: typed(name, value)}))
            for value in (first, second)
        }
        times = in_turn(running, given.rounds)
        for value, measured in times.items():
            print(f"  {value:<10} {median(measured)} per round")
        print(f"  {second} over {first}: {ratio(times[second], times[first])}", flush=True)


if __name__ == "__main__":
    main()
