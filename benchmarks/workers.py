"""Rounds with several settings of workers and threads, in turn: python -m benchmarks.workers [--arch alexnet]"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import arguments, c10_partitions, in_turn, machine, median, ratio, running_rounds
from fedmatch_tf.config import make_config
from fedmatch_tf.workers.choose import decide


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--arch", default="alexnet")
    parser.add_argument("--task", default="lc-biid-c10")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lr-signal", default="client")
    parser.add_argument("--precision", default="float32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        c10_partitions(given.task, Path(name))
        base = make_config(
            given.task,
            arch=given.arch,
            dataset_path=name,
            output_path=name,
            num_rounds=given.rounds + 2,
            lr_signal=given.lr_signal,
            precision=given.precision,
        )
        chosen = decide(base)
        default = (chosen.workers or 1, chosen.threads_per_worker or 1)
        cores = default[0] * default[1]
        settings = sorted({(1, 1), (1, cores), (cores, 1), (cores, 2), default})
        what = f"{given.task}, {given.arch}, --lr-signal {given.lr_signal}, {given.precision}"
        print(f"\n{what}: workers x threads. {machine()}", flush=True)
        running = {
            (workers, threads): running_rounds(stack, replace(base, workers=workers, threads_per_worker=threads))
            for workers, threads in settings
        }
        times = in_turn(running, given.rounds)
        for setting, values in times.items():
            note = "  the default" if setting == default else ""
            throughput = ratio(times[1, 1], values)
            print(
                f"  {setting[0]} x {setting[1]}: {median(values)} per round, throughput {throughput} times 1 x 1{note}"
            )
        fastest = min(times, key=lambda setting: statistics.median(times[setting]))
        print(f"  fastest: {fastest[0]} x {fastest[1]}", flush=True)


if __name__ == "__main__":
    main()
