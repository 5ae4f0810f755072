"""A Keras file as a network: conv and dense make what it trains of convolutions and dense layers, the rest stays.

It is read by hand, so Keras 2 or Keras 3 may have written it, and nothing is made of it but the layers of one table.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError, short
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks import files
from fedmatch_tf.networks.makers import Maker


class KerasFile(NamedTuple):
    """A network in a `.keras` file."""

    name: str
    content: bytes

    def __call__(self, image: Any, num_classes: int, conv: Maker, dense: Maker) -> Any:
        """Scores before the softmax, which the file may have or not; DataError says what can't be used in it."""
        try:
            with zipfile.ZipFile(io.BytesIO(self.content)) as archive:
                model, packed = files.config_of(archive), archive.getinfo(_WEIGHTS)
                untrusted.check_size("its weights", packed.file_size, 2**20 + 4 * len(self.content))
                weights = io.BytesIO(archive.read(packed))
            _end_with_scores(model)
            with files.open_h5(weights, "r") as group:
                return _Reader(conv, dense, image.shape).called(model, group, image, trainable=True)
        except DataError as error:
            raise DataError(f"--arch: {self.name}: {error}") from error
        except Exception as error:  # zipfile and HDF5 raise whatever they like; layers do, too
            what = f"expected a file that Keras' model.save wrote ({type(error).__name__}: {error})"
            raise DataError(f"--arch: {self.name}: {what}") from error


_WEIGHTS = "model.weights.h5"
_MODELS = {"Functional", "Model", "Sequential"}
# Layers with the arguments that decide what they compute. What is not here is refused.
_NORM, _KERNEL = "axis epsilon center scale", "kernel_size strides padding dilation_rate activation use_bias"
_ARGUMENTS = {
    **dict.fromkeys(("Add", "Average", "Flatten", "Maximum", "Minimum", "Multiply", "Subtract"), ""),
    **dict.fromkeys(("Dropout", "SpatialDropout2D"), "rate"),
    **dict.fromkeys(("AveragePooling2D", "MaxPooling2D"), "pool_size strides padding"),
    **dict.fromkeys(("GlobalAveragePooling2D", "GlobalMaxPooling2D"), "keepdims"),
    **dict.fromkeys(("BatchNormalization", "LayerNormalization"), _NORM),
    "Activation": "activation",
    "Concatenate": "axis",
    "Conv2D": f"filters groups {_KERNEL}",
    "Cropping2D": "cropping",
    "Dense": "units activation use_bias",
    "DepthwiseConv2D": f"depth_multiplier {_KERNEL}",
    "ELU": "alpha",
    "GroupNormalization": f"groups {_NORM}",
    "LeakyReLU": "alpha",
    "Permute": "dims",
    "ReLU": "max_value negative_slope threshold",
    "Rescaling": "scale offset",
    "Reshape": "target_shape",
    "SeparableConv2D": f"filters depth_multiplier {_KERNEL}",
    "Softmax": "axis",
    "UpSampling2D": "size interpolation",
    "ZeroPadding2D": "padding",
}
_ONLY_FROZEN = {
    **dict.fromkeys(("Dropout", "SpatialDropout2D"), "leave it out"),
    **dict.fromkeys(("DepthwiseConv2D", "SeparableConv2D"), "use Conv2D"),
    "BatchNormalization": "use GroupNormalization",
}
# Of names, of how a layer starts and how Keras would train it.
_NO_MATTER = re.compile(
    r"name|trainable|dtype|batch_.*shape|momentum|renorm.*|seed|.*_(initializer|regularizer|constraint)"
)


def _end_with_scores(model: Mapping[str, Any]) -> None:
    """Takes the softmax off the last layer."""
    config = model["config"]
    name = None if model["class_name"] == "Sequential" else np.ravel(config["output_layers"])[0]
    last = next(part for part in reversed(config["layers"]) if name in (None, part["config"]["name"]))
    if last["class_name"] in _MODELS:
        _end_with_scores(last)
        return
    if last["class_name"] == "Softmax":
        last.update(class_name="Activation", config={**last["config"], "axis": None, "activation": "softmax"})
    found = last["class_name"] if last["class_name"].endswith("LU") else last["config"].get("activation", "linear")
    if found not in ("linear", "softmax"):
        raise DataError(f"expected scores or their softmax at the end, found the activation {short(found)}")
    if "activation" in last["config"]:
        last["config"]["activation"] = "linear"


