"""Wide ResNet-28-2, with group norm where it had batch norm."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.base.plugins import NetworkEntry
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks.makers import Maker, normalised


def wrn28_2(x: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
    """Three groups of four blocks of 32, 64 and 128 filters."""
    x = conv(16, 3, activation=None)(x)
    for filters, strides in ((32, 1), (64, 2), (128, 2)):
        for block in range(4):
            before = normalised(x)
            step = strides if block == 0 else 1
            skip = conv(filters, 1, strides=step, activation=None)(before) if block == 0 else x
            x = normalised(conv(filters, 3, strides=step, activation=None)(before))
            x = tf.keras.layers.Add()([conv(filters, 3, activation=None)(x), skip])
    return dense(num_classes)(tf.keras.layers.GlobalAveragePooling2D()(normalised(x)))


ENTRY = NetworkEntry("wrn28_2", wrn28_2, smallest=8, gflop=0.42, place=2)
