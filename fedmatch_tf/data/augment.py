"""Weak and strong views of whole batches inside the graph; the only module that knows tensorflow-addons.

The weak view is a flip and a crop. RandAugment: each image gets its own NUM_OPERATIONS operations, drawn with
replacement, at levels below its own magnitude, as the original does. Operations follow Pillow's arithmetic;
tensorflow-addons does rotation, translation and true equalize, or, where it is not installed,
fedmatch_tf/data/transforms.py, which gives the same pixels.
"""

from __future__ import annotations

import warnings
from functools import cache, partial
from importlib.util import find_spec
from typing import Any, Callable, NamedTuple

import tensorflow as tf

from fedmatch_tf.data import transforms

tfa: Any = None
if find_spec("tensorflow_addons") is not None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it announces its end of life at every import
        import tensorflow_addons

    tfa = tensorflow_addons

NUM_OPERATIONS = 6
MAGNITUDES = (2, 5)  # an image's magnitude is drawn from these, both included; a level from 0 up to it
LEVELS = 10  # a range is cut into this many levels

GREY = 128.0  # fills what a rotation leaves empty

# Operation on images float32 [n, h, w, c] of whole numbers 0 .. 255, with a level and a sign (1 or -1) each, [n].
Operation = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class Draws(NamedTuple):
    """What is random about a batch."""

    operations: tf.Tensor  # int32 [n, NUM_OPERATIONS]: index into the table of operations
    levels: tf.Tensor  # int32 [n, NUM_OPERATIONS]
    signs: tf.Tensor  # float32 [n, NUM_OPERATIONS]: 1 or -1


