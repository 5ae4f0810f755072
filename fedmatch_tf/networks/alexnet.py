"""The AlexNet-like network of the paper's appendix."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import NetworkEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks.makers import Maker


def alexnet(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """64, 128, 256 filters of size 4, 3, 2, then twice 2048 units."""
    for filters, size in ((64, 4), (128, 3), (256, 2)):
        x = tf.keras.layers.MaxPool2D(2)(conv(filters, size, padding="valid")(x))
    x = dense(2048, activation="relu")(tf.keras.layers.Flatten()(x))
    return dense(num_classes)(dense(2048, activation="relu")(x))


ENTRY = NetworkEntry("alexnet", alexnet, smallest=19, gflop=0.0475, rate=360.0, place=1)
