"""A connection to a Ray cluster: one that is running, or one of this machine that lasts as long as the run."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it would report to its makers
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # its remarks would come between our lines; faults are told
os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what a worker sees is for us to say

import grpc
import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fedmatch_tf.base import temporary
from fedmatch_tf.base.quiet import no_stderr
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.workers import own_code
from fedmatch_tf.workers.environment import variables, worker_variables

_PARENT = "/tmp"  # of folders on every node: Ray's sockets need a short path
_ANSWER = 5.0  # seconds for a cluster to take a connection
_REMOVAL = 30.0  # seconds for nodes to remove a folder: each may have to start a process for that


@contextmanager
def connected(config: Config) -> Iterator[str]:
    """A connection to the cluster that is running, or a cluster of this machine; a folder for files that go with it."""
    ray._private.worker._worker_logs_enabled = False  # remarks on dead workers: Ray has no public switch for those
    code = [str(Path(__file__).parents[1])]
    how = {"runtime_env": {"py_modules": code}, "log_to_driver": False, "logging_level": logging.ERROR}
    name = f"ray-{os.getpid()}-"
    with ExitStack() as stack:
        code += stack.enter_context(own_code.as_packages(config.arch))
        if config.ray_address:
            folder = f"{_PARENT}/{temporary.PREFIX}{name}{time.time_ns()}"  # made by those who need it, on every node
            _join(config.ray_address, how)
            stack.callback(ray.shutdown)
        else:
            folder = stack.enter_context(temporary.new_folder(name, _PARENT))
            gpus = [worker_variables(gpu, os.environ)["CUDA_VISIBLE_DEVICES"] for gpu in sorted(set(config.gpu or ()))]
            stack.enter_context(variables({"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {}))
            stack.callback(ray.shutdown)
            _start(config, folder, how)
        yield folder


def workers_per_gpu(config: Config) -> int:
    """How many workers share a GPU: of this machine, where an id may be given several times, or of a cluster."""
    return max((config.gpu_of_workers.count(gpu) for gpu in config.gpu or ()), default=config.clients_per_gpu)


def room(threads: int, per_gpu: int = 1) -> int:
    """How many workers the cluster's nodes can have at once: so many per GPU, or one for so many CPUs of a node."""
    gpus = sum(int(node.get("GPU", 0)) for node in resources())
    return gpus * per_gpu or sum(int(node.get("CPU", 0)) // threads for node in resources())


def resources() -> list[Mapping[str, float]]:
    """What each node has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def remove_everywhere(folder: str) -> None:
    """Removes the folder on every node, whoever made it there."""
    removals = [
        ray.remote(shutil.rmtree)
        .options(num_cpus=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False))
        .remote(folder, ignore_errors=True)
        for node in ray.nodes()
        if node["Alive"]
    ]
    ray.wait(removals, num_returns=len(removals), timeout=_REMOVAL)


def _join(address: str, how: Mapping[str, Any]) -> None:
    """Connects to a running cluster."""
    try:
        address = os.environ.get("RAY_ADDRESS") or address  # as Ray does it
        if address != "auto":
            _check_answers(address)
        with no_stderr():
            ray.init(address, **how)
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(
            f"--ray-address: expected a running Ray cluster of which this machine is a node, received {address} "
            f"({' '.join(str(error).split())}). See docs/CLUSTER.md"
        ) from error


def _start(config: Config, folder: str, how: Mapping[str, Any]) -> None:
    """Starts a cluster of this machine that has room for the workers and nothing else."""
    with no_stderr():
        ray.init(
            "local",
            num_cpus=(config.workers or 1) * (config.threads_per_worker or 1),
            num_gpus=len(set(config.gpu or ())),
            include_dashboard=False,
            _temp_dir=folder,
            **how,
        )


def _check_answers(address: str) -> None:
    """Raises OSError unless something like Ray listens there: Ray itself would try for minutes."""
    host, port = address.rsplit(":", 1)
    socket.create_connection((host, int(port)), _ANSWER).close()
    with grpc.insecure_channel(address) as channel:
        try:
            grpc.channel_ready_future(channel).result(_ANSWER)
        except grpc.FutureTimeoutError as error:
            raise ConnectionError(f"what listens at {address} does not answer as Ray does") from error