class _Reader:
    """Makes layers and calls them; a layer of a model inside the model is one like the others."""

    def __init__(self, conv: Maker, dense: Maker, shape: Sequence[int | None]) -> None:
        self._conv, self._dense, self._shape = conv, dense, shape

    def called(self, model: Mapping[str, Any], group: Any, x: Any, trainable: bool) -> Any:
        """What the model gives for x.

        Args:
            group: where its weights are.
        """
        config, numbers, given, y = model["config"], Counter[str](), dict[str, Any](), x
        for part in config["layers"]:
            kind, name = part["class_name"], part["config"]["name"]
            where = re.sub("(?<=[a-z])(?=[A-Z])|(?<!^)(?=[A-Z][a-z])", "_", kind).lower()
            where += f"_{numbers[kind]}" if numbers[kind] else ""  # weights lie by kind and number, in every Keras
            numbers[kind] += 1
            if kind == "InputLayer":
                self._check_input(part["config"], numbers[kind], x)
                y = x
            else:
                if kind not in _MODELS and (part.get("module") not in (None, "keras.layers") or kind not in _ARGUMENTS):
                    known = ", ".join(_ARGUMENTS)
                    raise DataError(f"the layer {short(name)} is of the kind {short(kind)}; expected {known}")
                inputs = y if model["class_name"] == "Sequential" else _inputs_of(part, given)
                trained = trainable and part["config"].get("trainable", True)
                of_layer = _inside(_inside(group, "layers"), where)
                y = (self.called if kind in _MODELS else self._called_layer)(part, of_layer, inputs, trained)
            given[name] = y
        if model["class_name"] == "Sequential":
            return y
        outputs = np.ravel(config["output_layers"])
        if len(outputs) != 3:
            raise DataError(f"expected one output, found {len(outputs) // 3}")
        return given[outputs[0]]

    def _check_input(self, config: Mapping[str, Any], number: int, x: Any) -> None:
        if number > 1 or isinstance(x, list):
            raise DataError("expected models of one input, found several")
        wanted = config.get("batch_shape", config.get("batch_input_shape"))
        if len(wanted) != len(x.shape) or any(n not in (None, m) for n, m in zip(wanted[1:], x.shape[1:])):
            of_data = "" if x.shape != self._shape else ", as the data are (--image-size says how large images are)"
            raise DataError(f"it takes {wanted[1:]}; expected {list(x.shape[1:])}{of_data}")

    def _called_layer(self, part: Mapping[str, Any], group: Any, inputs: Any, trained: bool) -> Any:
        kind, name = part["class_name"], part["config"]["name"]
        arguments = _arguments(kind, part["config"])
        if trained and kind in _ONLY_FROZEN:
            raise DataError(
                f"the layer {short(name)}: {kind} is for frozen parts alone (trainable = False): sigma, psi and seeds "
                f"know nothing of it. Freeze it, or {_ONLY_FROZEN[kind]}"
            )
        if "rate" in arguments:  # a frozen dropout
            return inputs
        layer = self._layer(kind, arguments, trained)
        layer.trainable = trained
        y = layer(inputs, training=False) if kind == "BatchNormalization" else layer(inputs)
        variables = [variable for variable in layer.weights if variable is not getattr(layer, "psi", None)]
        stored = _inside(group, "vars") or ()
        if len(stored) != len(variables):
            raise DataError(f"the layer {short(name)}: expected {len(variables)} weights, found {len(stored)}")
        for number, variable in enumerate(variables):
            variable.assign(_array(_inside(stored, str(number)), tuple(variable.shape), short(name)))
        return y

    def _layer(self, kind: str, arguments: dict[str, Any], trained: bool) -> Any:
        if not trained or kind not in ("Conv2D", "Dense"):
            return getattr(tf.keras.layers, kind)(**arguments)
        if kind == "Dense":
            return self._dense(**arguments)
        if arguments.pop("groups", 1) != 1:
            raise DataError("a convolution in groups can't be trained here. Freeze it (trainable = False)")
        return self._conv(size=arguments.pop("kernel_size"), **arguments)


def _arguments(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """What the layer is made with; DataError if it has more than we know."""
    if kind == "LeakyReLU" and "negative_slope" in config:  # as Keras 3 calls it
        config = {"alpha": config["negative_slope"]}
    names = _ARGUMENTS[kind].split()
    for name, value in config.items():
        known = name in names or value is None or value is False or _NO_MATTER.fullmatch(name)
        if not known and (name, value) not in (("data_format", "channels_last"), ("groups", 1)):
            raise DataError(f"{kind}: expected its usual arguments, found {short(name)} of {short(value)}")
        if name == "activation" and not isinstance(value, str):
            raise DataError(f"{kind}: expected an activation by its name, found {short(value)}")
    return {name: config[name] for name in names if name in config}


def _inputs_of(part: Mapping[str, Any], given: Mapping[str, Any]) -> Any:
    """What a layer is called on: one tensor, or a list of them."""
    if len(part["inbound_nodes"]) != 1:
        raise DataError(f"the layer {short(part['config']['name'])}: expected it to be called once")
    (node,) = part["inbound_nodes"]
    if isinstance(node, dict):  # Keras 3
        (first,) = node["args"]
        names = [one["config"]["keras_history"][0] for one in (first if isinstance(first, list) else [first])]
        is_list = isinstance(first, list)
    else:
        names, is_list = [one[0] for one in node], len(node) > 1
    return [given[name] for name in names] if is_list else given[names[0]]


def _inside(group: Any, name: str) -> Any:
    """A part of an HDF5 file that is in the file itself; a link could lead to another one. None of none."""
    import h5py  # type: ignore[import-untyped]

    if group is None or name not in group:
        return None
    if not isinstance(group.get(name, getlink=True), h5py.HardLink):
        raise DataError("expected weights in the file itself, found a link")
    return group[name]


def _array(stored: Any, shape: tuple[int, ...], name: str) -> np.ndarray:
    """The numbers of an HDF5 dataset, once it is found to be one of this shape whose numbers lie in the file itself."""
    if stored is None or stored.dtype.kind != "f" or stored.shape != shape or stored.external or stored.is_virtual:
        found = getattr(stored, "shape", "none")
        raise DataError(f"the layer {name}: expected weights as numbers of the shape {shape}, found {found}")
    value = np.asarray(stored, np.float32)
    if not np.isfinite(value).all():
        raise DataError(f"the layer {name}: expected finite weights, found NaN or infinity")
    return value
