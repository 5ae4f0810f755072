"""An evaluation beside bare forward passes over as many images, in one process: python -m benchmarks.evaluation"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.measure import arguments, c10_partitions, machine, median, ratio, seconds

REPEATS = {"alexnet": 7, "resnet9": 3}


def measure(arch: str, folder: str) -> None:
    from benchmarks.bare import FULL, Bare
    from fedmatch_tf.config import make_config
    from fedmatch_tf.federation.tasks import GLOBAL, EvalTask, InitTask

    bare = Bare(arch, threads=1)
    from fedmatch_tf.federation.worker import Worker  # after the threads are set

    config = make_config("lc-biid-c10", arch=arch, dataset_path=folder)
    worker = Worker(config)
    theta = worker.run(InitTask()).params.theta(config.l1_thres)
    task, passes = EvalTask(0, GLOBAL, "test", theta), {("forward", FULL): config.num_test // FULL}
    ours, theirs = [], []
    for number in range(REPEATS[arch] + 1):
        times = seconds(lambda: worker.run(task)), seconds(lambda: bare.run(passes))
        if number:
            ours.append(times[0])
            theirs.append(times[1])
    print(f"  {arch}: test of {config.num_test} images {median(ours)}, bare passes {median(theirs)}, ", end="")
    print(f"evaluation {ratio(ours, theirs)} times bare", flush=True)


def main() -> None:
    if len(sys.argv) == 3:
        measure(*sys.argv[1:])
        return
    arguments(__doc__).parse_args()
    print(f"\nEvaluation on one thread: weights loaded, scored, scores read. {machine()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        c10_partitions("lc-biid-c10", Path(folder))
        for arch in REPEATS:
            subprocess.run([sys.executable, "-m", "benchmarks.evaluation", arch, folder], check=True)


if __name__ == "__main__":
    main()