def identity(images: tf.Tensor, rows: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The rows of a batch as they are."""
    return tf.gather(images, rows)


@cache  # tracing it takes a second, and two runs in one process have the same
def rand_augment(equalize: str) -> Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]:
    """A function (images uint8 [n, h, w, c], rows [k], seed int32 [2]) -> those rows augmented, uint8 [k, h, w, c].

    What happens to a row depends on the seed and its place in the batch, not on which other rows are asked for."""
    operations = tuple({**OPERATIONS, "equalize": _equalize if equalize == "real" else _nothing}.values())

    def augment(images: tf.Tensor, rows: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
        draws = Draws(*(tf.gather(part, rows) for part in make_draws(tf.shape(images)[0], seed)))
        chosen = tf.cast(tf.gather(images, rows), tf.float32)

        def one_more(turn: tf.Tensor, current: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            which, levels, signs = (part[:, turn] for part in draws)
            return turn + 1, _by_operation(operations, current, which, levels, signs)

        _, chosen = tf.while_loop(lambda turn, _: turn < NUM_OPERATIONS, one_more, (0, chosen))
        return tf.cast(chosen, tf.uint8)

    compiled: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor] = tf.function(augment, autograph=False)
    return compiled


PADDING = 4  # pixels around an image, its own reflected, that a crop may reach into


@partial(
    tf.function, autograph=False, input_signature=[tf.TensorSpec([None] * 4, tf.uint8), tf.TensorSpec([2], tf.int32)]
)
def flip_crop(images: tf.Tensor, seed: tf.Tensor) -> tf.Tensor:
    """The weak views of uint8 images: each flipped or not, and one crop of what it is when padded, both drawn."""
    count, height, width = (tf.shape(images)[axis] for axis in range(3))
    begins = tf.random.stateless_uniform([2, count, 1], seed, 0, 2 * PADDING + 1, tf.int32)
    flipped = tf.random.stateless_uniform([count, 1], seed + tf.constant([0, 1]), 0, 2, tf.int32) > 0
    rows, columns = begins[0] + tf.range(height), begins[1] + tf.range(width)
    last = width + 2 * PADDING - 1
    columns = tf.where(flipped, last - columns, columns)
    padded = tf.pad(images, [[0, 0], [PADDING, PADDING], [PADDING, PADDING], [0, 0]], "REFLECT")
    return tf.gather(tf.gather(padded, rows, batch_dims=1), columns, axis=2, batch_dims=1)


def make_draws(num_images: tf.Tensor, seed: tf.Tensor) -> Draws:
    """Operations, levels and signs for a batch, the same for the same seed."""
    shape = (num_images, NUM_OPERATIONS)
    seeds = [seed + tf.constant([0, salt], tf.int32) for salt in range(4)]
    operations = tf.random.stateless_uniform(shape, seeds[0], 0, len(OPERATIONS), tf.int32)
    low, high = MAGNITUDES
    magnitudes = tf.random.stateless_uniform((num_images, 1), seeds[1], low, high + 1, tf.int32)
    uniform = tf.random.stateless_uniform(shape, seeds[2])
    levels = tf.cast(tf.floor(uniform * tf.cast(magnitudes, tf.float32)), tf.int32)
    signs = tf.cast(tf.random.stateless_uniform(shape, seeds[3], 0, 2, tf.int32) * 2 - 1, tf.float32)
    return Draws(operations, levels, signs)


def _by_operation(
    operations: tuple[Operation, ...], images: tf.Tensor, which: tf.Tensor, levels: tf.Tensor, signs: tf.Tensor
) -> tf.Tensor:
    """Every image through the operation that was drawn for it, one call an operation."""
    count = len(operations)
    places = tf.dynamic_partition(tf.range(tf.shape(images)[0]), which, count)
    levels = tf.cast(levels, tf.float32)
    changed = []
    for operation, place in zip(operations, places):
        part, level, sign = tf.gather(images, place), tf.gather(levels, place), tf.gather(signs, place)
        # An operation sees at least one image: some kernels get the shape of an empty batch wrong.
        changed.append(tf.cond(tf.size(place) > 0, partial(operation, part, level, sign), partial(tf.identity, part)))
    return tf.ensure_shape(tf.dynamic_stitch(places, changed), images.shape)


def _magnitude(level: tf.Tensor, low: float, high: float) -> tf.Tensor:
    """The value of a level in a range that LEVELS levels divide evenly, shaped [n, 1, 1, 1]."""
    return tf.reshape(low + (high - low) * level / (LEVELS - 1), [-1, 1, 1, 1])


def _blend(other: tf.Tensor, images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor, most: float) -> tf.Tensor:
    """From `other` towards the images and beyond, by 1 +- a magnitude of at most `most`; cut to whole numbers."""
    factor = 1.0 + tf.reshape(sign, [-1, 1, 1, 1]) * _magnitude(level, 0.0, most)
    return tf.floor(tf.clip_by_value(other + factor * (images - other), 0.0, 255.0))


def _luma(images: tf.Tensor) -> tf.Tensor:
    """Grey value of RGB, [n, h, w, 1], rounded as Pillow does."""
    weights = tf.constant([19595.0, 38470.0, 7471.0]) / 65536.0
    return tf.floor(tf.reduce_sum(images * weights, axis=-1, keepdims=True) + 0.5)


def _nothing(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    return images


def _equalize(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    whole = tf.cast(images, tf.uint8)
    equal = transforms.equalize(whole) if tfa is None else tfa.image.equalize(whole)
    return tf.cast(equal, tf.float32)


def _autocontrast(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    low = tf.reduce_min(images, axis=[1, 2], keepdims=True)
    high = tf.reduce_max(images, axis=[1, 2], keepdims=True)
    stretched = tf.floor((images - low) * (255.0 / tf.maximum(high - low, 1.0)) + 1e-4)
    return tf.where(high > low, tf.clip_by_value(stretched, 0.0, 255.0), images)


def _solarize(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    return tf.where(images < _magnitude(level, 256.0, 231.0), images, 255.0 - images)


def _posterize(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    step = tf.pow(2.0, 8.0 - tf.round(_magnitude(level, 8.0, 4.0)))
    return tf.floor(images / step) * step


def _color(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    return _blend(_luma(images), images, level, sign, 0.9)


def _contrast(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    mean = tf.floor(tf.reduce_mean(_luma(images), axis=[1, 2, 3], keepdims=True) + 0.5)
    return _blend(mean, images, level, sign, 0.5)


def _brightness(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    return _blend(tf.zeros_like(images), images, level, sign, 0.3)


def _sharpness(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    kernel = tf.constant([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13.0
    channels = images.shape[-1]
    kernel = tf.tile(kernel[:, :, tf.newaxis, tf.newaxis], [1, 1, channels, 1])
    inside = tf.nn.depthwise_conv2d(images, kernel, [1, 1, 1, 1], "VALID")
    frame = [[0, 0], [1, 1], [1, 1], [0, 0]]
    smooth = tf.where(tf.pad(tf.ones_like(inside), frame) > 0, tf.pad(tf.floor(inside + 0.5), frame), images)
    return _blend(smooth, images, level, sign, 0.9)


def _rotate(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    radians = tf.reshape(_magnitude(level, 0.0, 360.0), [-1]) * (3.141592653589793 / 180.0)
    if tfa is None:
        return transforms.rotate(images, radians, GREY)
    return tfa.image.rotate(images, radians, interpolation="nearest", fill_mode="constant", fill_value=GREY)


def _shear_x(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    """Every row moves by the amount times its height: a cubic through four neighbours; black where nothing is."""
    amount = tf.reshape(sign, [-1, 1, 1]) * _magnitude(level, 0.0, 0.3)[..., 0]
    height, width = tf.shape(images)[1], tf.shape(images)[2]
    across = tf.range(tf.cast(width, tf.float32))[tf.newaxis, tf.newaxis, :]
    down = tf.range(tf.cast(height, tf.float32))[tf.newaxis, :, tf.newaxis]
    at = across + amount * (down + 0.5)  # [n, h, w]; pixels have their centre at 0.5
    first = tf.floor(at)
    along = (at - first)[..., tf.newaxis]
    a, b, c, d = (
        tf.gather(images, tf.clip_by_value(tf.cast(first, tf.int32) + i, 0, width - 1), batch_dims=2)
        for i in (-1, 0, 1, 2)
    )
    value = b + along * (c - a + along * (2 * (a - b) + c - d + along * (b - a - c + d)))
    inside = tf.logical_and(at >= -0.5, at < tf.cast(width, tf.float32) - 0.5)[..., tf.newaxis]
    return tf.where(inside, tf.floor(tf.clip_by_value(value, 0.0, 255.0)), tf.zeros_like(value))


def _shear_y(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    turned = _shear_x(tf.transpose(images, [0, 2, 1, 3]), level, sign)
    return tf.transpose(turned, [0, 2, 1, 3])


def _translate_x(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    shift = -sign * tf.reshape(_magnitude(level, 0.0, 0.2), [-1]) * tf.cast(tf.shape(images)[2], tf.float32)
    return _translate(images, [shift, tf.zeros_like(shift)])


def _translate_y(images: tf.Tensor, level: tf.Tensor, sign: tf.Tensor) -> tf.Tensor:
    shift = -sign * tf.reshape(_magnitude(level, 0.0, 0.2), [-1]) * tf.cast(tf.shape(images)[1], tf.float32)
    return _translate(images, [tf.zeros_like(shift), shift])


def _translate(images: tf.Tensor, shifts: list[tf.Tensor]) -> tf.Tensor:
    by = tf.stack(shifts, axis=1)
    return transforms.translate(images, by) if tfa is None else tfa.image.translate(images, by)


OPERATIONS: dict[str, Operation] = {
    "autocontrast": _autocontrast,
    "equalize": _nothing,
    "rotate": _rotate,
    "solarize": _solarize,
    "color": _color,
    "posterize": _posterize,
    "contrast": _contrast,
    "brightness": _brightness,
    "sharpness": _sharpness,
    "shearX": _shear_x,
    "shearY": _shear_y,
    "translateX": _translate_x,
    "translateY": _translate_y,
}
