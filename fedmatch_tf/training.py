"""A training run from start to end: partitions, backend, rounds, records, result."""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

from fedmatch_tf import checkpoint, server, simulation
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.display import Progress, RoundDisplay, summary
from fedmatch_tf.figures import draw_curve
from fedmatch_tf.partitions import ensure_partitions
from fedmatch_tf.record import RunLog, to_line
from fedmatch_tf.store import MemoryStore
from fedmatch_tf.tasks import InitTask


def train(config: Config, quiet: bool, progress: Progress) -> Path:
    """Runs the whole training; returns the run's folder. After any failure the last whole round is on disk."""
    if config.model != "fedmatch":
        raise ConfigError(f"--model: {config.model} is not built yet; this version has fedmatch")
    if config.gpu is not None or config.backend == "ray" or (config.workers or 1) > 1:
        raise ConfigError(
            "--gpu, --workers and --backend ray are not built yet; this version trains in one CPU process"
        )
    ensure_partitions(config, progress)
    for _ in progress([None], 0, "Starting TensorFlow"):
        from fedmatch_tf.backends.inline import InlineBackend

        backend = InlineBackend(config)
        (params,) = backend.map([InitTask()])
    folder, check_pts = _new_run(config)
    log = RunLog(folder, check_pts, config)
    start = server.initial_state(config, params)
    params, rounds_done, lines = start.params, 0, []
    display = RoundDisplay(config, quiet)
    try:
        with display:
            for record, state in simulation.run(config, start, backend, MemoryStore()):
                params, rounds_done = state.params, record.round_num + 1
                log.add(record)
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
    """(run folder, checkpoint folder), new and named by the time; waits if another run began in the same second."""
    output = Path(config.output_path)
    while True:
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{config.model}-{config.task}"
        try:
            (output / "logs" / name).mkdir(parents=True)
            (output / "check_pts" / name).mkdir(parents=True)
        except FileExistsError:
            if not (output / "logs" / name).is_dir():
                raise
            time.sleep(0.2)
        else:
            return output / "logs" / name, output / "check_pts" / name
