"""What runs tasks in a process: the model, its compiled steps, the data. Nothing that decides a result lasts."""

from __future__ import annotations

from functools import cached_property, partial, singledispatchmethod
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.base import seeding
from fedmatch_tf.base.plugins import is_own_network, learners
from fedmatch_tf.config import Config
from fedmatch_tf.data import augment, loader
from fedmatch_tf.data.loader import EvalData, Partitions
from fedmatch_tf.federation.client import Client
from fedmatch_tf.federation.evaluation import Evaluation
from fedmatch_tf.federation.helpers import probe_image
from fedmatch_tf.federation.inputs import read_kernels, read_probe
from fedmatch_tf.federation.steps import train_epoch
from fedmatch_tf.federation.tasks import (
    CheckTask,
    ClientResult,
    ClientTask,
    ConfusionTask,
    EvalResult,
    EvalTask,
    InitTask,
    ModelTask,
    PaceTask,
    ProfileTask,
    ServerResult,
    ServerTask,
    Start,
)
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import files
from fedmatch_tf.networks.evaluate import Evaluator, on_device
from fedmatch_tf.networks.from_file import KerasFile

CACHE_BYTES = 256 * 2**20  # of clients' images, in every worker


class Worker:
    """Runs any task of a run; partitions are looked up on this disk, unless they are given.

    Args:
        network: the content of the Keras file that the config names, if it names one.
    """

    def __init__(self, config: Config, partitions: Partitions | None = None, network: bytes | None = None) -> None:
        self._config = config
        self._partitions = partitions or loader.open_partitions(Path(config.dataset_path), config.task)
        self._data = loader.ClientCache(self._partitions, CACHE_BYTES)
        shape, num_classes = self._partitions.image_shape, self._partitions.num_classes
        self._arch = config.arch if network is None else KerasFile(config.arch, network)
        build = partial(networks.build_network, self._arch, shape, num_classes, precision=config.precision)
        self._model = build(decomposed=config.decomposed, l1_thres=config.l1_thres)
        self._own_starts = networks.own_starts(self._model)  # now, while it is new
        strong_view = augment.identity if config.augment == "none" else augment.rand_augment(config.equalize)
        algorithm = make_algorithm(config)
        self._learner = learners()[config.learner].make(config, self._model, strong_view, algorithm.proximal_weight)
        plain = build(decomposed=False) if config.decomposed else self._model
        data = loader.load_eval(self._partitions)
        evals = EvalData(*(part and on_device(part) for part in (data.valid, data.test)))
        self._evaluation = Evaluation(config, Evaluator(plain, config.xla), evals)
        probe = (
            read_probe(Path(config.probe_image), shape, self._partitions.read)
            if config.probe_image
            else probe_image(seeding.stream(config.seed, "probe image"), tuple(shape))
        )
        self._client = Client(config, algorithm, self._model, self._learner, self._evaluation, probe)

    @singledispatchmethod
    def run(self, task: Any) -> Any:
        """The task's result."""
        raise TypeError(f"expected a task, received {type(task).__name__}")

    @run.register
    def _train_client(self, task: ClientTask) -> ClientResult:
        data = self._data.get(task.client, task.task_step)
        labeled_acc_on = None
        if self._config.labeled_acc:
            labeled_acc_on = self._server_data if self._config.scenario == "ls" else data.labeled
        return self._client.update(task, data, labeled_acc_on)

    @run.register
    def _train_server(self, task: ServerTask) -> ServerResult:
        return train_epoch(self._config, self._model, self._learner, self._server_data, task)

    @run.register
    def _score(self, task: EvalTask) -> EvalResult:
        return self._evaluation.score(task)

    @run.register
    def _confusion(self, task: ConfusionTask) -> np.ndarray:
        return self._evaluation.confusion(task.params.theta(self._config.l1_thres))

    @run.register
    def _check(self, task: CheckTask) -> None:
        networks.write(self._model, task.params)

    @run.register
    def _pace(self, _: PaceTask) -> float:
        return self._evaluation.seconds_per_image()

    @run.register
    def _file(self, task: ModelTask) -> bytes:
        return files.keras_file(self._plain(task.theta))

    @run.register
    def _profile(self, task: ProfileTask) -> Any:
        with tf.profiler.experimental.Profile(task.folder):
            return self.run(task.task)

    @run.register
    def _start(self, _: InitTask) -> Start:
        config, shapes, (kernels, others) = self._config, networks.kernel_shapes(self._model), self._own_starts
        if config.init_weights:
            all_shapes = [*shapes, *(value.shape for value in others)]
            given = read_kernels(Path(config.init_weights), all_shapes, self._partitions.read)
            kernels, others = given[: len(shapes)], given[len(shapes) :]
        elif isinstance(self._arch, KerasFile):  # theta is as in the file, whatever has a psi
            kernels = [kernel / np.float32(1 + config.psi_factor) for kernel in kernels]
        elif config.init_draws == "original":
            kernels = networks.original_kernels(shapes, config.seed)
        else:
            kernels = networks.independent_kernels(shapes, seeding.stream(config.seed, "initial weights"))
        params = networks.from_kernels(kernels, config.psi_factor, config.decomposed, others)
        if is_own_network(config.arch):
            networks.check_file(config.arch, self._plain(params.theta()))
        return Start((*kernels, *others), params)

    def _plain(self, theta: np.ndarray) -> Any:
        shape, num_classes = self._partitions.image_shape, self._partitions.num_classes
        return networks.plain(self._arch, shape, num_classes, theta)

    @cached_property
    def _server_data(self) -> Any:
        return loader.load_server(self._partitions)
