"""RandAugment on whole batches inside the graph; the only module that knows tensorflow-addons."""

from __future__ import annotations

import tensorflow as tf


def identity(images: tf.Tensor, seeds: tf.Tensor) -> tf.Tensor:
    """The images as they are."""
    return images
