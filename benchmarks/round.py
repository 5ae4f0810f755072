"""A round beside a bare loop of the same passes, and what else it does: python -m benchmarks.round [--arch alexnet ...]

Efficiency: seconds of a round over those of a bare compiled loop with as many forward and backward image passes, at the
better of two settings: as many processes as cores with one thread each, or one process with all threads. It runs after
every round or few rounds: all of their training passes, and all or a part of the forward passes, whose time is then
scaled up. What a run writes beside the next round is waited for and counted. Overhead: core-seconds of all that is not
a pass, by part. Memory: a worker's peak over the bare loop's.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.bare import FULL, Bare, num_images, shares
from benchmarks.measure import Parts, arguments, c10_partitions, machine, median, ratio
from fedmatch_tf.algorithms import wire
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.federation import loop, server
from fedmatch_tf.federation.tasks import InitTask
from fedmatch_tf.networks.params import Mean, Params
from fedmatch_tf.runs import checkpoint, folders, store
from fedmatch_tf.runs.partition_folder import check_complete, data_about
from fedmatch_tf.workers import sharing
from fedmatch_tf.workers.choose import decide, make_worker, open_backend
from fedmatch_tf.workers.environment import keep_memory
from fedmatch_tf.workers.process import ProcessBackend

NETWORK = "passes through the network"


class Measured:
    """A worker that keeps count of its passes and of the time they and everything else take."""

    def __init__(self, config: Config, folder: str) -> None:
        self._file = Path(folder) / f"{os.getpid()}.json"
        self._worker = make_worker(config)
        from fedmatch_tf.federation import client
        from fedmatch_tf.networks import build as networks

        self._parts, self._passes = Parts(), Counter[str]()
        learner, evaluator = self._worker._learner, self._worker._evaluation._evaluator
        self._parts.measure(self._worker, "run", "data, other")
        self._parts.measure(learner, "supervised_step", NETWORK, lambda _, x, *__: self._count("train", len(x)))
        self._parts.measure(learner, "unsupervised_step", NETWORK, self._unsupervised)
        self._parts.measure(learner, "server_step", NETWORK, lambda _, x, *__: self._count("train", len(x)))
        self._parts.measure(evaluator, "score", NETWORK, self._scored)
        self._parts.measure(evaluator, "embed", "embedding")
        self._parts.measure(evaluator, "predict", NETWORK, lambda _, x: self._count("forward", len(x)))
        self._parts.measure(networks, "write", "weights into and out of the network")
        self._parts.measure(networks, "read", "weights into and out of the network")
        self._parts.measure(Params, "theta", "weights into and out of the network")
        self._parts.measure(client, "check_result", "checks")
        self._parts.measure(wire, "upload", "wire")
        self._parts.measure(sharing.Packer, "pack", "process transfer")

    def run(self, task: Any) -> Any:
        result = self._worker.run(task)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        record = {"seconds": self._parts.seconds, "passes": self._passes, "peak": peak}
        self._file.with_suffix(".new").write_text(json.dumps(record))
        self._file.with_suffix(".new").replace(self._file)
        return result

    def _count(self, kind: str, size: int) -> None:
        if size:
            self._passes[f"{kind} {size}"] += 1

    def _unsupervised(self, terms: Any, x: Any, helper_probs: Any, *_rest: Any) -> None:
        self._count("forward", len(x))
        kept = int(terms.kept.numpy().sum())
        for _term in range(2 if len(helper_probs) else 1):
            self._count("train", kept)

    def _scored(self, _: Any, examples: Any, batches: Any) -> None:
        for rows in batches:
            self._count("forward", rows.stop - rows.start)


def make_measured(config: Config, folder: str) -> Measured:
    return Measured(config, folder)


def counted(folder: Path) -> tuple[Counter[str], Counter[str], int]:
    """(seconds by part, passes, highest peak) of all workers so far."""
    in_parts: Counter[str] = Counter()
    passes: Counter[str] = Counter()
    peak = 0
    for path in folder.glob("*.json"):
        record = json.loads(path.read_text())
        in_parts.update(record["seconds"])
        passes.update(record["passes"])
        peak = max(peak, record["peak"])
    return in_parts, passes, peak


def measure_server(clock: Callable[[], float]) -> tuple[Parts, Parts]:
    """The parts of this process, and of its writing thread."""
    parts = Parts(clock)
    for name in ("broadcast", "full_broadcast"):
        parts.measure(wire, name, "wire")
    parts.measure(server, "helpers_of", "helpers")
    parts.measure(Mean, "add", "aggregation")
    parts.measure(Params, "theta", "aggregation")
    parts.measure(folders.Run, "add", "logs")
    parts.measure(sharing.Packer, "pack", "process transfer")
    parts.measure(sharing.Receiver, "receive", "process transfer")
    beside = Parts(clock)
    beside.measure(store, "_write", "clients' files, beside the next round")
    for name in ("save", "sync"):
        beside.measure(checkpoint, name, "checkpoint, beside the next round")
    return parts, beside


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--arch", default="resnet9")
    parser.add_argument("--task", default="lc-biid-c10")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--together", type=int, default=1, help="rounds in a row")
    parser.add_argument("--precision", default="float32", help="of the run and of the bare loop")
    parser.add_argument("--part", type=float, default=0.25, help="of the forward passes, for the bare loop")
    given = parser.parse_args()
    keep_memory()  # as main.py does
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, counts = Path(name), Path(name) / "counts"
        counts.mkdir()
        c10_partitions(given.task, folder)
        paths = {"dataset_path": name, "output_path": name}
        chosen = make_config(given.task, arch=given.arch, precision=given.precision, **paths)
        config = decide(chosen)
        cores = (config.workers or 1) * (config.threads_per_worker or 1)
        print(f"\n{given.task}, {given.arch}, {given.precision}: a round beside a bare loop. {machine()}", flush=True)

        def bare_backend(workers: int, threads: int) -> Any:
            make = partial(Bare, given.arch, threads, given.precision)
            cpu = [{"CUDA_VISIBLE_DEVICES": "-1"}] * workers
            return stack.enter_context(ProcessBackend(make, cpu, 3600, 1, print))

        bare = {(workers, threads): bare_backend(workers, threads) for workers, threads in {(cores, 1), (1, cores)}}
        backend = stack.enter_context(open_backend(config, print, partial(make_measured, folder=str(counts))))
        (first,) = backend.map([InitTask()])
        start = server.initial_state(config, first.params)
        run = stack.enter_context(folders.create(config, start, "", data_about(check_complete(config))))
        (parts, beside) = measure_server(time.thread_time)  # it shares the cores with the workers
        ours, theirs, peaks = [], Counter[Any](), []

        def in_server() -> Counter[str]:
            return Counter({**parts.seconds, **beside.seconds})

        times: dict[Any, list[float]] = {setting: [] for setting in bare}
        begun: Any = None
        rounds = loop.run(config, start, backend, run.store)
        for number in range(given.rounds + 1):
            before = counted(counts)[1]
            begin = time.perf_counter()
            for _ in range(given.together if number else 1):
                record, state = next(rounds)
                run.add(record, state)
            run.finish()
            took = time.perf_counter() - begin
            passes = counted(counts)[1]
            passes.subtract(before)
            done = Counter({(key.split()[0], int(key.split()[1])): count for key, count in passes.items() if count})
            for setting, pool in bare.items():
                total = 0.0
                for kind, part in (("train", 1.0), ("forward", given.part)):
                    wanted = {what: count for what, count in done.items() if what[0] == kind}
                    cut = shares(wanted, setting[0], part)
                    begin = time.perf_counter()
                    peaks += list(pool.map(cut))
                    took_part = time.perf_counter() - begin
                    total += took_part * num_images(wanted) / sum(map(num_images, cut))
                if number:
                    times[setting].append(total / given.together)
            if number:  # the first round compiles
                ours.append(took / given.together)
                theirs.update(done)
            else:
                begun = (counted(counts)[0], in_server())
        num_rounds = given.rounds * given.together
        report(config, ours, times, theirs, num_rounds)
        in_workers, here = counted(counts)[0], in_server()
        in_workers.subtract(begun[0])
        here.subtract(begun[1])
        report_parts(config, statistics.mean(ours) * num_rounds, in_workers, here)
        worker_peak = counted(counts)[2]
        print(
            f"  memory: a worker's peak {worker_peak / 1e6:.0f} MB, the bare loop's {max(peaks) / 1e6:.0f} MB, "
            f"ratio {worker_peak / max(peaks):.2f}"
        )


def report(config: Config, ours: list[float], times: dict[Any, list[float]], passes: Counter[Any], rounds: int) -> None:
    for kind in ("forward", "train"):
        images = sum(size * count for (what, size), count in passes.items() if what == kind)
        print(f"  {kind:<7} passes per round: {images / rounds:.0f} images")
    print(f"  ours, {config.workers} x {config.threads_per_worker} threads: {median(ours)} per round")
    for (workers, threads), values in times.items():
        print(f"  bare, {workers} x {threads} threads: {median(values)}, passes of up to {FULL}")
    best = min(times.values(), key=statistics.median)
    print(f"  efficiency: {ratio(ours, best)} times the better bare loop")
    one_process = min((values for (workers, _), values in times.items() if workers == 1), key=statistics.median)
    print(f"              {ratio(ours, one_process)} times the bare loop of one process", flush=True)


def report_parts(config: Config, total: float, in_workers: Counter[str], in_server: Counter[str]) -> None:
    cores = (config.workers or 1) * total
    network = in_workers.pop(NETWORK, 0.0)
    overhead = in_workers + in_server
    waiting = cores - network - sum(in_workers.values())
    print(
        f"  overhead: {100 * sum(overhead.values()) / cores:.1f} % of the workers' core-seconds; passes "
        f"{100 * network / cores:.1f} %, workers waiting {100 * waiting / cores:.1f} %"
    )
    for part, value in overhead.most_common():
        print(f"    {part:<38} {100 * value / cores:5.2f} %")


if __name__ == "__main__":
    main()
