"""The server of real hosts: the package's rounds, checkpoint and records, with Flower's nodes as clients.

RunServer is federation/loop.py; the server's own epochs and scores run in this process. `flwr run` with the flags of a
training starts a run, with `--resume RUN` it goes on where its last checkpoint is.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedmatch_flower.backend import FlowerBackend, Limits, Nodes
from fedmatch_flower.own_data import classes_in, pack, state_of
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.plugins import is_keras_file
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.config.resume import with_absolute_paths
from fedmatch_tf.data import manifest
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.loader import Partitions, open_partitions
from fedmatch_tf.federation import server
from fedmatch_tf.federation.tasks import CheckTask, InitTask
from fedmatch_tf.parser import parse
from fedmatch_tf.runs import folders, training
from fedmatch_tf.runs.display import RoundDisplay, progress_for
from fedmatch_tf.runs.folders import Run
from fedmatch_tf.runs.inputs import checksums
from fedmatch_tf.runs.partition_folder import data_about, with_own_partitions
from fedmatch_tf.runs.training import Watch
from fedmatch_tf.workers.choose import decide, make_worker
from fedmatch_tf.workers.environment import keep_memory, worker_variables
from fedmatch_tf.workers.inline import InlineBackend

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """The whole run."""
    given = context.run_config
    limits = Limits(int(given["min-clients"]), float(given["time-limit"]), float(given["join-time"]))
    command = parse(shlex.split(str(given["flags"])))
    keep_memory()
    with ExitStack() as stack:
        if command.work == "resume":
            run, notes = folders.reopen(Path(command.arguments["run"]), command.arguments["given"])
            stack.enter_context(run)
            config = run.config = _between_hosts(run.config)
        elif command.work == "train":
            config = _between_hosts(command.arguments["config"])
            run, notes = None, []
        else:
            raise ConfigError(f"flags: expected those of a training, received --work-type {command.work}")
        display = RoundDisplay(config, quiet=False, records=run.past if run else ())
        for note in notes:
            display.note(f"note: {note}")
        if run is None and DATASETS[config.dataset].given_by_source:
            shape = config.image_size, config.image_size, 3
            nodes = Nodes(grid, config, classes_in(Path(str(config.source))), shape, display.note)
            sizes = nodes.join(limits)
            config = _packed(config, nodes.classes)
            partitions = open_partitions(Path(config.dataset_path), config.task)
        else:
            partitions = open_partitions(Path(config.dataset_path), config.task)
            if run is not None:
                training.check_same(run, partitions, display.note)
            nodes = Nodes(grid, config, partitions.class_names or (), partitions.image_shape, display.note)
            sizes = nodes.join(limits)
        here = _sets_here(config, partitions)
        variables = worker_variables(None, os.environ)
        inline = stack.enter_context(InlineBackend(partial(make_worker, config), variables))
        run = _begin(stack, config, partitions, inline) if run is None else _go_on(run, inline)
        backend = FlowerBackend(config, grid, nodes, limits, inline, run.store, display.note, "test" in here)
        watch = Watch(quiet=False, progress=progress_for(True))
        training.train_rounds(run, backend, partitions, display, watch, sizes)
        display.note(str(run.folder))


def _packed(config: Config, classes: Sequence[str]) -> Config:
    """The config with the server's images as partitions, in a folder that is for them, as they are now, alone."""
    source = Path(str(config.source))
    config = with_own_partitions(config, state_of(source, classes))
    if not (config.partition_folder / manifest.NAME).exists():
        config.partition_folder.mkdir(parents=True, exist_ok=True)
        pack(source, config.partition_folder, None, config, classes)
    return config


def _sets_here(config: Config, partitions: Partitions) -> set[str]:
    """The kinds of sets that the server itself has."""
    files = partitions.files or {}
    here = {file.role for name, file in files.items() if (partitions.folder / name).exists()}
    validates = config.keep_best or config.lr_source != "client"
    if "valid" not in here and (validates or (config.scenario == "ls" and config.num_epochs_server)):
        raise DataError(
            f"{partitions.folder}: expected validation data at the server: it validates with its own labels, "
            f"--keep-best, --lr-signal server or another --lr-schedule than plateau"
        )
    return here


def _between_hosts(config: Config) -> Config:
    """The config as hosts have it: every client scores its own model, all of them at a time."""
    if not config.has_global_model:
        raise ConfigError(f"--model: expected one with a global model between hosts, received {config.model}")
    for name in ("drop_rate", "labeled_acc", "probe_image", "profile_run"):
        if getattr(config, name):
            raise ConfigError(f"--{name.replace('_', '-')}: is not there between hosts; leave it out")
    if is_keras_file(config.arch):
        raise ConfigError(f"--arch: expected a network by its name, as clients are not sent {config.arch}")
    config = replace(config, backend="process", workers=config.clients_per_round, gpu=None)
    return decide(with_absolute_paths(config))


def _begin(stack: ExitStack, config: Config, partitions: Partitions, inline: InlineBackend) -> Run:
    (start,) = inline.map([InitTask()])
    state, about = server.initial_state(config, start.params), data_about(partitions)
    return stack.enter_context(
        folders.create(config, state, partitions.fingerprint, about, checksums(config), start.kernels)
    )


def _go_on(run: Run, inline: InlineBackend) -> Run:
    list(inline.map([CheckTask(run.state.params)]))  # before anything of the run is changed
    run.begin()
    return run
