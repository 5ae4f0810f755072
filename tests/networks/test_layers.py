"""Decomposed layers: the Keras contract, numbers worked out by hand, invalid use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.networks.layers import DecomposedConv2D, DecomposedDense

keras = tf.keras


def test_the_kernel_is_the_sum_of_sigma_and_psi() -> None:
    layer = DecomposedDense(2)
    layer.build((None, 3))
    layer.sigma.assign([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
    layer.psi.assign([[0.5, 0.0], [0.0, 0.0], [0.0, -1.0]])
    # theta = [[1.5, 0], [0, 1], [2, 1]]; x theta = [1.5 + 6, 2 + 3]
    np.testing.assert_allclose(layer(tf.constant([[1.0, 2.0, 3.0]]), training=True), [[7.5, 5.0]])


def test_outside_training_small_elements_of_psi_count_as_zero_and_the_limit_itself_is_small() -> None:
    layer = DecomposedDense(1, l1_thres=0.5)
    layer.build((None, 4))
    layer.sigma.assign(tf.zeros((4, 1)))
    layer.psi.assign([[0.5], [-0.5], [0.75], [-2.0]])
    x = tf.ones((1, 4))
    np.testing.assert_allclose(layer(x, training=True), [[-1.25]])
    np.testing.assert_allclose(layer(x, training=False), [[-1.25]])  # 0.5 and -0.5 cancel: the sum is the same
    np.testing.assert_allclose(layer(tf.constant([[1.0, 0.0, 0.0, 0.0]]), training=False), [[0.0]])
    np.testing.assert_allclose(layer(tf.constant([[1.0, 0.0, 0.0, 0.0]])), [[0.0]])  # not training is the default
    np.testing.assert_allclose(layer(tf.constant([[1.0, 0.0, 0.0, 0.0]]), training=True), [[0.5]])


def test_a_convolution_adds_up_its_window() -> None:
    layer = DecomposedConv2D(1, 3, padding="same")
    layer.build((None, 3, 3, 1))
    layer.sigma.assign(tf.ones((3, 3, 1, 1)))
    layer.psi.assign(tf.ones((3, 3, 1, 1)))
    image = tf.reshape(tf.range(9.0), (1, 3, 3, 1))
    result = layer(image, training=True)
    assert result[0, 1, 1, 0] == 2 * 36
    assert result[0, 0, 0, 0] == 2 * (0 + 1 + 3 + 4)
    assert DecomposedConv2D(2, 2, strides=2, padding="valid")(tf.ones((1, 5, 5, 3))).shape == (1, 2, 2, 2)


def test_each_part_gets_the_gradient_of_the_sum() -> None:
    layer = DecomposedDense(1)
    x = tf.constant([[1.0, 2.0]])
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(layer(x, training=True))
    for gradient in tape.gradient(loss, [layer.sigma, layer.psi]):
        np.testing.assert_allclose(gradient, [[1.0], [2.0]])


@pytest.mark.parametrize(
    "layer",
    [
        DecomposedConv2D(4, 3, strides=2, padding="valid", activation="relu", l1_thres=0.1, name="c"),
        DecomposedDense(5, activation="softmax", l1_thres=0.2, name="d"),
    ],
)
def test_the_configuration_makes_the_same_layer_again(layer: Any) -> None:
    again = type(layer).from_config(layer.get_config())
    assert again.get_config() == layer.get_config()
    assert again.name == layer.name


def test_a_model_is_the_same_after_saving_and_loading(tmp_path: Path) -> None:
    image = keras.Input((8, 8, 3))
    hidden = keras.layers.Flatten()(DecomposedConv2D(4, 3, activation="relu", l1_thres=1e-3)(image))
    model = keras.Model(image, DecomposedDense(2, activation="softmax")(hidden))
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    x = tf.random.stateless_uniform((2, 8, 8, 3), (1, 2))
    np.testing.assert_array_equal(model(x), again(x))


def test_mixed_precision_computes_in_half_and_keeps_full_variables() -> None:
    layer = DecomposedConv2D(4, 3, l1_thres=1e-5, dtype=keras.mixed_precision.Policy("mixed_float16"))
    result = layer(tf.ones((1, 8, 8, 3)), training=True)
    assert result.dtype == tf.float16
    assert layer.sigma.dtype == layer.psi.dtype == tf.float32
    full = DecomposedConv2D(4, 3, l1_thres=1e-5)
    full.build((None, 8, 8, 3))
    full.sigma.assign(layer.sigma)
    full.psi.assign(layer.psi)
    np.testing.assert_allclose(result, full(tf.ones((1, 8, 8, 3)), training=True), atol=5e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DecomposedDense(0), "units: expected a whole number greater than 0, received 0"),
        (lambda: DecomposedDense(2.0), "units"),  # type: ignore[arg-type]
        (lambda: DecomposedConv2D(-1, 3), "filters"),
        (lambda: DecomposedConv2D(1, 0), "kernel_size"),
        (lambda: DecomposedConv2D(1, 3, padding="full"), "padding: expected same or valid, received 'full'"),
        (lambda: DecomposedDense(2, l1_thres=-1.0), "l1_thres of 0 or greater"),
        (lambda: DecomposedDense(2).build((None, 2, 2)), r"expected vectors \[batch, features\]"),
        (lambda: DecomposedConv2D(2, 3).build((None, 8, 8)), r"expected images \[batch, h, w, channels\]"),
    ],
)
def test_bad_arguments_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_a_bias_is_added_before_the_activation() -> None:
    layer = DecomposedDense(1, activation="relu", use_bias=True)
    layer.build((None, 2))
    layer.sigma.assign([[1.0], [0.0]])
    layer.psi.assign([[0.0], [1.0]])
    for bias, expected in ((-5.0, 0.0), (0.5, 3.5)):  # 1 + 2 = 3 without it
        layer.bias.assign([bias])
        np.testing.assert_allclose(layer(tf.constant([[1.0, 2.0]]), training=True), [[expected]])
