"""Models as files that Keras opens without this project, whichever Keras wrote them, and back."""

from __future__ import annotations

import io
import json
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError, shortened
from fedmatch_tf.base.quiet import load_tensorflow

CONFIG = "config.json"


def keras_file(model: Any) -> bytes:
    """The content of a `.keras` file, for Keras 2 and Keras 3; the same for the same weights."""
    written, portable = io.BytesIO(_saved(_renamed(model), "model.keras")), io.BytesIO()
    with zipfile.ZipFile(written) as source, zipfile.ZipFile(portable, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == CONFIG:
                content = json.dumps(_public(json.loads(content))).encode()
            if name == "metadata.json":  # it has the time of day
                content = json.dumps({"keras_version": json.loads(content)["keras_version"]}).encode()
            target.writestr(zipfile.ZipInfo(name), content)
    return portable.getvalue()


def h5_file(model: Any) -> bytes:
    """The content of an `.h5` file, for Keras 2 and Keras 3."""
    return _saved(_renamed(model), "model.h5")


def _saved(model: Any, name: str) -> bytes:
    logger = load_tensorflow().get_logger()
    level = logger.level
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras prefers its newer format to .h5
        logger.setLevel("ERROR")  # and a model that is compiled
        try:
            path = Path(folder) / name
            model.save(path)
            if path.suffix == ".h5":
                _edit_h5(path)
            return path.read_bytes()
        finally:
            logger.setLevel(level)


def _renamed(model: Any) -> Any:
    """A copy whose layers are called by kind and number: Keras counts through all that a process ever made."""
    keras = load_tensorflow().keras
    numbers: dict[str, int] = {}

    def copy(layer: Any) -> Any:
        kind = type(layer).__name__.lower()
        numbers[kind] = numbers.get(kind, 0) + 1
        return type(layer).from_config({**layer.get_config(), "name": f"{kind}_{numbers[kind]}"})

    image = keras.Input(model.input_shape[1:], name="image")
    renamed = keras.models.clone_model(model, input_tensors=image, clone_function=copy)
    renamed.set_weights(model.get_weights())
    return renamed


def _edit_h5(path: Path) -> None:
    with open_h5(path, "r+") as content:
        config = json.loads(content.attrs["model_config"])
        for part in _parts(config):
            _leave_out_news(part)
        content.attrs["model_config"] = json.dumps(config).encode()


def open_h5(file: Any, mode: str) -> Any:
    """An HDF5 file."""
    import h5py  # type: ignore[import-untyped]

    return h5py.File(file, mode)


def _leave_out_news(part: dict[str, Any]) -> None:
    """The second base writes this of an input, and the first does not know it."""
    if part["class_name"] == "InputLayer":
        part["config"].pop("optional", None)


def _public(config: Any) -> Any:
    """The configuration with models by their public name: each Keras keeps their class in a module of its own."""
    for part in _parts(config):
        _leave_out_news(part)
        if part["class_name"] == "Functional":
            part.update(module="keras", class_name="Model", registered_name=None)
    return config


def only_in_keras_2(content: bytes) -> list[str]:
    """The layers of a `.keras` file that Keras 3 can't read: a user's own, TensorFlow's, a few of Keras 2."""
    config = config_of(zipfile.ZipFile(io.BytesIO(content)))
    layers = [part for part in _parts(config) if "inbound_nodes" in part]
    return sorted({part["class_name"] for part in layers if not _is_keras(part) or part["class_name"] in _DROPPED})


_DROPPED = {"LocallyConnected1D", "LocallyConnected2D", "RandomHeight", "RandomWidth", "ThresholdedReLU"}
_DROPPED |= {"Model", "Sequential"}  # inside a model: Keras 3 counts their connections otherwise


def load(path: Path) -> Any:
    """The Keras model of a `.keras` or `.h5` file, or of a SavedModel's folder, which can only predict.

    A file may ask Keras to import and call anything, so nothing is made of it but Keras' own layers. A SavedModel is a
    program.
    """
    tf = load_tensorflow()
    try:
        if path.is_dir():
            return _around(tf, tf.saved_model.load(str(path)))
        with untrusted.open_regular(path) as file:
            config = config_of(zipfile.ZipFile(file)) if path.suffix == ".keras" else _config_of_h5(file)
        foreign = sorted({str(part["class_name"]) for part in _parts(config) if not _is_keras(part)})
        if foreign:
            raise DataError(f"expected a model of Keras' own layers, found {shortened(', '.join(foreign))}")
        return tf.keras.models.load_model(path, compile=False)
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except Exception as error:  # Keras, HDF5 and TensorFlow raise whatever they like
        raise DataError(f"{path}: expected a model as --work-type export writes it ({error})") from error


def _around(tf: Any, saved: Any) -> Any:
    """A model that does what the SavedModel does."""

    class Saved(tf.keras.layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self._saved = saved

        def call(self, images: Any) -> Any:
            return self._saved.serve(images)

    (images,) = saved.signatures["serving_default"].structured_input_signature[1].values()
    image = tf.keras.Input(images.shape[1:])
    return tf.keras.Model(image, Saved()(image))


def config_of(archive: zipfile.ZipFile) -> Any:
    """The configuration in a `.keras` file."""
    with archive.open(CONFIG) as file:
        return json.loads(file.read(_MOST_CONFIG))


def _config_of_h5(file: Any) -> Any:
    with open_h5(file, "r") as content:
        return json.loads(content.attrs["model_config"])


_MOST_CONFIG = 2**24  # bytes
_MODULES = {"keras", "keras.layers", "keras.initializers", "keras.regularizers", "keras.constraints", None}


def _is_keras(part: dict[str, Any]) -> bool:
    """Whether its class is one of Keras' own that does nothing but what its configuration says."""
    name = part["class_name"]
    return part.get("module") in _MODULES and name not in ("Lambda", "TFSMLayer", "__lambda__", "function")


def _parts(config: Any) -> list[dict[str, Any]]:
    """Everything in the configuration that a class is named for."""
    if not isinstance(config, (dict, list)):
        return []
    inner = [part for value in (config.values() if isinstance(config, dict) else config) for part in _parts(value)]
    return [config, *inner] if isinstance(config, dict) and "class_name" in config else inner
