"""The model of a run, from its checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from fedmatch_tf.base.quiet import load_tensorflow
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.federation.scoring import PASS
from fedmatch_tf.networks import files
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import checkpoint, folders
from fedmatch_tf.runs.partition_folder import DataAbout
from fedmatch_tf.workers import own_code
from fedmatch_tf.workers.environment import check_keras, check_precision, grow_memory

Parts = Literal["theta", "sigma", "psi"]


class Trained(NamedTuple):
    """A run's global model after its last round, without a network around it."""

    config: Config
    params: Params
    data: DataAbout
    partitions: str  # their fingerprint
    best: np.ndarray | None = None  # theta of the model with the lowest validation loss, if it was kept
    network: bytes | None = None  # the content of the Keras file that the network is made of, if it is

    def theta(self, parts: Parts = "theta") -> np.ndarray:
        """The weights of a plain network; small elements of psi count as 0, as in every evaluation."""
        if parts not in ("theta", "sigma", "psi"):
            raise ConfigError(f"parts: expected theta, sigma or psi, received {parts!r}")
        if parts != "theta" and not self.config.decomposed:
            raise ConfigError(f"parts: the run has one set of parameters; expected theta, received {parts}")
        if parts == "sigma":
            return self.params.sigma
        return (self.params.only_psi if parts == "psi" else self.params.theta)(self.config.l1_thres)


def read(run: Path, **changed: str | None) -> Trained:
    """What the run's newest checkpoint has of the global model; needs no TensorFlow.

    Args:
        changed: settings that are others now than in the run, such as where its partitions are; None: as they were.
    """
    folder, check_pts = folders.both(run, "--run")
    found = checkpoint.load_model(check_pts)
    config = folders.config_of(found.settings, folder, "--run")
    given: dict[str, Any] = {name: value for name, value in changed.items() if value is not None}
    config = replace(config, **given)
    if not config.has_global_model:
        raise ConfigError(f"--run: {config.model} has no global model: its clients share nothing")
    if found.state.rounds_done == 0:
        raise ConfigError(f"--run: expected a run with at least one round, received {folder}")
    best = None if found.state.best is None else found.state.best.theta
    network = checkpoint.network_of(check_pts, config.arch)
    return Trained(config, found.state.params, found.data, found.partitions, best, network)


def load(run: Path, parts: Parts = "theta", decomposed: bool = False, best: bool = False) -> Any:
    """The Keras model of a run's folder, or of what `export` writes."""
    if run.suffix in (".keras", ".h5") or (run / "saved_model.pb").exists():
        if parts != "theta" or decomposed or best:
            raise ConfigError(f"expected a run for parts, decomposed or best, received the model {run}")
        _prepare()
        return files.load(run)
    found = read(run)
    if best:
        if found.best is None:
            raise ConfigError("best: expected a run with keep_best, which keeps its best model; this one has none")
        if decomposed or parts != "theta":
            raise ConfigError("best: the best model is kept as a plain one; leave out parts and decomposed")
        found = found._replace(params=Params(found.best))
    if not decomposed:
        return plain(found, parts)
    if parts != "theta":
        raise ConfigError(f"decomposed: such a model has both parts; expected parts theta, received {parts}")
    if not found.config.decomposed:
        raise ConfigError("decomposed: the run has one set of parameters; leave it out")
    networks, arch, shape, num_classes = _network(found)
    model = networks.build_network(arch, shape, num_classes, True, found.config.l1_thres)
    networks.write(model, found.params)
    return model


def plain(found: Trained, parts: Parts = "theta", precision: str = "float32") -> Any:
    """The plain Keras model."""
    theta = found.theta(parts)
    networks, *about = _network(found)
    return networks.plain(*about, theta, precision)


def _network(found: Trained) -> tuple[Any, Any, tuple[int, ...], int]:
    """(the module that builds networks, what it is to build, images' shape, number of classes).

    The module loads TensorFlow: that takes seconds, and some variables must be set before.
    """
    arch, data = found.config.arch, found.data
    own_code.check(arch)
    _prepare()
    from fedmatch_tf.networks import build as networks
    from fedmatch_tf.networks.from_file import KerasFile

    network = arch if found.network is None else KerasFile(arch, found.network)
    return networks, network, data.image_shape, len(data.class_names)


def _prepare() -> None:
    check_keras(load_tensorflow())
    grow_memory()


class Predictor:
    """The run's whole model, for batches of uint8 images or of vectors, in the precision of its own evaluations."""

    def __init__(self, found: Trained) -> None:
        precision = found.config.precision
        check_precision(precision)
        model = plain(found, precision=precision)
        from fedmatch_tf.networks.evaluate import Evaluator

        self._evaluator = Evaluator(model)
        shape = found.data.image_shape
        self.batch_size = max(1, PASS * 32**2 // (shape[0] * shape[1])) if len(shape) == 3 else PASS

    def predict(self, x: np.ndarray) -> np.ndarray:
        """Probabilities float32 [n, classes] of images uint8 [n, h, w, c]."""
        probs: np.ndarray = self._evaluator.predict(x).numpy()
        return probs

    def batches(self, num_images: int) -> list[slice]:
        """The rows of each batch."""
        return [slice(begin, begin + self.batch_size) for begin in range(0, num_images, self.batch_size)]
