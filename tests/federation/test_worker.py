"""The way from the loop to the gradient step, counted."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.federation import loop, server
from fedmatch_tf.federation.tasks import InitTask
from fedmatch_tf.federation.worker import Worker
from fedmatch_tf.learners.fedmatch import FedMatch
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import ensure_partitions
from fedmatch_tf.workers.inline import InlineBackend
from tests.conftest import ROOT, made_up_images, save_npz
from tests.stand_in import MemoryStore


def test_there_are_seven_calls_from_the_loop_to_the_gradient_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = made_up_images(60, num_classes=5, size=20)
    source = save_npz(tmp_path / "own.npz", x, y)
    config = make_config(
        "lc-biid-own",
        source=str(source),
        dataset_path=str(tmp_path),
        arch="alexnet",
        image_size=20,
        num_clients=2,
        num_test=10,
        num_valid=10,
        labels_per_class=1,
        num_rounds=1,
    )
    ensure_partitions(config, progress_for(True))
    calls: list[list[str]] = []
    step = FedMatch._unsupervised_step

    def watched(self: FedMatch, *arguments: Any) -> Any:
        ours = [frame for frame in inspect.stack()[1:] if str(ROOT / "fedmatch_tf") in frame.filename]
        calls.append([frame.function for frame in reversed(ours)])
        return step(self, *arguments)

    monkeypatch.setattr(FedMatch, "_unsupervised_step", watched)
    with InlineBackend(partial(Worker, config)) as backend:
        (start,) = backend.map([InitTask()])
        list(loop.run(config, server.initial_state(config, start.params), backend, MemoryStore()))
    documented = ["run", "fold", "train_clients", "map", "run", "update", "_train"]
    assert calls[0] == documented
    page = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    chain = "`run` -> `fold` -> `train_clients` -> `map` -> `run` (of the worker) ->\n`update` -> `_train` ->"
    assert f"{chain} `_unsupervised_step`" in page
