"""What runs tasks in a process: the model, its compiled steps, the data. Nothing that decides a result lasts."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from data import augment, loader
from data.loader import EvalData
from fedmatch_tf import networks, seeding
from fedmatch_tf.client import Client, check_finite, check_result, clients_test, progress, slices
from fedmatch_tf.config import Config
from fedmatch_tf.evaluate import Evaluator, on_device
from fedmatch_tf.helpers import probe_image
from fedmatch_tf.inputs import read_probe, read_sigma
from fedmatch_tf.methods.method import make_method
from fedmatch_tf.params import Params
from fedmatch_tf.tasks import (
    ClientTask,
    ConfusionTask,
    EvalResult,
    EvalTask,
    InitTask,
    ServerResult,
    ServerTask,
    Step,
    name_of,
)

CACHE_BYTES = 256 * 2**20  # of clients' images, in every worker


class Worker:
    """Runs any task of a run."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._partitions = loader.open_partitions(Path(config.dataset_path), config.task)
        self._data = loader.ClientCache(self._partitions, CACHE_BYTES)
        shape = self._partitions.image_shape
        self._model = networks.build_network(
            config.arch, shape, self._partitions.num_classes, config.decomposed, config.l1_thres
        )
        strong_view = augment.identity if config.augment == "none" else augment.rand_augment(config.equalize)
        self._method = make_method(config, self._model, strong_view)
        self._evaluator = Evaluator(self._model, config.batch_size_test)
        data = loader.load_eval(self._partitions)
        self._evals = EvalData(on_device(data.valid), on_device(data.test))
        probe = (
            read_probe(Path(config.probe_image), shape)
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
            return self._server_epochs(task)
        if isinstance(task, EvalTask):
            networks.write(self._model, task.params)
            score = self._evaluator.score(self._evals.valid if task.name == "valid" else self._evals.test)
            check_result(task.params, score, name_of(task))
            return EvalResult(task.name, score)
        if isinstance(task, ConfusionTask):
            networks.write(self._model, task.params)
            return self._confusion()
        if isinstance(task, InitTask):
            return self._initial_params()
        raise TypeError(f"expected a task, received {type(task).__name__}")

    def _confusion(self) -> np.ndarray:
        """Counts [truth, predicted] over the test data."""
        predicted = self._evaluator.classes(self._evals.test)
        truth = np.argmax(self._evals.test.y, axis=1)
        classes = self._partitions.num_classes
        return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)

    def _initial_params(self) -> Params:
        config, shapes = self._config, networks.kernel_shapes(self._model)
        if config.init_weights:
            sigma = read_sigma(Path(config.init_weights), shapes)
            return networks.from_sigma(sigma, config.psi_factor, config.decomposed)
        rng = seeding.stream(config.seed, "initial weights")
        return networks.initial_params(shapes, config.psi_factor, config.decomposed, rng)

    def _server_epochs(self, task: ServerTask) -> ServerResult:
        """Labels-at-server: sigma learns from the server's labelled set; validation drives the server's lr."""
        config = self._config
        labeled = self._server_data.labeled
        networks.write(self._model, task.params)
        plateau, steps = task.plateau, []
        for epoch in range(config.num_epochs_server):
            done = progress(config, task.round_num, epoch / config.num_epochs_server)
            lr = tf.constant(plateau.lr, tf.float32)
            rows = slices(len(labeled), config.batch_size_server)
            losses = [self._method.server_step(labeled.x[part], labeled.y[part], done, lr) for part in rows]
            steps += [Step("s", float(loss)) for loss in losses]
            check_finite(steps, name_of(task))
            valid, plateau = self._client.validate(plateau)
        test = self._evaluator.score(self._evals.test) if clients_test(config) else None
        params = networks.read(self._model)
        check_result(params, valid, name_of(task))
        return ServerResult(params, plateau, tuple(steps), valid, test)

    @functools.cached_property
    def _server_data(self) -> Any:
        return loader.load_server(self._partitions)
