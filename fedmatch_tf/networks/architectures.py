"""The networks by name, and a user's own: functions of an image, the number of classes, and two makers of layers.

`conv(filters, size, padding="same", strides=1, activation="relu")` and `dense(units, activation=None)` make layers
without bias. They are decomposed (sigma + psi) or plain, so one function says both networks.
"""

from __future__ import annotations

import traceback
from importlib import import_module
from typing import Any, Callable

import tensorflow as tf

from fedmatch_tf.config import ConfigError
from fedmatch_tf.config.tables import is_own_network

keras = tf.keras
Maker = Callable[..., Any]
NetworkFunction = Callable[[Any, int, Maker, Maker], Any]  # (image, classes, conv, dense) -> scores before softmax
GROUPS = 8  # of a group normalisation; every width here is a multiple of it


def resnet9(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """Table "Network Architecture of ResNet-9": nine kernels, no batch norm, no bias."""
    pool = keras.layers.MaxPool2D
    x = conv(64, 3)(x)
    x = pool(2)(conv(128, 3)(x))
    x = keras.layers.Add()([x, conv(128, 3)(conv(128, 3)(x))])
    x = pool(2)(conv(256, 3)(x))
    x = pool(2)(conv(512, 3)(x))
    x = keras.layers.Add()([x, conv(512, 3)(conv(512, 3)(x))])
    return dense(num_classes)(keras.layers.Flatten()(pool(4)(x)))


def alexnet(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """AlexNet-like of the paper's appendix: 64, 128, 256 filters of size 4, 3, 2, then twice 2048 units."""
    for filters, size in ((64, 4), (128, 3), (256, 2)):
        x = keras.layers.MaxPool2D(2)(conv(filters, size, padding="valid")(x))
    x = dense(2048, activation="relu")(keras.layers.Flatten()(x))
    return dense(num_classes)(dense(2048, activation="relu")(x))


def resnet8(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """ResNet-8, four times as wide as the first of its kind: one block of two convolutions for each of 64, 128 and 256
    filters; group norm where it had batch norm."""
    x = _normalised(conv(64, 3, activation=None)(x))
    for filters, strides in ((64, 1), (128, 2), (256, 2)):
        skip = x if strides == 1 else _group_norm()(conv(filters, 1, strides=strides, activation=None)(x))
        x = _normalised(conv(filters, 3, strides=strides, activation=None)(x))
        x = _group_norm()(conv(filters, 3, activation=None)(x))
        x = keras.layers.ReLU()(keras.layers.Add()([x, skip]))
    return dense(num_classes)(keras.layers.GlobalAveragePooling2D()(x))


def wrn28_2(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """Wide ResNet-28-2: three groups of four blocks of 32, 64 and 128 filters; group norm where it had batch norm."""
    x = conv(16, 3, activation=None)(x)
    for filters, strides in ((32, 1), (64, 2), (128, 2)):
        for block in range(4):
            before = _normalised(x)
            step = strides if block == 0 else 1
            skip = conv(filters, 1, strides=step, activation=None)(before) if block == 0 else x
            x = _normalised(conv(filters, 3, strides=step, activation=None)(before))
            x = keras.layers.Add()([conv(filters, 3, activation=None)(x), skip])
    return dense(num_classes)(keras.layers.GlobalAveragePooling2D()(_normalised(x)))


def _group_norm() -> Any:
    return keras.layers.GroupNormalization(GROUPS)


def _normalised(x: Any) -> Any:
    return keras.layers.ReLU()(_group_norm()(x))


NETWORKS: dict[str, NetworkFunction] = {
    "resnet9": resnet9,
    "alexnet": alexnet,
    "wrn28_2": wrn28_2,
    "resnet8": resnet8,
}


def find(arch: str) -> NetworkFunction:
    """The network of this name; `package.module:function` is imported."""
    if not is_own_network(arch):
        return NETWORKS[arch]
    module, name = arch.split(":")
    try:
        found = import_module(module)
    except Exception as error:
        raise ConfigError(f"--arch: the module {module} can't be imported: {told(error)}") from error
    function = getattr(found, name, None)
    if not callable(function):
        kind = "none" if function is None else type(function).__name__
        where = getattr(found, "__file__", "built in")
        raise ConfigError(f"--arch: expected a function {name} in the module {module} ({where}), found {kind}")
    return function  # type: ignore[no-any-return]


def told(error: Exception) -> str:
    """What went wrong in a user's code, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''} ({last.filename}, line {last.lineno})"
