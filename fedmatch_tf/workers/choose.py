"""The backend that a config asks for, and how many workers with how many threads this machine gets."""

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

import joblib

from fedmatch_tf.base.plugins import networks
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.federation.crew import Backend
from fedmatch_tf.workers import environment, own_code
from fedmatch_tf.workers.inline import InlineBackend
from fedmatch_tf.workers.process import ProcessBackend

SPLITS_WELL = 0.3  # GFLOP for an image, in which two threads gain


def make_worker(config: Config, **given: Any) -> Any:
    """A worker, in the process that calls this; what may be given says `Worker`."""
    environment.prepare(config.threads_per_worker, config.gpu_memory, config.precision)
    from fedmatch_tf.federation.worker import Worker

    return Worker(config, **given)


def decide(config: Config, cores: int | None = None) -> Config:
    """The config with its workers and threads decided, so that they are on record. Each id has `clients_per_gpu`.

    Args:
        cores: those this process may use (affinity and container limits counted), unless given.
    """
    if config.backend == "ray" and find_spec("ray") is None:
        raise ConfigError("--backend: ray is not installed here; `pip install -r requirements/ray.txt` brings it")
    cores = cores or joblib.cpu_count()
    on_gpus = len(config.gpu_of_workers)
    if config.backend == "inline" and max(config.workers or 1, on_gpus) > 1:
        raise ConfigError("--backend: inline is this one process; use --backend process for several workers or GPUs")
    if config.gpu is not None and config.workers not in (None, on_gpus):
        raise ConfigError(
            f"--workers: with --gpu there are as many as ids x --clients-per-gpu: expected {on_gpus} or none, "
            f"received {config.workers}"
        )
    given = config.threads_per_worker
    config = replace(config, threads_per_worker=given or _threads(config, cores))
    if config.gpu is not None:
        workers = on_gpus
    elif config.backend == "inline":
        workers = 1
    elif config.workers is None and config.ray_address and config.backend == "ray":
        from fedmatch_tf.workers.ray import num_workers

        workers = num_workers(config)
    else:
        workers = config.workers or max(1, min(config.clients_per_round, cores // (given or 1)))
    return replace(config, workers=workers)


def _threads(config: Config, cores: int) -> int:
    """The fastest number for the kind of run. A result may depend on it, so it never follows workers or backend.

    With more clients than cores, the last client of a round often trains alone. Clients that validate leave work for
    the other cores; without that (`--lr-signal server`) a second thread uses them, if the network's operations are
    large enough to be split: with ResNet-9 it gains 5 to 19 %, AlexNet loses 5 % (docs/PERFORMANCE.md).
    """
    if cores >= config.clients_per_round:
        return cores // config.clients_per_round
    network = networks().get(config.arch)
    is_large = network is not None and (network.gflop or 0) >= SPLITS_WELL
    return 2 if cores > 1 and config.lr_source != "client" and is_large else 1


def check_backend(config: Config) -> None:
    """Raises ConfigError if the run can't have what it asks for.

    That is a module, a GPU, a precision, or a script that can be loaded again.
    """
    own_code.check(config.arch)
    if config.backend == "process" or config.gpu is not None:  # processes are spawned
        own_code.check_script()
    if config.gpu is not None:
        order = {"CUDA_DEVICE_ORDER": os.environ.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}  # as workers have it
        with environment.variables(order), ProcessPoolExecutor(1, get_context("spawn")) as pool:
            environment.check_gpus(config.gpu, pool.submit(environment.list_gpus).result(), config.precision)
    elif not config.ray_address:  # each node of a cluster sees for itself
        environment.check_cpu_precision(config.precision)


def open_backend(
    config: Config, note: Callable[[str], None], worker: Callable[..., Any] = make_worker
) -> AbstractContextManager[Backend]:
    """A context whose exit ends every worker.

    Args:
        worker: makes a worker; pickled if it goes to another process.
    """
    if config.backend == "ray":
        from fedmatch_tf.workers.ray import RayBackend  # optional, and slow to load

        return RayBackend(config, worker, note)
    gpus = config.gpu_of_workers or [None] * (config.workers or 1)
    environments = [environment.worker_variables(gpu, os.environ) for gpu in gpus]
    if config.backend == "inline":
        return InlineBackend(partial(worker, config), environments[0])
    return ProcessBackend(partial(worker, config), environments, config.task_timeout, config.task_tries, note)
