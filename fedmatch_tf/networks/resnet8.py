"""ResNet-8, four times as wide as the first of its kind, with group norm where it had batch norm."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import NetworkEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks.makers import Maker, group_norm, normalised


def resnet8(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """One block of two convolutions for each of 64, 128 and 256 filters."""
    x = normalised(conv(64, 3, activation=None)(x))
    for filters, strides in ((64, 1), (128, 2), (256, 2)):
        skip = x if strides == 1 else group_norm()(conv(filters, 1, strides=strides, activation=None)(x))
        x = normalised(conv(filters, 3, strides=strides, activation=None)(x))
        x = group_norm()(conv(filters, 3, activation=None)(x))
        x = tf.keras.layers.ReLU()(tf.keras.layers.Add()([x, skip]))
    return dense(num_classes)(tf.keras.layers.GlobalAveragePooling2D()(x))


ENTRY = NetworkEntry("resnet8", resnet8, smallest=8, gflop=0.39, place=3)
