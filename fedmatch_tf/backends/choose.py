"""The backend that a config asks for."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from multiprocessing import get_context
from typing import Any

from fedmatch_tf.backends.inline import InlineBackend
from fedmatch_tf.backends.process import ProcessBackend
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.environment import check_gpus, list_gpus, prepare, worker_variables
from fedmatch_tf.simulation import Backend


def make_worker(config: Config) -> Any:
    """A worker, in the process that calls this."""
    prepare(config.threads_per_worker)
    from fedmatch_tf.worker import Worker

    return Worker(config)


def check_backend(config: Config) -> None:
    """Raises ConfigError if the run asks for what isn't here, such as a GPU that TensorFlow doesn't find."""
    if config.backend == "ray":
        raise ConfigError("--backend: ray is not built yet; this version has process and inline")
    if config.gpu is not None:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            check_gpus(config.gpu, pool.submit(list_gpus).result())


def open_backend(
    config: Config, note: Callable[[str], None], worker: Callable[[Config], Any] = make_worker
) -> AbstractContextManager[Backend]:
    """A context whose exit ends every worker.

    Args:
        config: with its workers and threads decided.
        note: is told of faults.
        worker: makes a worker; pickled if it goes to another process.
    """
    environments = [worker_variables(gpu, os.environ) for gpu in config.gpu or [None] * (config.workers or 1)]
    if config.backend == "inline":
        os.environ.update(environments[0])
        return InlineBackend(partial(worker, config))
    return ProcessBackend(partial(worker, config), environments, config.task_timeout, config.task_tries, note)
