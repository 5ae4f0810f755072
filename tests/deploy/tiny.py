"""The smallest network that has all there is to send: convolutions, a dense layer, and weights without psi."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def tiny(x: Any, num_classes: int, conv: Any, dense: Any) -> Any:
    """A strided convolution with a normalisation, and the mean over what is left of the image."""
    x = tf.keras.layers.GroupNormalization(4)(conv(8, 3, strides=4, activation=None)(x))
    x = conv(16, 3, strides=2)(x)
    return dense(num_classes)(tf.keras.layers.GlobalAveragePooling2D()(x))
