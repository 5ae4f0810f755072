"""Networks: their size as the papers have it, a user's own, and parameters in and out as flat vectors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.config import ConfigError
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params

RESNET9 = [
    (3, 3, 3, 64),
    (3, 3, 64, 128),
    (3, 3, 128, 128),
    (3, 3, 128, 128),
    (3, 3, 128, 256),
    (3, 3, 256, 512),
    (3, 3, 512, 512),
    (3, 3, 512, 512),
    (512, 10),
]
# 32 -> 29 -> 14 -> 12 -> 6 -> 5 -> 2: 2 * 2 * 256 features
ALEXNET = [(4, 4, 3, 64), (3, 3, 64, 128), (2, 2, 128, 256), (1024, 2048), (2048, 2048), (2048, 10)]


@pytest.mark.parametrize("decomposed", [True, False])
@pytest.mark.parametrize(("arch", "shapes"), [("resnet9", RESNET9), ("alexnet", ALEXNET)])
def test_kernels_are_those_of_the_paper(arch: str, shapes: list[tuple[int, ...]], decomposed: bool) -> None:
    model = networks.build_network(arch, (32, 32, 3), 10, decomposed)
    assert networks.kernel_shapes(model) == shapes
    assert len(model.trainable_weights) == len(shapes) * (2 if decomposed else 1)
    if arch == "resnet9":
        assert sum(int(np.prod(shape)) for shape in shapes) == 6_568_640


def small_params(model: object, seed: int = 0) -> Params:
    kernels = networks.independent_kernels(networks.kernel_shapes(model), np.random.default_rng(seed))
    return networks.from_kernels(kernels, 0.2, networks.is_decomposed(model), networks.own_starts(model)[1])


def test_wide_resnet_and_resnet8_have_the_size_of_their_papers() -> None:
    """By hand, without biases. A normalisation of c filters has a scale and an offset for each.

    WRN-28-2: 16 x 27 at the start; in each of three groups a skip of 1 x 1 and eight kernels of 3 x 3; 128 x 10 last.
    """
    wide = networks.build_network("wrn28_2", (32, 32, 3), 10)
    first, last = 27 * 16, 128 * 10
    groups = sum(
        a * b + 9 * (a * b + 7 * b * b) for a, b in ((16, 32), (32, 64), (64, 128))
    )  # the skip; the first kernel of the group, then seven
    norms = 2 * sum(a + 7 * b for a, b in ((16, 32), (32, 64), (64, 128))) + 2 * 128
    params = small_params(wide)
    assert (len(params.parts[1]), len(params.sigma)) == (first + groups + last, first + groups + last + norms)
    assert abs(len(params.sigma) - 1.47e6) < 2e4  # the 1.5 million of the papers
    eight = networks.build_network("resnet8", (32, 32, 3), 10)
    shapes = networks.kernel_shapes(eight)
    assert len([shape for shape in shapes if shape[:2] == (3, 3)]) + 1 == 8  # convolutions, and the last layer
    blocks = 2 * 36864 + (73728 + 147456 + 8192) + (294912 + 589824 + 32768)
    assert sum(int(np.prod(shape)) for shape in shapes) == 1728 + blocks + 2560


@pytest.mark.parametrize("arch", ["wrn28_2", "resnet8"])
def test_scales_and_offsets_belong_to_sigma_and_have_no_psi(arch: str) -> None:
    model = networks.build_network(arch, (32, 32, 3), 10)
    params = small_params(model)
    tail = params.sigma[len(params.parts[1]) :]
    assert set(tail.tolist()) == {0.0, 1.0}
    plain = small_params(networks.build_network(arch, (32, 32, 3), 10, decomposed=False))
    np.testing.assert_allclose(
        plain.sigma[: len(params.parts[1])], 1.2 * params.sigma[: len(params.parts[1])], rtol=1e-6
    )
    np.testing.assert_array_equal(plain.sigma[len(params.parts[1]) :], tail)
    moved = Params(params.sigma.copy(), params.psi)
    moved.sigma[len(params.parts[1]) :] = 0.5
    networks.write(model, moved)
    assert all((layer.gamma.numpy() == 0.5).all() for layer in model.layers if "group" in layer.name)
    np.testing.assert_array_equal(networks.read(model).sigma, moved.sigma)


@pytest.mark.parametrize("arch", ["resnet9", "alexnet", "wrn28_2", "resnet8"])
def test_a_decomposed_network_computes_what_a_plain_one_does_with_the_sum(arch: str) -> None:
    decomposed = networks.build_network(arch, (32, 32, 3), 7)
    plain = networks.build_network(arch, (32, 32, 3), 7, decomposed=False)
    params = small_params(decomposed)
    networks.write(decomposed, params)
    networks.write(plain, Params(params.theta()))
    x = tf.random.stateless_uniform((3, 32, 32, 3), (1, 2))
    probs = decomposed(x, training=True)
    np.testing.assert_allclose(probs, plain(x), rtol=1e-4)
    np.testing.assert_allclose(tf.reduce_sum(probs, axis=1), 1.0, rtol=1e-5)


def test_the_hard_threshold_reaches_every_layer() -> None:
    model = networks.build_network("alexnet", (24, 24, 3), 3, l1_thres=1e9)  # all of psi counts as 0
    params = small_params(model)
    networks.write(model, params)
    x = tf.random.stateless_uniform((2, 24, 24, 3), (1, 2))
    sparse = model(x, training=False)
    networks.write(model, Params(params.sigma, np.zeros_like(params.psi)))
    np.testing.assert_array_equal(sparse, model(x, training=True))


@pytest.mark.parametrize(("arch", "size"), [("resnet9", 32), ("resnet9", 48), ("alexnet", 19), ("alexnet", 40)])
def test_any_size_that_fits_and_any_number_of_classes(arch: str, size: int) -> None:
    model = networks.build_network(arch, (size, size, 1), 3)
    assert model(tf.zeros((2, size, size, 1))).shape == (2, 3)


@pytest.mark.parametrize(("arch", "size"), [("resnet9", 31), ("alexnet", 18)])
def test_an_image_that_is_too_small_is_refused(arch: str, size: int) -> None:
    with pytest.raises(ConfigError, match=f"expected at least {size + 1} for {arch}"):
        networks.build_network(arch, (size, size, 3), 10)


def test_parameters_come_back_as_they_were_written() -> None:
    model = networks.build_network("alexnet", (24, 24, 3), 3)
    params = small_params(model)
    networks.write(model, params)
    again = networks.read(model)
    np.testing.assert_array_equal(again.sigma, params.sigma)
    np.testing.assert_array_equal(again.parts[1], params.parts[1])
    first = networks.sigmas(model)[0]
    np.testing.assert_array_equal(first.numpy().ravel(), params.sigma[: first.shape.num_elements()])


def test_weights_start_by_variance_scaling_with_psi_a_fifth_of_sigma() -> None:
    shapes = [(3, 3, 64, 128), (512, 2000)]
    params = networks.from_kernels(networks.independent_kernels(shapes, np.random.default_rng(0)), 0.2, True)
    conv, dense = params.sigma[: 3 * 3 * 64 * 128], params.sigma[3 * 3 * 64 * 128 :]
    assert conv.std() == pytest.approx(np.sqrt(1 / (3 * 3 * 64)), rel=0.02)
    assert dense.std() == pytest.approx(np.sqrt(1 / 512), rel=0.02)
    assert np.abs(dense).max() <= 2 * np.sqrt(1 / 512) / 0.8796  # cut off at two deviations of the uncut normal
    np.testing.assert_allclose(params.parts[1], 0.2 * params.sigma, rtol=1e-6)
    plain = networks.from_kernels(networks.independent_kernels(shapes, np.random.default_rng(0)), 0.2, False)
    np.testing.assert_allclose(plain.sigma, 1.2 * params.sigma, rtol=1e-6)
    assert plain.psi is None
    doubled = networks.from_kernels(networks.independent_kernels(shapes, np.random.default_rng(0)), 1.0, False)
    np.testing.assert_array_equal(doubled.sigma, 2 * params.sigma)


@pytest.mark.filterwarnings("ignore:The initializer VarianceScaling is seeded and being called multiple times")
@pytest.mark.parametrize("seed", [1, 7, 2**31 + 5])
@pytest.mark.parametrize("shapes", [RESNET9, ALEXNET])
def test_the_originals_draw_is_one_seeded_initialiser_for_all_kernels(shapes: list[tuple[int, ...]], seed: int) -> None:
    initialiser = tf.keras.initializers.VarianceScaling(seed=seed)  # scale 1, fan-in, truncated normal are its defaults
    kernels = networks.original_kernels(shapes, seed)
    for shape, kernel in zip(shapes, kernels):
        np.testing.assert_array_equal(kernel, initialiser(shape).numpy())
    theta = np.concatenate([kernel.ravel() for kernel in kernels])
    decomposed, plain = (networks.from_kernels(kernels, 0.2, decomposed) for decomposed in (True, False))
    np.testing.assert_array_equal(decomposed.sigma, theta)
    np.testing.assert_array_equal(decomposed.parts[1], np.float32(0.2) * theta)
    np.testing.assert_array_equal(plain.sigma, np.float32(1.2) * theta)
    if shapes is RESNET9:
        for one, other in ((2, 3), (6, 7)):
            np.testing.assert_array_equal(kernels[one], kernels[other])


def test_independent_kernels_of_one_shape_differ() -> None:
    first, second = networks.independent_kernels([(3, 3, 8, 8)] * 2, np.random.default_rng(0))
    assert (first != second).all()


NETS = """
import tensorflow as tf
layers = tf.keras.layers

