"""Keras files as networks: what they compute, what is trained of them, and what is refused."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any, Callable

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.base.errors import ConfigError, DataError
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import files
from fedmatch_tf.networks.build import build_network
from fedmatch_tf.networks.from_file import KerasFile
from fedmatch_tf.networks.params import Params

layers = tf.keras.layers
X = np.random.default_rng(1).random((6, 8, 8, 3), np.float32)


def functional() -> Any:
    """A frozen model with batch norm and dropout; on it two branches, a model in the model and a softmax."""
    inner = tf.keras.Input((8, 8, 3))
    x = layers.BatchNormalization()(layers.Conv2D(4, 3, use_bias=False)(inner))
    base = tf.keras.Model(inner, layers.Dropout(0.5)(layers.DepthwiseConv2D(3, padding="same")(layers.ReLU()(x))))
    base.trainable = False
    image = tf.keras.Input((8, 8, 3))
    x = base(layers.Rescaling(2.0, -1.0)(image))
    y = layers.GroupNormalization(2)(layers.Conv2D(6, (3, 2), strides=(2, 1), padding="same", activation="relu")(x))
    y = layers.Conv2D(6, 2, dilation_rate=2, padding="same")(y)
    x = layers.Add()([y, layers.Conv2D(6, 1, strides=(2, 1), use_bias=False)(x)])
    x = tf.keras.Sequential([layers.Dense(4), layers.LeakyReLU(0.2)])(layers.GlobalAveragePooling2D()(x))
    return tf.keras.Model(image, layers.Softmax()(layers.Dense(5)(x)))


FROZEN = 3 * 3 * 3 * 4 + 4 * 4 + (3 * 3 * 4 + 4)  # convolution, batch norm, depthwise convolution
KERNELS = [(3, 2, 4, 6), (2, 2, 6, 6), (1, 1, 4, 6), (6, 4), (4, 5)]
BESIDE = 6 + 2 * 6 + 6 + 4 + 5  # biases, and scales and offsets of the group norm


def sequential() -> Any:
    return tf.keras.Sequential([layers.Dense(7, activation="tanh", input_shape=(4,)), layers.Dense(3)])


def spread(model: Any) -> Any:
    """Each weight another one, as after training; all positive, as variances are."""
    rng = np.random.default_rng(0)
    model.set_weights([rng.uniform(0.1, 0.5, weight.shape) for weight in model.get_weights()])
    return model


def as_file(model: Any, folder: Path) -> KerasFile:
    model.save(folder / "given.keras")
    return KerasFile("given.keras", (folder / "given.keras").read_bytes())


@pytest.mark.parametrize("decomposed", [True, False])
def test_a_functional_model_predicts_as_before_whatever_sigma_has_of_theta(decomposed: bool, tmp_path: Path) -> None:
    model = spread(functional())
    network = build_network(as_file(model, tmp_path), (8, 8, 3), 5, decomposed)
    expected = model.predict(X, verbose=0)
    np.testing.assert_allclose(network(X, training=True), expected, atol=2e-6)
    assert np.ptp(expected, axis=0).max() > 1e-3, "so that it says something"
    assert sorted(networks.kernel_shapes(network)) == sorted(KERNELS)
    num_kernels = sum(int(np.prod(shape)) for shape in KERNELS)
    start = networks.read(network)
    assert (len(start.sigma), networks.num_frozen(network)) == (num_kernels + BESIDE, FROZEN)
    if decomposed:
        sigma, share = start.sigma.copy(), np.random.default_rng(2).random(num_kernels, np.float32)
        sigma[:num_kernels] *= share
        networks.write(network, Params(sigma, start.sigma[:num_kernels] - sigma[:num_kernels]))
        np.testing.assert_allclose(network(X, training=True), expected, atol=2e-6)


def test_a_sequential_model_gives_its_scores_to_the_softmax(tmp_path: Path) -> None:
    model, x = spread(sequential()), X.reshape(-1, 4)
    network = build_network(as_file(model, tmp_path), (4,), 3)
    scores = np.exp(model.predict(x, verbose=0))
    np.testing.assert_allclose(network(x), scores / scores.sum(axis=1, keepdims=True), atol=1e-6)


def test_a_file_of_keras_3_predicts_as_it_did_there() -> None:
    """Keras 3.15 on PyTorch wrote it, with a frozen model inside, and gave these probabilities."""
    content = (Path(__file__).parent / "of_keras_3.keras").read_bytes()
    x = (np.arange(2 * 8 * 8 * 3, dtype=np.float32) % 7 / 7).reshape(2, 8, 8, 3)
    network = build_network(KerasFile("of_keras_3.keras", content), (8, 8, 3), 5)
    expected = [
        [0.09784977, 0.66345024, 0.14767042, 0.06451323, 0.0265163],
        [0.0977328, 0.6638939, 0.14757031, 0.06436806, 0.02643485],
    ]
    np.testing.assert_allclose(network(x), expected, atol=1e-6)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_what_is_written_of_it_is_such_a_file_again(precision: str, tmp_path: Path) -> None:
    given = as_file(spread(functional()), tmp_path)
    network = build_network(given, (8, 8, 3), 5, decomposed=False, precision=precision)
    again = build_network(KerasFile("again.keras", files.keras_file(network)), (8, 8, 3), 5)
    np.testing.assert_array_equal(networks.read(again).sigma, networks.read(network).sigma)
    assert networks.num_frozen(again) == FROZEN
    assert files.only_in_keras_2(files.keras_file(network)) == []


def of(*more: Any, shape: tuple[int, ...] = (8, 8, 3), classes: int = 5) -> Callable[[], Any]:
    """A model of these layers, with a head."""
    ends = [layers.Flatten(), layers.Dense(classes)]
    return lambda: tf.keras.Sequential([tf.keras.Input(shape), *more, *ends])


def frozen() -> Any:
    model = of()()
    model.trainable = False
    return model


def of_two_inputs() -> Any:
    first, second = tf.keras.Input((8, 8, 3)), tf.keras.Input((8, 8, 3))
    return tf.keras.Model([first, second], layers.Dense(5)(layers.Flatten()(layers.Add()([first, second]))))


def of_a_layer_called_twice() -> Any:
    image, conv = tf.keras.Input((8, 8, 3)), layers.Conv2D(3, 3, padding="same")
    return tf.keras.Model(image, layers.Dense(5)(layers.Flatten()(conv(conv(image)))))


def of_an_operation() -> Any:
    image = tf.keras.Input((8, 8, 3))
    return tf.keras.Model(image, layers.Dense(5)(layers.Flatten()(image * 2.0)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (of(layers.BatchNormalization()), "BatchNormalization is for frozen parts alone .* use GroupNormalization"),
        (of(layers.Dropout(0.1)), "Dropout is for frozen parts alone .* leave it out"),
        (of(layers.DepthwiseConv2D(3)), "DepthwiseConv2D is for frozen parts alone"),
        (of(layers.Lambda(lambda x: x)), "of the kind 'Lambda'; expected Add"),
        (of(layers.Conv2D(3, 3, groups=3)), "a convolution in groups"),
        (of(layers.Conv2D(3, 3, activation=tf.math.sin)), "Conv2D: expected an activation by its name"),
        (of(layers.Activation("relu"), classes=4), r"scores \[batch, 5\], received \[None, 4\]"),
        (of(shape=(9, 9, 3)), r"it takes \[9, 9, 3\]; expected \[8, 8, 3\], as the data are"),
        (lambda: tf.keras.Sequential([tf.keras.Input((8,)), layers.ReLU()]), "found the activation 'ReLU'"),
        (lambda: tf.keras.Sequential([tf.keras.Input((8,)), layers.Dense(5, "tanh")]), "the activation 'tanh'"),
        (frozen, "to have a Conv2D or Dense to train, found none"),
        (of_two_inputs, "expected models of one input"),
        (of_a_layer_called_twice, "expected it to be called once"),
        (of_an_operation, "of the kind 'TFOpLambda'"),
    ],
)
def test_what_cannot_be_trained_apart_is_one_line(make: Callable[[], Any], message: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, DataError), match=message) as refused:
        build_network(as_file(make(), tmp_path), (8, 8, 3), 5)
    assert str(refused.value).startswith("--arch: ")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("content", [b"", b"PK\3\4 no more", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_what_is_no_model_is_refused(content: bytes) -> None:
    with pytest.raises(DataError, match=r"^--arch: odd.keras: expected a file that Keras' model.save wrote"):
        build_network(KerasFile("odd.keras", content), (4,), 3)


def edited(given: KerasFile, config: Callable[[Any], None], weights: Callable[[Any], None]) -> KerasFile:
    """The file with another configuration, or other weights."""
    with zipfile.ZipFile(io.BytesIO(given.content)) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    described = json.loads(content["config.json"])
    config(described["config"]["layers"][-1])
    stored = io.BytesIO(content["model.weights.h5"])
    with h5py.File(stored, "r+") as group:
        weights(group["layers/dense_1/vars"])
    content |= {"config.json": json.dumps(described).encode(), "model.weights.h5": stored.getvalue()}
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, value in content.items():
            archive.writestr(name, value)
    return KerasFile("edited.keras", out.getvalue())


def relink(group: Any) -> None:
    del group["0"]
    group["0"] = h5py.ExternalLink("/elsewhere.h5", "/0")


def elsewhere(group: Any) -> None:
    del group["0"]
    group.create_dataset("0", (7, 3), "f4", external=[("/elsewhere.bin", 0, 84)])


def not_finite(group: Any) -> None:
    group["0"][0, 0] = np.nan


def shorter(group: Any) -> None:
    del group["1"]


@pytest.mark.parametrize(
    ("config", "weights", "message"),
    [
        (lambda layer: layer.update(module="os"), None, "of the kind 'Dense'"),
        (lambda layer: layer.update(class_name="TFSMLayer"), None, "of the kind 'TFSMLayer'"),
        (lambda layer: layer["config"].update(lora_rank=4), None, "expected its usual arguments, found 'lora_rank'"),
        (lambda layer: layer["config"].update(units=4), None, r"numbers of the shape \(7, 4\), found \(7, 3\)"),
        (None, relink, "in the file itself, found a link"),
        (None, elsewhere, "expected weights as numbers"),
        (None, not_finite, "found NaN"),
        (None, shorter, "expected 2 weights, found 1"),
    ],
)
def test_nothing_is_made_of_a_file_but_layers_and_their_numbers(
    config: Any, weights: Any, message: str, tmp_path: Path
) -> None:
    given = as_file(spread(sequential()), tmp_path)
    nothing: Callable[[Any], None] = lambda _: None  # noqa: E731
    with pytest.raises(DataError, match=message):
        build_network(edited(given, config or nothing, weights or nothing), (4,), 3)
