"""Rounds with --lr-signal client and server, in turn: python -m benchmarks.lr_signal"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.measure import arguments, c10_partitions, in_turn, machine, median, ratio, running_rounds
from fedmatch_tf.config import make_config


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--arch", default="alexnet")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        c10_partitions("lc-biid-c10", Path(name))
        print(f"\nlc-biid-c10, {given.arch}: --lr-signal. {machine()}", flush=True)
        running = {}
        for signal in ("client", "server"):
            config = make_config("lc-biid-c10", arch=given.arch, dataset_path=name, output_path=name, lr_signal=signal)
            running[signal] = running_rounds(stack, config)
        times = in_turn(running, given.rounds)
        print(f"  client {median(times['client'])}, server {median(times['server'])} per round")
        print(f"  server is {ratio(times['client'], times['server'])} times as fast", flush=True)


if __name__ == "__main__":
    main()
