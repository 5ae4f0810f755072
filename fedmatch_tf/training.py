"""A training run from start to end: partitions, backend, rounds, records, result."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from data import generator, manifest
from data.errors import DataError
from data.loader import open_partitions
from data.partition import PartitionSpec
from data.readers import Progress
from data.sources import load_source
from fedmatch_tf import checkpoint, server, simulation
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.display import RoundDisplay, summary
from fedmatch_tf.figures import draw_curve
from fedmatch_tf.record import RunLog, to_line
from fedmatch_tf.store import MemoryStore
from fedmatch_tf.tasks import InitTask


def partition_spec(config: Config) -> PartitionSpec:
    """What decides the run's partitions."""
    return PartitionSpec(
        scenario=config.scenario,
        kind=config.kind,
        dataset=config.dataset,
        num_clients=config.num_clients,
        labels_per_class=config.labels_per_class,
        num_test=config.num_test,
        num_valid=config.num_valid,
        num_steps=config.num_steps,
        image_size=config.image_size,
        seed=config.seed,
    )


def ensure_partitions(config: Config, progress: Progress) -> None:
    """Makes the task's partitions if there are none; refuses those made with other settings."""
    spec, folder = partition_spec(config), Path(config.dataset_path) / config.task
    if not folder.exists() or not any(folder.iterdir()):
        source = load_source(config.dataset, config.source, config.image_size, progress)
        generator.generate(spec, source, Path(config.dataset_path), progress=progress)
    elif (folder / manifest.NAME).exists():
        given = load_source(config.dataset, config.source, config.image_size, progress) if config.source else None
        differs = generator.difference(folder, spec, given)
        if differs:
            raise DataError(
                f"{folder}: the partitions there don't match this run:\n  " + "\n  ".join(differs) + "\n"
                "Use another --dataset-path, give the settings they were made with, or make them again with "
                "--work-type gen_data --force"
            )
    partitions = open_partitions(Path(config.dataset_path), config.task)
    if (partitions.num_clients, partitions.num_steps) != (config.num_clients, config.num_steps):
        raise DataError(
            f"{folder}: expected {config.num_clients} clients and {config.num_steps} steps, found files of "
            f"{partitions.num_clients} and {partitions.num_steps}. Give --num-clients and --num-steps to match"
        )


def train(config: Config, quiet: bool, progress: Progress) -> Path:
    """Runs the whole training; returns the run's folder. After any failure the last whole round is on disk."""
    if config.model != "fedmatch":
        raise ConfigError(f"--model: {config.model} is not built yet; this version has fedmatch")
    if config.gpu is not None or config.backend == "ray":
        raise ConfigError("--gpu and --backend ray are not built yet; this version trains on the CPU in one process")
    ensure_partitions(config, progress)
    for _ in progress([None], 0, "Starting TensorFlow"):
        from fedmatch_tf.backends.inline import InlineBackend

        backend = InlineBackend(config)
        (params,) = backend.map([InitTask()])
    folder, check_pts = _new_run(config)
    log = RunLog(folder, check_pts, config)
    start = server.initial_state(config, params)
    params, rounds_done, lines = start.params, 0, []
    try:
        with RoundDisplay(config, quiet) as display:
            for record, state in simulation.run(config, start, backend, MemoryStore()):
                log.add(record)
                params, rounds_done = state.params, record.round_num + 1
                lines.append(to_line(record))
                display.show(lines[-1])
    except BaseException:
        saved = checkpoint.save(check_pts, params, rounds_done)
        display.note(f"Stopped after {rounds_done} whole rounds; the global model is in {saved}")
        raise
    checkpoint.save(check_pts, params, rounds_done)
    draw_curve(lines, f"{config.model} on {config.task}, {config.arch}, seed {config.seed}", folder / "curve.png")
    print(summary(lines, config))
    return folder


def _new_run(config: Config) -> tuple[Path, Path]:
    """(run folder, checkpoint folder), named by the time; waits if another run began in the same second."""
    output = Path(config.output_path)
    while True:
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{config.model}-{config.task}"
        if not (output / "logs" / name).exists():
            return output / "logs" / name, output / "check_pts" / name
        time.sleep(0.2)
