"""TensorFlow's own operations beside tensorflow-addons and Pillow, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image, ImageOps

from fedmatch_tf.data import augment, transforms
from tests.conftest import made_up_images

X, _ = made_up_images(8)
ADDONS = pytest.mark.skipif(augment.tfa is None, reason="tensorflow-addons is not installed (the second base)")
SIZES = [(32, 32), (28, 28), (17, 30)]


def _cut(height: int, width: int) -> tf.Tensor:
    return tf.cast(X[:, :height, :width], tf.float32)


@ADDONS
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_rotation_gives_the_pixels_of_tensorflow_addons(height: int, width: int) -> None:
    images = _cut(height, width)
    for angles in (np.arange(8) * 40 * np.pi / 180, np.linspace(-7, 7, 8)):
        radians = tf.constant(angles, tf.float32)
        theirs = augment.tfa.image.rotate(images, radians, "nearest", "constant", fill_value=128.0)
        np.testing.assert_array_equal(transforms.rotate(images, radians, 128.0), theirs)


@ADDONS
@pytest.mark.parametrize(("height", "width"), SIZES)
def test_translation_gives_the_pixels_of_tensorflow_addons(height: int, width: int) -> None:
    images = _cut(height, width)
    shifts = tf.constant(np.random.default_rng(1).uniform(-9, 9, (8, 2)), tf.float32)
    np.testing.assert_array_equal(transforms.translate(images, shifts), augment.tfa.image.translate(images, shifts))


def test_a_quarter_turn_and_a_shift_by_hand() -> None:
    image = tf.reshape(tf.range(9.0), [1, 3, 3, 1])
    turned = transforms.rotate(image, tf.constant([np.pi / 2], tf.float32), 50.0)
    np.testing.assert_array_equal(turned[0, :, :, 0], [[2, 5, 8], [1, 4, 7], [0, 3, 6]])  # against the clock
    moved = transforms.translate(image, tf.constant([[1.0, -1.0]]))
    np.testing.assert_array_equal(moved[0, :, :, 0], [[0, 3, 4], [0, 6, 7], [0, 0, 0]])


@pytest.mark.parametrize("kind", ["noise", "dark", "plain", "two values", "one channel"])
def test_equalisation_is_pillows_and_that_of_tensorflow_addons(kind: str) -> None:
    images = {
        "noise": X,
        "dark": (X // 5 + 9).astype(np.uint8),
        "plain": np.full((2, 32, 32, 3), 77, np.uint8),  # nothing to spread
        "two values": np.where(X > 128, 200, 3).astype(np.uint8),
        "one channel": X[..., :1] // 2,
    }[kind]
    grey = images.shape[-1] == 1
    pictures = [Image.fromarray(image[..., 0] if grey else image) for image in images]
    expected = np.stack([np.asarray(ImageOps.equalize(picture)).reshape(images.shape[1:]) for picture in pictures])
    np.testing.assert_array_equal(transforms.equalize(tf.constant(images)), expected)
    if augment.tfa is not None:
        np.testing.assert_array_equal(augment.tfa.image.equalize(tf.constant(images)), expected)
