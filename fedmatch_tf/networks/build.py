"""Networks, decomposed or plain, and their parameters as flat vectors."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Union

import numpy as np

from fedmatch_tf.base.errors import ConfigError, DataError, in_one_line
from fedmatch_tf.base.plugins import is_own_network, networks, smallest_image
from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks import files
from fedmatch_tf.networks.from_file import KerasFile
from fedmatch_tf.networks.makers import Maker, is_ours, makers
from fedmatch_tf.networks.params import Params, flatten

Arch = Union[str, KerasFile]  # a name of ours, `package.module:function`, or what a Keras file has


def build_network(
    arch: Arch,
    image_shape: Sequence[int],
    num_classes: int,
    decomposed: bool = True,
    l1_thres: float = 0.0,
    precision: str = "float32",
) -> Any:
    """A Keras model: images in [0, 1] [batch, h, w, c], or vectors [batch, n] -> probabilities [batch, classes].

    Args:
        precision: of what is computed; parameters and probabilities are always float32.
    """
    name = arch if isinstance(arch, str) else arch.name
    smallest = smallest_image(name)
    if len(image_shape) == 1 and smallest > 1:
        raise ConfigError(f"--arch: {name} is for images, the data are vectors; expected mlp or a network of your own")
    if min(image_shape[:2]) < smallest:
        raise ConfigError(f"--image-size: expected at least {smallest} for {name}, received images {list(image_shape)}")
    function = _find(arch) if isinstance(arch, str) else arch
    conv, dense = makers(decomposed, l1_thres)
    image = tf.keras.Input(tuple(image_shape))
    with _policy(_POLICIES[precision]):
        try:
            scores = function(image, num_classes, conv, dense)
            if scores is None:
                raise ValueError("it returned nothing; expected scores [batch, classes]")
            probs = tf.keras.layers.Softmax(dtype="float32")(scores)
            model = tf.keras.Model(image, probs, name=re.sub(r"\W", "_", re.split("[:/]", name)[-1]))
        except (Exception, SystemExit) as error:
            if isinstance(error, DataError) or not is_own_network(name):
                raise
            what = f"could not be built for images {list(image_shape)}"
            raise ConfigError(f"--arch: {name} {what}: {in_one_line(error)}") from error
    _check(model, name, num_classes, starts_anew=isinstance(arch, str))
    return model if precision == "float32" else _normalised_in_full(model)


def _find(arch: str) -> Callable[[Any, int, Maker, Maker], Any]:
    """The network's function; `package.module:function` is imported."""
    if not is_own_network(arch):
        return networks()[arch].build
    module_name, name = arch.split(":")
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ConfigError(f"--arch: the module {module_name} can't be imported: {in_one_line(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        kind = "none" if function is None else type(function).__name__
        where = getattr(module, "__file__", "built in")
        raise ConfigError(f"--arch: expected a function {name} in the module {module_name} ({where}), found {kind}")
    return function  # type: ignore[no-any-return]


# Keras' name of each precision. Variables are float32 in all of them.
_POLICIES = {"float32": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def _normalised_in_full(model: Any) -> Any:
    """The same network with normalisations in float32: their means and deviations are sums over many numbers.

    They are the layers with weights that conv and dense did not make.
    """

    def in_full(layer: Any) -> Any:
        if not layer.weights or is_ours(layer) or not layer.trainable:
            return layer
        return type(layer).from_config({**layer.get_config(), "dtype": "float32"})

    full = tf.keras.models.clone_model(model, clone_function=in_full)
    full.set_weights(model.get_weights())
    return full


def _check(model: Any, arch: str, num_classes: int, starts_anew: bool) -> None:
    """Raises ConfigError unless clients can train the network apart and servers average it.

    Args:
        starts_anew: its weights are those of new layers, not a file's, of which a part may be frozen.
    """
    if model.output_shape != (None, num_classes):
        raise ConfigError(
            f"--arch: expected {arch} to give scores [batch, {num_classes}], received {list(model.output_shape)}"
        )
    if not _kernel_layers(model):
        what = "to use the conv and dense that it is given" if starts_anew else "to have a Conv2D or Dense to train"
        raise ConfigError(f"--arch: expected {arch} {what}, found none of them")
    if not starts_anew:
        return
    for layer in model.layers:
        if layer.non_trainable_weights:
            raise ConfigError(
                f"--arch: {arch} has a {type(layer).__name__} layer, whose statistics come from all images that pass: "
                f"they would belong to neither labels (sigma) nor unlabelled images (psi), and to no client alone. "
                f"Use GroupNormalization, as wrn28_2 does"
            )
        if hasattr(layer, "_random_generator"):
            raise ConfigError(
                f"--arch: {arch} has a {type(layer).__name__} layer, whose draws follow from no seed of the run: "
                f"results would depend on which worker trained a client. Leave it out"
            )
    for variable in _others(model):
        if len(variable.shape) > 1:
            raise ConfigError(
                f"--arch: expected kernels only in layers made by conv and dense, so that they exist decomposed; "
                f"{arch} has another one of shape {list(variable.shape)}"
            )
        if np.ptp(variable.numpy()) > 0:
            raise ConfigError(
                f"--arch: expected scales and offsets that start at one value; {arch} has one of shape "
                f"{list(variable.shape)} that starts at random"
            )


@contextmanager
def _policy(name: str) -> Iterator[None]:
    """Layers made here compute in this precision."""
    before = tf.keras.mixed_precision.global_policy()
    tf.keras.mixed_precision.set_global_policy(name)
    try:
        yield
    finally:
        tf.keras.mixed_precision.set_global_policy(before)


def sigmas(model: Any) -> list[Any]:
    """What labels train: the model's sigma variables (its kernels if it is plain) in layer order, then all others.

    Those are biases, and scales and offsets of normalisations: they have no psi, belong to sigma and travel with it.
    """
    return kernels(model) + _others(model)


def kernels(model: Any) -> list[Any]:
    """Of them, the kernels."""
    name = "sigma" if is_decomposed(model) else "kernel"
    return [getattr(layer, name) for layer in _kernel_layers(model)]


def psis(model: Any) -> list[Any]:
    """The model's psi variables in layer order; none if it is plain."""
    return [layer.psi for layer in _kernel_layers(model)] if is_decomposed(model) else []


def is_decomposed(model: Any) -> bool:
    """Whether kernels are sums of sigma and psi."""
    return hasattr(_kernel_layers(model)[0], "psi")


def _kernel_layers(model: Any) -> list[Any]:
    return [layer for layer in model.layers if is_ours(layer)]


def _others(model: Any) -> list[Any]:
    """What is trained and is no kernel."""
    known = {id(variable) for variable in [*kernels(model), *psis(model)]}
    return [one for layer in model.layers for one in layer.trainable_weights if id(one) not in known]


def num_frozen(model: Any) -> int:
    """How many weights nobody trains."""
    return sum(int(np.prod(variable.shape)) for variable in model.non_trainable_weights)


def kernel_shapes(model: Any) -> list[tuple[int, ...]]:
    """Shapes of the kernels in layer order."""
    return [tuple(variable.shape) for variable in kernels(model)]


def own_starts(model: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """(kernels, what is trained beside them) as they are in a new model.

    Only those of a Keras file start there: our own networks' kernels are drawn.
    """
    return [variable.numpy() for variable in kernels(model)], [variable.numpy() for variable in _others(model)]


def read(model: Any) -> Params:
    """The model's parameters."""
    parts = [variables for variables in (sigmas(model), psis(model)) if variables]
    return Params(*(flatten([variable.numpy() for variable in variables]) for variables in parts))


def write(model: Any, params: Params) -> None:
    """Puts the parameters into the model; ConfigError if it is not the model that they are of."""
    parts = [variables for variables in (sigmas(model), psis(model)) if variables]
    sizes = [sum(int(np.prod(variable.shape)) for variable in variables) for variables in parts]
    received = [len(vector) for vector in params.parts]
    if sizes != received:
        raise ConfigError(
            f"--arch: the network {model.name} has {_sizes(sizes)}, but those given are {_sizes(received)}. "
            f"Has its code changed since the run?"
        )
    for variables, vector in zip(parts, params.parts):
        assign(variables, vector)


def assign(variables: Sequence[Any], vector: np.ndarray) -> None:
    """Puts the vector into the variables, one behind the other."""
    begin = 0
    for variable in variables:
        end = begin + int(np.prod(variable.shape))
        variable.assign(vector[begin:end].reshape(variable.shape))
        begin = end


def _sizes(sizes: Sequence[int]) -> str:
    """In words, of sigma or of sigma and psi."""
    return f"{sizes[0]} weights in sigma and {sizes[1] if len(sizes) > 1 else 0} in psi"


def plain(
    arch: Arch, image_shape: Sequence[int], num_classes: int, theta: np.ndarray, precision: str = "float32"
) -> Any:
    """The plain network with these weights."""
    model = build_network(arch, image_shape, num_classes, decomposed=False, precision=precision)
    write(model, Params(theta))
    return model


def check_file(arch: str, model: Any) -> None:
    """Raises ConfigError unless Keras can write and read the network: better before the first round than at the end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.keras"
        try:
            path.write_bytes(files.keras_file(model))
            tf.keras.models.load_model(path)
        except (Exception, SystemExit) as error:
            what = "has a layer that Keras can't write to a file or read back"
            raise ConfigError(f"--arch: {arch} {what}: {in_one_line(error)}") from error


_LEFT_OF_DEVIATION = 0.87962566103423978  # what a normal cut off at two standard deviations has left of its deviation


def _deviation(shape: Sequence[int]) -> float:
    """Variance scaling by fan-in, as the paper has it; scaled up, as the normal that it is for is cut off."""
    return float(np.sqrt(1.0 / np.prod(shape[:-1])) / _LEFT_OF_DEVIATION)


def original_kernels(shapes: Sequence[tuple[int, ...]], seed: int) -> list[np.ndarray]:
    """The original's draw: every kernel from the beginning of the same stream, so equal shapes have equal kernels.

    It has one seeded Keras initialiser for all kernels, which begins anew at every call.
    """
    key = tf.constant([seed, 0], tf.int64)
    return [tf.random.stateless_truncated_normal(shape, key, stddev=_deviation(shape)).numpy() for shape in shapes]


def independent_kernels(shapes: Sequence[tuple[int, ...]], rng: np.random.Generator) -> list[np.ndarray]:
    """The same distribution, every kernel drawn anew."""
    return [(_deviation(shape) * _truncated_normal(shape, rng)).astype(np.float32) for shape in shapes]


def from_kernels(
    kernels: Sequence[np.ndarray], psi_factor: float, decomposed: bool, others: Sequence[np.ndarray] = ()
) -> Params:
    """Starting parameters: psi = psi_factor * sigma; a plain network starts from sigma + psi.

    Args:
        others: scales and offsets, which start as they are.
    """
    kernel = flatten(kernels)
    if decomposed:
        return Params(flatten([kernel, *others]), np.float32(psi_factor) * kernel)
    return Params(flatten([np.float32(1 + psi_factor) * kernel, *others]))


def _truncated_normal(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    values = rng.standard_normal(shape)
    while (far := np.abs(values) > 2).any():
        values[far] = rng.standard_normal(int(far.sum()))
    return values
