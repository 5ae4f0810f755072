"""The backend that a config asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.data.loader import Partitions
from fedmatch_tf.federation.crew import Backend
from fedmatch_tf.workers import machine, own_code
from fedmatch_tf.workers.environment import check_cpu_precision, check_gpus, list_gpus, prepare, worker_variables
from fedmatch_tf.workers.inline import InlineBackend
from fedmatch_tf.workers.process import ProcessBackend


def make_worker(config: Config, partitions: Partitions | None = None) -> Any:
    """A worker, in the process that calls this.

    Args:
        partitions: if they are not to be looked up on this disk.
    """
    prepare(config.threads_per_worker, config.gpu_memory, config.precision)
    from fedmatch_tf.federation.worker import Worker

    return Worker(config, partitions)


def decide(config: Config) -> Config:
    """The config with its workers and threads decided, so that they are on record."""
    if config.backend == "ray" and find_spec("ray") is None:
        raise ConfigError("--backend: ray is not installed here; `pip install -r requirements/ray.txt` brings it")
    config = machine.fill_in(config)
    if config.workers is None:
        from fedmatch_tf.workers.ray import num_workers

        config = replace(config, workers=num_workers(config))
    return config


def check_backend(config: Config) -> None:
    """Raises ConfigError if the run can't have what it asks for.

    That is a module, a GPU, a precision, or a script that can be loaded again.
    """
    own_code.check(config.arch)
    if config.backend == "process" or config.gpu is not None:  # processes are spawned
        own_code.check_script()
    if config.gpu is not None:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            check_gpus(config.gpu, pool.submit(list_gpus).result(), config.precision)
    elif not config.ray_address:  # each node of a cluster sees for itself
        check_cpu_precision(config.precision)


def open_backend(
    config: Config, note: Callable[[str], None], worker: Callable[..., Any] = make_worker
) -> AbstractContextManager[Backend]:
    """A context whose exit ends every worker.

    Args:
        config: with its workers and threads decided.
        note: is told of faults.
        worker: makes a worker; pickled if it goes to another process.
    """
    if config.backend == "ray":
        from fedmatch_tf.workers.ray import RayBackend  # optional, and slow to load

        return RayBackend(config, worker, note)
    gpus = config.gpu_of_workers or [None] * (config.workers or 1)
    environments = [worker_variables(gpu, os.environ) for gpu in gpus]
    if config.backend == "inline":
        return InlineBackend(partial(worker, config), environments[0])
    return ProcessBackend(partial(worker, config), environments, config.task_timeout, config.task_tries, note)
