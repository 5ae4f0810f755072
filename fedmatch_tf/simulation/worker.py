"""What runs tasks in a process: the model, its compiled steps, the data. Nothing that decides a result lasts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data import augment, loader
from data.loader import EvalData, Partitions
from fedmatch_tf.config import Config
from fedmatch_tf.core import networks, seeding
from fedmatch_tf.core.evaluate import Evaluator, on_device
from fedmatch_tf.core.helpers import probe_image
from fedmatch_tf.core.params import Params, kernels_in_use
from fedmatch_tf.learners.learner import make_method
from fedmatch_tf.simulation import scoring
from fedmatch_tf.simulation.client import Client, check_finite, check_result, progress, slices
from fedmatch_tf.simulation.inputs import read_probe, read_sigma
from fedmatch_tf.simulation.tasks import (
    ClientTask,
    ConfusionTask,
    EvalTask,
    InitTask,
    ProfileTask,
    ServerResult,
    ServerTask,
    Step,
    name_of,
)

CACHE_BYTES = 256 * 2**20  # of clients' images, in every worker


class Worker:
    """Runs any task of a run.

    Args:
        partitions: if they are not to be looked up on this disk.
    """

    def __init__(self, config: Config, partitions: Partitions | None = None) -> None:
        self._config = config
        self._partitions = partitions or loader.open_partitions(Path(config.dataset_path), config.task)
        self._data = loader.ClientCache(self._partitions, CACHE_BYTES)
        shape = self._partitions.image_shape
        self._model = networks.build_network(
            config.arch, shape, self._partitions.num_classes, config.decomposed, config.l1_thres, config.precision
        )
        strong_view = augment.identity if config.augment == "none" else augment.rand_augment(config.equalize)
        self._method = make_method(config, self._model, strong_view)
        plain = self._model
        if config.decomposed:
            plain = networks.build_network(
                config.arch, shape, self._partitions.num_classes, decomposed=False, precision=config.precision
            )
        self._evaluator = Evaluator(plain, config.xla)
        data = loader.load_eval(self._partitions)
        self._evals = EvalData(on_device(data.valid), on_device(data.test))
        probe = (
            read_probe(Path(config.probe_image), shape, self._partitions.read)
            if config.probe_image
            else probe_image(seeding.stream(config.seed, "probe image"), tuple(shape))
        )
        self._client = Client(config, self._model, self._method, self._evaluator, self._evals, probe)

    def run(self, task: Any) -> Any:
        """The task's result."""
        if isinstance(task, ClientTask):
            data = self._data.get(task.client, task.task_step)
            known = None
            if self._config.track_forgetting:
                known = self._server_data.labeled if data.labeled is None else data.labeled
            return self._client.update(task, data, known)
        if isinstance(task, ServerTask):
            return self._server_epoch(task)
        if isinstance(task, EvalTask):
            return self._client.score(task)
        if isinstance(task, ConfusionTask):
            return self._confusion(task)
        if isinstance(task, InitTask):
            return self._initial_params()
        if isinstance(task, ProfileTask):
            with tf.profiler.experimental.Profile(task.folder):
                return self.run(task.task)
        raise TypeError(f"expected a task, received {type(task).__name__}")

    def _confusion(self, task: ConfusionTask) -> np.ndarray:
        """Counts [truth, predicted] over the test data."""
        self._evaluator.load(kernels_in_use(task.params, self._config.l1_thres))
        test = self._evals.test
        probs = [self._evaluator.predict(test.x[rows]).numpy() for rows in scoring.passes(self._config, len(test))]
        predicted = np.concatenate(probs).argmax(axis=1)
        truth = np.argmax(test.y, axis=1)
        classes = self._partitions.num_classes
        return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)

    def _initial_params(self) -> Params:
        config, shapes = self._config, networks.kernel_shapes(self._model)
        if config.init_weights:
            sigma = read_sigma(Path(config.init_weights), shapes, self._partitions.read)
            return networks.from_sigma(sigma, config.psi_factor, config.decomposed)
        rng = seeding.stream(config.seed, "initial weights")
        return networks.initial_params(shapes, config.psi_factor, config.decomposed, rng)

    def _server_epoch(self, task: ServerTask) -> ServerResult:
        """Labels-at-server: sigma learns from the server's labelled set."""
        config = self._config
        labeled = self._server_data.labeled
        networks.write(self._model, task.params)
        done = progress(config, task.round_num, task.epoch / config.num_epochs_server)
        lr = tf.constant(task.lr, tf.float32)
        rows = slices(len(labeled), config.batch_size_server)
        losses = [self._method.server_step(labeled.x[part], labeled.y[part], done, lr) for part in rows]
        steps = tuple(Step("s", float(loss)) for loss in losses)
        check_finite(steps, name_of(task))
        params = networks.read(self._model)
        check_result(params, name_of(task))
        return ServerResult(params, steps)

    @functools.cached_property
    def _server_data(self) -> Any:
        return loader.load_server(self._partitions)
