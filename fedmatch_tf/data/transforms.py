"""Rotation, translation and histogram equalisation in TensorFlow's own operations, for where tensorflow-addons is not.

They give the pixels that tensorflow-addons gives, whose last release has no wheel for Python 3.12.
"""

from __future__ import annotations

import tensorflow as tf


def rotate(images: tf.Tensor, radians: tf.Tensor, fill: float) -> tf.Tensor:
    """Images float32 [n, h, w, c], each turned about its centre by its angle, [n]; nearest pixel, `fill` outside."""
    cos, sin = tf.cos(radians), tf.sin(radians)
    right, bottom = (tf.cast(tf.shape(images)[axis] - 1, tf.float32) for axis in (2, 1))
    across = (right - (cos * right - sin * bottom)) / 2  # where the centre stays what it is
    down = (bottom - (sin * right + cos * bottom)) / 2
    return _projected(images, [cos, -sin, across, sin, cos, down], fill)


def translate(images: tf.Tensor, shifts: tf.Tensor) -> tf.Tensor:
    """Images float32 [n, h, w, c], each moved right and down by its shift, [n, 2]; the nearest pixel, black outside."""
    one, zero = tf.ones_like(shifts[:, 0]), tf.zeros_like(shifts[:, 0])
    return _projected(images, [one, zero, -shifts[:, 0], zero, one, -shifts[:, 1]], 0.0)


def _projected(images: tf.Tensor, transform: list[tf.Tensor], fill: float) -> tf.Tensor:
    """Pixel (x, y) of the result is that at (a x + b y + c, d x + e y + f) of the image, the six being `transform`."""
    zero = tf.zeros_like(transform[0])
    return tf.raw_ops.ImageProjectiveTransformV3(
        images=images,
        transforms=tf.stack([*transform, zero, zero], axis=1),
        output_shape=tf.shape(images)[1:3],
        fill_value=fill,
        interpolation="NEAREST",
        fill_mode="CONSTANT",
    )


def equalize(images: tf.Tensor) -> tf.Tensor:
    """Images uint8 [n, h, w, c] with the values of each channel spread evenly, by Pillow's arithmetic."""
    counts = tf.reduce_sum(tf.one_hot(tf.cast(images, tf.int32), 256, dtype=tf.int32), axis=[1, 2])  # [n, c, 256]
    highest = tf.reduce_max(tf.where(counts > 0, tf.range(256), 0), axis=-1, keepdims=True)
    last = tf.gather(counts, highest, batch_dims=2)  # pixels of the highest value that occurs
    step = (tf.reduce_sum(counts, axis=-1, keepdims=True) - last) // 255
    below = tf.cumsum(counts, axis=-1, exclusive=True)
    spread = tf.clip_by_value((below + step // 2) // tf.maximum(step, 1), 0, 255)
    table = tf.where(step > 0, spread, tf.range(256))  # [n, c, 256]
    channels_first = tf.transpose(tf.cast(images, tf.int32), [0, 3, 1, 2])
    found = tf.gather(table, channels_first, batch_dims=2)
    return tf.cast(tf.transpose(found, [0, 2, 3, 1]), tf.uint8)
