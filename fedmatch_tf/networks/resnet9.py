"""ResNet-9 of the paper: nine kernels, no batch norm, no bias."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import NetworkEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks.makers import Maker


def resnet9(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """Table "Network Architecture of ResNet-9"."""
    pool = tf.keras.layers.MaxPool2D
    x = conv(64, 3)(x)
    x = pool(2)(conv(128, 3)(x))
    x = tf.keras.layers.Add()([x, conv(128, 3)(conv(128, 3)(x))])
    x = pool(2)(conv(256, 3)(x))
    x = pool(2)(conv(512, 3)(x))
    x = tf.keras.layers.Add()([x, conv(512, 3)(conv(512, 3)(x))])
    return dense(num_classes)(tf.keras.layers.Flatten()(pool(4)(x)))


ENTRY = NetworkEntry("resnet9", resnet9, smallest=32, gflop=0.76, place=0)