def small(x, num_classes, conv, dense):
    x = layers.LayerNormalization()(conv(8, 3, strides=2)(x))
    return dense(num_classes)(layers.GlobalMaxPooling2D()(x))

def with_batch_norm(x, num_classes, conv, dense):
    return dense(num_classes)(layers.Flatten()(layers.BatchNormalization()(conv(4, 3)(x))))

def with_its_own_kernel(x, num_classes, conv, dense):
    return dense(num_classes)(layers.Flatten()(layers.DepthwiseConv2D(3)(x)))

def without_ours(x, num_classes, conv, dense):
    return layers.Dense(num_classes)(layers.Flatten()(x))

def of_other_size(x, num_classes, conv, dense):
    return dense(num_classes + 1)(layers.Flatten()(x))

def with_dropout(x, num_classes, conv, dense):
    return dense(num_classes)(layers.Dropout(0.5)(layers.Flatten()(x)))

def with_a_random_scale(x, num_classes, conv, dense):
    return dense(num_classes)(layers.Flatten()(layers.LayerNormalization(gamma_initializer="random_normal")(x)))

def broken(x, num_classes, conv, dense):
    return conv("many", 3)(x)

number = 3
"""


@pytest.fixture(scope="module")
def own_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of a module with networks."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_networks_of_a_test.py").write_text(NETS)
    sys.path.append(str(folder))
    yield "own_networks_of_a_test"
    sys.path.remove(str(folder))


@pytest.mark.parametrize("decomposed", [True, False])
@pytest.mark.parametrize("arch", ["resnet8", "OWN:small"])
def test_normalisations_are_in_float32_in_every_precision_and_weights_lie_where_they_lay(
    arch: str, decomposed: bool, own_module: str
) -> None:
    arch = arch.replace("OWN", own_module)
    full = networks.build_network(arch, (16, 16, 3), 4, decomposed)
    half = networks.build_network(arch, (16, 16, 3), 4, decomposed, precision="bfloat16")
    names = {layer.name: type(layer).__name__ for layer in half.layers}
    computed = {names[layer.name]: layer.compute_dtype for layer in half.layers}
    norm = "GroupNormalization" if arch == "resnet8" else "LayerNormalization"
    conv = "DecomposedConv2D" if decomposed else "Conv2D"
    assert (computed[norm], computed[conv], computed["Softmax"]) == ("float32", "bfloat16", "float32")
    given = small_params(full)
    tail = np.linspace(0.5, 1.5, len(given.sigma) - sum(np.prod(shape) for shape in networks.kernel_shapes(full)))
    given.sigma[-len(tail) :] = tail  # every scale and offset another, so that none can change its place unseen
    networks.write(full, given)
    networks.write(half, given)
    np.testing.assert_array_equal(networks.read(half).sigma, given.sigma)
    x = np.random.default_rng(0).random((8, 16, 16, 3), np.float32)
    np.testing.assert_allclose(half(x), full(x), atol=0.02)


def test_a_users_network_exists_decomposed_and_plain(own_module: str) -> None:
    model = networks.build_network(f"{own_module}:small", (20, 20, 3), 5)
    assert networks.kernel_shapes(model) == [(3, 3, 3, 8), (8, 5)]
    params = small_params(model)
    assert (len(params.parts[1]), len(params.sigma)) == (216 + 40, 216 + 40 + 16)
    assert model(tf.zeros((2, 20, 20, 3))).shape == (2, 5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("with_batch_norm", "BatchNormalization layer, whose statistics"),
        ("with_its_own_kernel", r"another one of shape \[3, 3, 3, 1\]"),
        ("without_ours", "found none of them"),
        ("of_other_size", r"scores \[batch, 5\], received \[None, 6\]"),
        ("with_dropout", "Dropout layer, whose draws follow from no seed"),
        ("with_a_random_scale", "that starts at random"),
        ("broken", r"could not be built for images .*own_networks_of_a_test.py|layers.py, line"),
        ("absent", "expected a function absent"),
        ("number", "expected a function number in the module .*, found int"),
    ],
)
def test_a_network_that_cannot_be_trained_apart_is_refused_with_the_reason(
    name: str, message: str, own_module: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        networks.build_network(f"{own_module}:{name}", (20, 20, 3), 5)


def test_a_module_that_cannot_be_imported_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_module_of_a_test.py").write_text("import os\n\nraise NameError('a typing error')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"NameError: a typing error \(.*broken_module_of_a_test.py, line 3\)"):
        networks.build_network("broken_module_of_a_test:small", (20, 20, 3), 5)


def test_parameters_of_another_network_are_refused() -> None:
    model = networks.build_network("alexnet", (24, 24, 3), 3)
    params = small_params(model)
    with pytest.raises(ConfigError, match="Has its code changed"):
        networks.write(model, Params(params.sigma[:-1], params.psi))


def test_a_layer_that_keras_cannot_read_back_is_told_before_the_first_round() -> None:
    image = tf.keras.Input((4,))
    model = tf.keras.Model(image, tf.keras.layers.Lambda(lambda x: x * 2)(image))
    with pytest.raises(ConfigError, match="a layer that Keras can't write to a file or read back"):
        networks.check_file("mynet:f", model)
