"""A small network for vectors: two hidden layers, with biases, as vectors have no natural zero."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import NetworkEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks.makers import Maker


def mlp(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """Twice 128 units."""
    for _ in range(2):
        x = dense(128, activation="relu", use_bias=True)(tf.keras.layers.Flatten()(x))
    return dense(num_classes, use_bias=True)(x)


ENTRY = NetworkEntry("mlp", mlp, gflop=0.0008, place=4)
