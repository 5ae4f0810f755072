"""The paper's two networks, decomposed or plain, and their parameters as flat vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable

import numpy as np
import tensorflow as tf

from fedmatch_tf.config import SMALLEST_IMAGE, ConfigError
from fedmatch_tf.core.layers import DecomposedConv2D, DecomposedDense, default_initializer
from fedmatch_tf.core.params import Params, flatten

keras = tf.keras
PLAIN_SCALE = 1.2  # a plain network starts where sigma + 0.2 sigma would


def build_network(
    arch: str,
    image_shape: Sequence[int],
    num_classes: int,
    decomposed: bool = True,
    l1_thres: float = 0.0,
    precision: str = "float32",
) -> Any:
    """A Keras model: images in [0, 1] [batch, h, w, c] -> probabilities [batch, classes].

    Args:
        precision: of what is computed; parameters and probabilities are always float32.
    """
    smallest = SMALLEST_IMAGE[arch]
    if len(image_shape) != 3 or min(image_shape[:2]) < smallest:
        raise ConfigError(f"--image-size: expected at least {smallest} for {arch}, received images {list(image_shape)}")
    if decomposed:

        def conv(filters: int, size: int, padding: str) -> Any:
            return DecomposedConv2D(filters, size, padding=padding, activation="relu", l1_thres=l1_thres)

        def dense(units: int, activation: str | None) -> Any:
            return DecomposedDense(units, activation=activation, l1_thres=l1_thres)

    else:

        def conv(filters: int, size: int, padding: str) -> Any:
            start = default_initializer()
            return keras.layers.Conv2D(
                filters, size, padding=padding, activation="relu", use_bias=False, kernel_initializer=start
            )

        def dense(units: int, activation: str | None) -> Any:
            return keras.layers.Dense(
                units, activation=activation, use_bias=False, kernel_initializer=default_initializer()
            )

    image = keras.Input(tuple(image_shape))
    with _policy("mixed_float16" if precision == "mixed" else "float32"):
        scores = NETWORKS[arch](image, num_classes, conv, dense)
    return keras.Model(image, keras.layers.Softmax(dtype="float32")(scores), name=arch)


@contextmanager
def _policy(name: str) -> Iterator[None]:
    """Layers made here compute in this precision."""
    before = keras.mixed_precision.global_policy()
    keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        keras.mixed_precision.set_global_policy(before)


def _resnet9(x: Any, num_classes: int, conv: Callable[..., Any], dense: Callable[..., Any]) -> Any:
    """Table "Network Architecture of ResNet-9": nine kernels, no batch norm, no bias."""
    pool = keras.layers.MaxPool2D
    x = conv(64, 3, "same")(x)
    x = pool(2)(conv(128, 3, "same")(x))
    x = keras.layers.Add()([x, conv(128, 3, "same")(conv(128, 3, "same")(x))])
    x = pool(2)(conv(256, 3, "same")(x))
    x = pool(2)(conv(512, 3, "same")(x))
    x = keras.layers.Add()([x, conv(512, 3, "same")(conv(512, 3, "same")(x))])
    return dense(num_classes, None)(keras.layers.Flatten()(pool(4)(x)))


def _alexnet(x: Any, num_classes: int, conv: Callable[..., Any], dense: Callable[..., Any]) -> Any:
    """AlexNet-like of the paper's appendix: 64, 128, 256 filters of size 4, 3, 2, then twice 2048 units."""
    for filters, size in ((64, 4), (128, 3), (256, 2)):
        x = keras.layers.MaxPool2D(2)(conv(filters, size, "valid")(x))
    x = dense(2048, "relu")(keras.layers.Flatten()(x))
    return dense(num_classes, None)(dense(2048, "relu")(x))


NETWORKS: dict[str, Callable[..., Any]] = {"resnet9": _resnet9, "alexnet": _alexnet}


def sigmas(model: Any) -> list[Any]:
    """The model's sigma variables, or its kernels if it is plain, in layer order."""
    name = "sigma" if is_decomposed(model) else "kernel"
    return [getattr(layer, name) for layer in _weighted(model)]


def psis(model: Any) -> list[Any]:
    """The model's psi variables in layer order; none if it is plain."""
    return [layer.psi for layer in _weighted(model)] if is_decomposed(model) else []


def is_decomposed(model: Any) -> bool:
    """Whether kernels are sums of sigma and psi."""
    return hasattr(_weighted(model)[0], "psi")


def _weighted(model: Any) -> list[Any]:
    return [layer for layer in model.layers if layer.weights]


def kernel_shapes(model: Any) -> list[tuple[int, ...]]:
    """Shapes of the kernels in layer order."""
    return [tuple(variable.shape) for variable in sigmas(model)]


def read(model: Any) -> Params:
    """The model's parameters."""
    psi = [variable.numpy() for variable in psis(model)]
    return Params(flatten([variable.numpy() for variable in sigmas(model)]), flatten(psi) if psi else _EMPTY)


_EMPTY = np.zeros(0, np.float32)


def write(model: Any, params: Params) -> None:
    """Puts the parameters into the model."""
    for variables, vector in ((sigmas(model), params.sigma), (psis(model), params.psi)):
        begin = 0
        for variable in variables:
            end = begin + int(np.prod(variable.shape))
            variable.assign(vector[begin:end].reshape(variable.shape))
            begin = end


_LEFT_OF_DEVIATION = 0.87962566103423978  # what a normal cut off at two standard deviations has left of its deviation


def _deviation(shape: Sequence[int]) -> float:
    """Variance scaling by fan-in, as the paper has it; scaled up, as the normal that it is for is cut off."""
    return float(np.sqrt(1.0 / np.prod(shape[:-1])) / _LEFT_OF_DEVIATION)


def original_kernels(shapes: Sequence[tuple[int, ...]], seed: int) -> list[np.ndarray]:
    """The original's draw: every kernel from the beginning of the same stream, so equal shapes have equal kernels.

    It has one seeded Keras initialiser for all kernels, which begins anew at every call.
    """
    key = tf.constant([seed, 0], tf.int64)
    return [tf.random.stateless_truncated_normal(shape, key, stddev=_deviation(shape)).numpy() for shape in shapes]


def independent_kernels(shapes: Sequence[tuple[int, ...]], rng: np.random.Generator) -> list[np.ndarray]:
    """The same distribution, every kernel drawn anew."""
    return [(_deviation(shape) * _truncated_normal(shape, rng)).astype(np.float32) for shape in shapes]


def from_kernels(kernels: Sequence[np.ndarray], psi_factor: float, decomposed: bool) -> Params:
    """Starting parameters: psi = psi_factor * sigma; a plain network starts from 1.2 times the same kernels."""
    sigma = flatten(kernels)
    if decomposed:
        return Params(sigma, np.float32(psi_factor) * sigma)
    return Params(np.float32(PLAIN_SCALE) * sigma, _EMPTY)


def _truncated_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(shape)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum()))
    return values
