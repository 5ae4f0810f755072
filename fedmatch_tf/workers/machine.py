"""How many workers with how many threads this machine gets."""

from __future__ import annotations

from dataclasses import replace

import joblib

from fedmatch_tf.base.plugins import networks
from fedmatch_tf.config import Config, ConfigError

SPLITS_WELL = 0.3  # GFLOP for an image, in which two threads gain


def fill_in(config: Config, cores: int | None = None) -> Config:
    """The config with its workers and threads decided, so that they are on record. Each id has `clients_per_gpu`.

    Only the workers of a Ray cluster are left open: it is the cluster that decides on them (workers/choose.py).

    Args:
        cores: those this process may use (affinity and container limits counted), unless given.
    """
    cores = cores or joblib.cpu_count()
    on_gpus = len(config.gpu_of_workers)
    if config.backend == "inline" and max(config.workers or 1, on_gpus) > 1:
        raise ConfigError("--backend: inline is this one process; use --backend process for several workers or GPUs")
    if config.gpu is not None:
        if config.workers not in (None, on_gpus):
            raise ConfigError(
                f"--workers: with --gpu there are as many as ids x --clients-per-gpu: expected {on_gpus} or none, "
                f"received {config.workers}"
            )
        workers: int | None = on_gpus
    elif config.backend == "ray" and config.ray_address:
        workers = config.workers
    elif config.backend == "inline":
        workers = 1
    else:
        workers = config.workers or max(1, min(config.clients_per_round, cores // (config.threads_per_worker or 1)))
    return replace(config, workers=workers, threads_per_worker=config.threads_per_worker or _threads(config, cores))


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
    return 2 if cores > 1 and config.lr_signal == "server" and is_large else 1
