"""Predictions of a model whose kernels are given, and its loss and hits on validation or test data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from fedmatch_tf.base.quiet import tf
from fedmatch_tf.data.files import Examples
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.losses import cross_entropy
from fedmatch_tf.networks.params import Params


class Evaluator:
    """A plain network: sigma and psi are added up once, when they are loaded, not with every batch."""

    def __init__(self, network: Any, xla: bool = False) -> None:
        self._network = network
        compiled = partial(tf.function, autograph=False, jit_compile=xla or None)
        images = inputs_of(network)
        targets = tf.TensorSpec([None, network.output_shape[-1]])
        self._compiled = compiled(self._loss_and_hits, [images, targets])
        self.predict = compiled(lambda x: network(scaled(x)), [images])
        floats = tf.TensorSpec(images.shape, tf.float32)
        self.embed = compiled(lambda image: network(image), [floats])

    def load(self, theta: np.ndarray) -> None:
        """The kernels to use from now on."""
        networks.write(self._network, Params(theta))

    def score(self, examples: Examples, batches: Sequence[slice]) -> tuple[tuple[float, ...], tuple[int, ...]]:
        """(mean loss, right predictions) of each batch; values leave the device when all are done."""
        done = [self._compiled(examples.x[rows], examples.y[rows]) for rows in batches]
        return tuple(float(loss) for loss, _ in done), tuple(int(hits) for _, hits in done)

    def _loss_and_hits(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        probs = self._network(scaled(x))
        hits = tf.equal(tf.argmax(probs, axis=-1), tf.argmax(y, axis=-1))
        return cross_entropy(y, probs), tf.reduce_sum(tf.cast(hits, tf.int32))


def on_device(examples: Examples) -> Examples:
    """The set as tensors that stay where the model is."""
    return Examples(tf.constant(examples.x), tf.constant(examples.y))


def scaled(x: tf.Tensor) -> tf.Tensor:
    """uint8 images as floats in [0, 1]; vectors as they are."""
    return tf.cast(x, tf.float32) / 255.0 if x.dtype == tf.uint8 else x


def inputs_of(network: Any) -> tf.TensorSpec:
    """The kind of tensor that a batch for the network is: images uint8, or vectors float32."""
    shape = network.input_shape
    return tf.TensorSpec([None, *shape[1:]], tf.float32 if len(shape) == 2 else tf.uint8)
