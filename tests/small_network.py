"""A small network with FedMatch's steps, and a few images, for tests of what happens on one model."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from fedmatch_tf.config import Config, make_config
from fedmatch_tf.data import augment
from fedmatch_tf.learners.fedmatch import FedMatch
from fedmatch_tf.learners.learner import Terms
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.evaluate import Evaluator
from fedmatch_tf.networks.params import Params
from tests.conftest import made_up_images

X, LABELS = made_up_images(24, num_classes=4, size=24)
Y = np.eye(4, dtype=np.float32)[LABELS]


class Bench:
    """A small network, its steps, and its parameters before and after one of them."""

    def __init__(self, **given: Any) -> None:
        self.config: Config = make_config("lc-biid-c10", arch="alexnet", **given)
        self.model = networks.build_network("alexnet", (24, 24, 3), 4, l1_thres=self.config.l1_thres)
        rng = np.random.default_rng(1)
        self.before = networks.from_kernels(
            networks.independent_kernels(networks.kernel_shapes(self.model), rng), 0.2, True
        )
        self.learner = FedMatch(self.config, self.model, augment.identity)
        self.evaluator = Evaluator(networks.build_network("alexnet", (24, 24, 3), 4, decomposed=False))
        self.restore()

    def restore(self) -> None:
        networks.write(self.model, self.before)

    def after(self) -> Params:
        return networks.read(self.model)

    def probs(self, x: np.ndarray = X) -> np.ndarray:
        result: np.ndarray = self.model(tf.cast(x, tf.float32) / 255, training=True).numpy()
        return result


def psi_of(params: Params) -> np.ndarray:
    """Of a decomposed network's parameters."""
    assert params.psi is not None
    return params.psi


def numbers(terms: Terms) -> dict[str, float]:
    """A step's terms as numbers."""
    return {name: float(value) for name, value in terms.losses.items()}


def flat(tensors: list[Any]) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors])
