"""Models as files: opened by every Keras, the same for the same weights; nothing foreign is made of them."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks import files
from tests.conftest import ROOT

PLAIN = ROOT / ".venv-plain" / "bin" / "python"  # .ci/run makes it, with the current TensorFlow and nothing else
X = np.random.default_rng(1).random((6, 32, 32, 3), np.float32)
NETS = """
import tensorflow as tf

layers = tf.keras.layers


def own(x, num_classes, conv, dense):
    x = layers.LeakyReLU(0.1)(layers.LayerNormalization()(conv(8, 3, activation=None)(x)))
    before = layers.GroupNormalization(2)(layers.AveragePooling2D(2)(x))
    x = layers.Concatenate()([before, conv(4, 3, strides=2, activation="swish")(x)])
    x = layers.UpSampling2D(2)(x)
    x = layers.Multiply()([x, layers.Activation("sigmoid")(conv(12, 1)(x))])
    return dense(num_classes)(layers.GlobalMaxPooling2D()(layers.ZeroPadding2D(1)(x)))


def with_a_model(x, num_classes, conv, dense):
    inner = tf.keras.Input(x.shape[1:])
    return dense(num_classes)(layers.Flatten()(conv(4, 3)(tf.keras.Model(inner, layers.ReLU()(inner))(x))))


def with_operations(x, num_classes, conv, dense):
    return dense(num_classes)(layers.Flatten()(tf.nn.relu(conv(4, 3)(x)) * 2.0))
"""


@pytest.fixture(scope="module", autouse=True)
def _own_networks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "networks_of_test_files.py").write_text(NETS)
    sys.path.append(str(folder))
    yield
    sys.path.remove(str(folder))


def made(arch: str) -> Any:
    """The plain network, each of its weights another one, as after training."""
    model = networks.build_network(arch.replace("OWN", "networks_of_test_files"), X.shape[1:], 5, decomposed=False)
    rng = np.random.default_rng(0)
    spread = [rng.normal(0, 0.1, weight.shape).astype(np.float32) for weight in model.get_weights()]
    model.set_weights([weight + (more if weight.ndim == 1 else 0) for weight, more in zip(model.get_weights(), spread)])
    return model


def write(model: Any, folder: Path) -> list[Path]:
    """The model as a file, in either form."""
    paths = [folder / "model.keras", folder / "model.h5"]
    paths[0].write_bytes(files.keras_file(model))
    paths[1].write_bytes(files.h5_file(model))
    return paths


@pytest.mark.parametrize("arch", ["alexnet", "OWN:own"])
def test_what_is_written_is_loaded_and_predicts_the_same(arch: str, tmp_path: Path) -> None:
    model = made(arch)
    model.export(str(tmp_path / "saved"))
    for path in [*write(model, tmp_path), tmp_path / "saved"]:
        np.testing.assert_allclose(files.load(path).predict(X, verbose=0), model.predict(X, verbose=0), atol=1e-6)


def test_the_same_weights_are_the_same_file_whatever_else_was_made_before() -> None:
    model, other = made("alexnet"), made("alexnet")
    other.set_weights(model.get_weights())
    assert [layer.name for layer in model.layers] != [layer.name for layer in other.layers]
    assert files.keras_file(model) == files.keras_file(other)
    assert files.h5_file(model) == files.h5_file(other)


OPENED = """
import sys
import numpy as np
import keras

assert keras.__version__.startswith("3."), keras.__version__
x = np.load("x.npy")
for path in sys.argv[1:]:
    wanted = np.load(path.split("/")[0] + "/wanted.npy")
    probs = keras.models.load_model(path).predict(x, verbose=0)
    np.testing.assert_allclose(probs, wanted, rtol=1e-4, atol=1e-6, err_msg=path)
    print(path, abs(probs - wanted).max())
"""


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with every network's files and what they predict; their paths in it."""
    folder, paths = tmp_path_factory.mktemp("written"), list[str]()
    np.save(folder / "x.npy", X)
    for arch in ("alexnet", "resnet9", "wrn28_2", "resnet8", "mlp", "OWN:own"):
        (of_arch := folder / arch.split(":")[-1]).mkdir()
        model = made(arch)
        np.save(of_arch / "wanted.npy", model.predict(X, verbose=0))
        paths += [str(path.relative_to(folder)) for path in write(model, of_arch)]
    return folder, paths


@pytest.mark.slow
@pytest.mark.skipif(not PLAIN.exists(), reason="no .venv-plain with the current TensorFlow, which .ci/run makes")
@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_files_open_in_the_current_keras_without_this_project(backend: str, written: tuple[Path, list[str]]) -> None:
    if subprocess.run([PLAIN, "-c", f"import {backend}"], capture_output=True, check=False).returncode:
        pytest.skip(f"{backend} is not in .venv-plain")
    folder, paths = written
    environment = {"KERAS_BACKEND": backend, "KERAS_HOME": str(folder), "CUDA_VISIBLE_DEVICES": "-1"}
    opened = subprocess.run(
        [PLAIN, "-c", OPENED, *paths], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    print(backend, opened.stdout)
    assert [line.split()[0] for line in opened.stdout.splitlines()] == paths, opened.stderr


def test_layers_that_keras_3_lacks_are_named() -> None:
    assert files.only_in_keras_2(files.keras_file(made("OWN:own"))) == []
    assert files.only_in_keras_2(files.keras_file(made("OWN:with_operations"))) == ["TFOpLambda"]
    assert files.only_in_keras_2(files.keras_file(made("OWN:with_a_model"))) == ["Model"]


def edited(path: Path, old: str, new: str) -> None:
    """Changes the configuration inside a `.keras` file."""
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    text = content["config.json"].decode()
    assert old in text
    with zipfile.ZipFile(path, "w") as archive:
        for name, value in {**content, "config.json": text.replace(old, new).encode()}.items():
            archive.writestr(name, value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"module": "keras.initializers"', '"module": "os"', "found VarianceScaling"),
        ('"class_name": "Flatten"', '"class_name": "Lambda"', "found Lambda"),
        ('"class_name": "Flatten"', '"class_name": "TFSMLayer"', "found TFSMLayer"),
        ('"relu"', '{"class_name": "function", "module": "os", "config": "abort"}', "found function"),
        ('"class_name": "Flatten"', '"class_name": "Unknown"', "as --work-type export writes it"),
        ('"keras"', "", "as --work-type export writes it"),
    ],
)
def test_nothing_foreign_is_made_of_a_file(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = write(made("alexnet"), tmp_path)[0]
    edited(path, old, new)
    with pytest.raises(DataError, match=message):
        files.load(path)


def test_a_lambda_in_an_h5_file_is_refused(tmp_path: Path) -> None:
    image = tf.keras.Input((4,))
    model = tf.keras.Model(image, tf.keras.layers.Lambda(lambda x: x * 2)(image))
    model.save(tmp_path / "model.h5")
    with pytest.raises(DataError, match="own layers, found Lambda"):
        files.load(tmp_path / "model.h5")


@pytest.mark.parametrize("name", ["model.keras", "model.h5"])
@pytest.mark.parametrize("content", [b"", b"PK\3\4 no more", b"\x89HDF\r\n\x1a\n" + bytes(100)])
def test_what_is_no_model_is_refused(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="expected a model as --work-type export writes it"):
        files.load(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "odd.keras", "w") as archive:
        archive.writestr("config.json", json.dumps([1]))
    with pytest.raises(DataError, match="expected a model"):
        files.load(tmp_path / "odd.keras")
