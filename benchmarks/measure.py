"""What the benchmarks share: ratios with their spread, time by part, the data they train on."""

from __future__ import annotations

import argparse
import functools
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Callable

import joblib
import numpy as np


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A command's parser, with a module's text as its help."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def machine() -> str:
    """One line on where the figures come from."""
    load = os.getloadavg()[0]
    return f"{joblib.cpu_count()} cores of {_processor()}, Python {platform.python_version()}, load {load:.1f}"


def _processor() -> str:
    """Its name, its family's and model's number, and what of fast arithmetic it has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    about = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    fast = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in about.get("flags", "").split()]
    name = about.get("model name", platform.machine())
    return f"{name} (family {about.get('cpu family')}, model {about.get('model')}; {' '.join(fast)})"


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ratio(ours: Sequence[float], bare: Sequence[float]) -> str:
    """The median of pairwise ratios, and the lowest and highest."""
    ratios = sorted(ours_one / bare_one for ours_one, bare_one in zip(ours, bare))
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}, {len(ratios)} repeats)"


def median(values: Sequence[float], unit: str = "s") -> str:
    """The median with the lowest and highest."""
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


class Parts:
    """Time spent in functions that are replaced by measured ones, each second counted for the innermost alone."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def measure(self, owner: Any, name: str, part: str, then: Callable[..., None] | None = None) -> None:
        """Replaces owner.name; `then` is told (result, *arguments)."""
        function = getattr(owner, name)

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            begin = self._clock()
            self._inner.append(0.0)
            try:
                result = function(*args, **kwargs)
            finally:
                whole, inner = self._clock() - begin, self._inner.pop()
                self.seconds[part] += whole - inner
                self._inner[-1] += whole
            if then is not None:
                then(result, *args)
            return result

        setattr(owner, name, measured)


def c10_source(folder: Path) -> str:
    """CIFAR-10, or made-up images of its size in the folder where it is not at hand."""
    from fedmatch_tf.data import sources

    source = next((str(place.path) for place in sources.places("c10") if place.path.exists()), None)
    if source is None:
        print("CIFAR-10 not found: made-up images of its size instead")
        rng = np.random.default_rng(0)
        x, y = rng.integers(0, 256, (60000, 32, 32, 3), np.uint8), np.arange(60000) % 10
        source = str(folder / "made_up.npz")
        np.savez(source, x_train=x[:50000], y_train=y[:50000], x_test=x[50000:], y_test=y[50000:])
    return source


def c10_partitions(task: str, folder: Path) -> None:
    """Partitions of CIFAR-10, or of made-up images of its size where it is not at hand."""
    from fedmatch_tf.config import make_config
    from fedmatch_tf.runs.display import progress_for
    from fedmatch_tf.runs.partition_folder import ensure_partitions

    source = c10_source(folder)
    ensure_partitions(make_config(task, source=source, dataset_path=str(folder)), progress_for(True))


def in_turn(running: Mapping[Any, Iterator[None]], rounds: int) -> dict[Any, list[float]]:
    """Seconds of each one's rounds, taken in turn; a first one, which compiles, is left out."""
    times: dict[Any, list[float]] = {name: [] for name in running}
    for number in range(rounds + 1):
        for name, one in running.items():
            took = seconds(partial(next, one))
            if number:
                times[name].append(took)
    return times


def running_rounds(stack: ExitStack, config: Any, sizes: Mapping[int, int] | None = None) -> Iterator[None]:
    """A run whose rounds are trained one by one, as they are asked for, with all that a run writes.

    Args:
        sizes: examples of each client, if larger ones are to be trained first.
    """
    from fedmatch_tf.federation import loop, server
    from fedmatch_tf.federation.tasks import InitTask
    from fedmatch_tf.runs import folders
    from fedmatch_tf.runs.partition_folder import check_complete, data_about
    from fedmatch_tf.workers.choose import decide, open_backend

    config = decide(config)
    backend = stack.enter_context(open_backend(config, print))
    (first,) = backend.map([InitTask()])
    start = server.initial_state(config, first.params)
    run = stack.enter_context(folders.create(config, start, "", data_about(check_complete(config))))
    for record, state in loop.run(config, start, backend, run.store, sizes or {}):
        run.add(record, state)
        yield
