"""A worker without a network, for tests of what surrounds it: its training is arithmetic, its faults are real.

`python -m tests.stand_in DIRECTORY name=value ...` trains with it in that directory; `resume=RUN` goes on with a run.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.base import seeding
from fedmatch_tf.config import Config, make_config, settings
from fedmatch_tf.data.loader import Partitions, load_eval
from fedmatch_tf.federation import scoring
from fedmatch_tf.federation.server import Held
from fedmatch_tf.federation.tasks import (
    CheckTask,
    ClientResult,
    ClientTask,
    ConfusionTask,
    EvalResult,
    EvalTask,
    InitTask,
    Losses,
    ModelTask,
    PaceTask,
    ServerResult,
    ServerTask,
    Start,
    client_model,
)
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params

SIZE = 1000


class StandIn:
    """Adds noise to what it receives: a function of seed, round and client, as real training is.

    A file `fault-<round>-<client>` in the working directory or in $FEDMATCH_FAULTS, round counted from 0, makes that
    task fail as its content says: `raise`, `memory`, `kill` or `hang`, and `data` for a user's mistake. The file goes
    first, so it happens once, unless there is an `always` behind it.
    """

    def __init__(self, config: Config) -> None:
        self._config, self._algorithm = config, make_algorithm(replace(config, l1_thres=0.0, delta_thres=0.5))
        self._folder = Path(os.environ.get("FEDMATCH_FAULTS", "."))
        if (self._folder / "fault-start").exists():
            _fault(self._folder / "fault-start")

    def run(self, task: Any) -> Any:
        seed = self._config.seed
        if isinstance(task, InitTask):
            rng = seeding.stream(seed, "stand-in start")
            params = Params(rng.random(SIZE, np.float32), rng.random(SIZE, np.float32))
            return Start((params.sigma,), params)
        if isinstance(task, ConfusionTask):
            return np.eye(10, dtype=int)
        if isinstance(task, CheckTask):
            return None
        if isinstance(task, PaceTask):
            return 1e-3
        if isinstance(task, ModelTask):
            return _model_file()
        if isinstance(task, EvalTask):
            return evaluated(task)
        if isinstance(task, ServerTask):
            rng = seeding.stream(seed, "stand-in server", task.round_num)
            params = Params(task.params.sigma + rng.random(SIZE, np.float32), task.params.psi)
            return ServerResult(params, Losses(2.0, supervised=2.0))
        return self._client(task)

    def _client(self, task: ClientTask) -> ClientResult:
        path = self._folder / f"fault-{task.round_num}-{task.client}"
        if path.exists():
            _fault(path)
        time.sleep(float(os.environ.get("FEDMATCH_SECONDS", "0")))
        config, received = self._config, task.broadcast.params
        rng = seeding.stream(config.seed, "stand-in client", task.round_num, task.client)
        helped = sum((psi for psi in task.broadcast.helpers), np.zeros(SIZE, np.float32))
        assert received.psi is not None
        trained = Params(received.sigma + rng.random(SIZE, np.float32), received.psi + 0.1 * helped)
        upload = self._algorithm.upload(trained, received)
        theta = trained.theta()
        model, splits = client_model(task.client), scoring.client_splits(config)
        scored = tuple(evaluated(EvalTask(task.round_num, model, split, theta)) for split in splits)
        return ClientResult(
            task.client,
            *upload.params,
            num_examples=10,
            s2c=task.broadcast.cost,
            c2s=upload.cost,
            plateau=task.plateau,
            lr=task.lr,
            losses=Losses(0.25, pseudo=0.25),
            num_unlabeled=4,
            confident_rows=2,
            num_correct=1,
            embedding=upload.params.shared_part[:10],
            scored=scored if task.score else (),
            theta=None if task.score else theta,
        )


def _model_file() -> bytes:
    """A `.keras` file of no layers."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("config.json", "{}")
    return content.getvalue()


def evaluated(task: EvalTask) -> EvalResult:
    """Five passes over a set, whose losses are the first elements of theta."""
    passes = [number for number in range(5) if number * task.num_parts // 5 == task.part]
    losses = tuple(float(task.theta[number]) for number in passes)
    num_rows, hits = (10,) * len(passes), (5,) * len(passes)
    return EvalResult(task.model, task.split, task.part, task.num_parts, num_rows, losses, hits)


class MemoryStore:
    """What clients held, in memory alone."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._new: dict[int, Params | None] = {}

    def get(self, client: int) -> Held | None:
        return self._held.get(client)

    def put(self, client: int, params: Params | None) -> None:
        self._new[client] = params

    def end_round(self, plateaus: Mapping[int, Plateau]) -> None:
        self._held.update({client: Held(params, plateaus[client]) for client, params in self._new.items()})
        self._new = {}


def _fault(path: Path) -> None:
    what = path.read_text()
    if not what.endswith("always"):
        path.unlink()
    kind = what.split()[0]
    if kind == "raise":
        raise ValueError("a fault that was asked for")
    if kind == "exit":
        sys.exit(0)
    if kind == "data":
        from fedmatch_tf.base.errors import DataError

        raise DataError("a user's mistake")
    if kind == "memory":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30))
        np.ones(2**30)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        time.sleep(1000)


def make_stand_in(config: Config, partitions: Partitions | None = None) -> StandIn:
    """Partitions that come with it are read, as a worker would."""
    if partitions is not None:
        load_eval(partitions)
    return StandIn(config)


def main(arguments: list[str]) -> int:
    from fedmatch_tf.main import _failure
    from fedmatch_tf.runs.display import progress_for
    from fedmatch_tf.runs.training import Watch, resume, train

    os.chdir(arguments[0])
    given: dict[str, Any] = {}
    for argument in arguments[1:]:
        name, text = argument.split("=", 1)
        kind = str if name == "resume" else settings()[name].kind
        given[name] = kind(text)
    watch = Watch(quiet=False, progress=progress_for(True))
    try:
        if "resume" in given:
            folder = Path(given.pop("resume"))
            print(resume(folder, given, watch, make_stand_in))
        else:
            print(train(make_config(**given), watch, make_stand_in))
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        return _failure(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
