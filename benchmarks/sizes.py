"""Clients of very different size, the largest first or as they come, in turn: python -m benchmarks.sizes"""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.measure import arguments, c10_source, in_turn, machine, median, ratio, running_rounds
from fedmatch_tf.config import make_config
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import check_complete, client_sizes, ensure_partitions


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--task", default="ls-bdir-c10")
    parser.add_argument("--alpha", type=float, default=0.1)
    parser.add_argument("--rounds", type=int, default=6)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        config = make_config(
            given.task,
            arch="alexnet",
            alpha=given.alpha,
            num_clients=50,
            frac_clients=0.1,
            source=c10_source(Path(name)),
            dataset_path=name,
            output_path=name,
        )
        ensure_partitions(config, progress_for(True))
        sizes = client_sizes(check_complete(config))
        most, least = max(sizes.values()), min(sizes.values())
        print(f"\n{given.task}, AlexNet, Dirichlet {given.alpha:g}, clients of {least} to {most} examples. {machine()}")
        running = {
            order: running_rounds(stack, replace(config, output_path=f"{name}/{order}"), known)
            for order, known in (("as they come", None), ("largest first", sizes))
        }
        times = in_turn(running, given.rounds)
        for order, took in times.items():
            print(f"  {order}: {median(took)} per round")
        print(f"  as they come / largest first: {ratio(times['as they come'], times['largest first'])}", flush=True)


if __name__ == "__main__":
    main()
