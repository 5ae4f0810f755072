"""The two networks: their size as the paper and the original have it, and parameters in and out as flat vectors."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.config import ConfigError
from fedmatch_tf.core import networks
from fedmatch_tf.core.params import Params

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
    rng = np.random.default_rng(seed)
    return networks.from_kernels(
        networks.independent_kernels(networks.kernel_shapes(model), rng), 0.2, networks.is_decomposed(model)
    )


@pytest.mark.parametrize("arch", ["resnet9", "alexnet"])
def test_a_decomposed_network_computes_what_a_plain_one_does_with_the_sum(arch: str) -> None:
    decomposed = networks.build_network(arch, (32, 32, 3), 7)
    plain = networks.build_network(arch, (32, 32, 3), 7, decomposed=False)
    params = small_params(decomposed)
    networks.write(decomposed, params)
    networks.write(plain, Params(params.sigma + params.psi, np.zeros(0, np.float32)))
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
    np.testing.assert_array_equal(again.psi, params.psi)
    first = networks.sigmas(model)[0]
    np.testing.assert_array_equal(first.numpy().ravel(), params.sigma[: first.shape.num_elements()])


def test_weights_start_by_variance_scaling_with_psi_a_fifth_of_sigma() -> None:
    shapes = [(3, 3, 64, 128), (512, 2000)]
    params = networks.from_kernels(networks.independent_kernels(shapes, np.random.default_rng(0)), 0.2, True)
    conv, dense = params.sigma[: 3 * 3 * 64 * 128], params.sigma[3 * 3 * 64 * 128 :]
    assert conv.std() == pytest.approx(np.sqrt(1 / (3 * 3 * 64)), rel=0.02)
    assert dense.std() == pytest.approx(np.sqrt(1 / 512), rel=0.02)
    assert np.abs(dense).max() <= 2 * np.sqrt(1 / 512) / 0.8796  # cut off at two deviations of the uncut normal
    np.testing.assert_allclose(params.psi, 0.2 * params.sigma, rtol=1e-6)
    plain = networks.from_kernels(networks.independent_kernels(shapes, np.random.default_rng(0)), 0.2, False)
    np.testing.assert_allclose(plain.sigma, 1.2 * params.sigma, rtol=1e-6)
    assert plain.psi.size == 0


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
    np.testing.assert_array_equal(decomposed.psi, np.float32(0.2) * theta)
    np.testing.assert_array_equal(plain.sigma, np.float32(1.2) * theta)
    if shapes is RESNET9:
        for one, other in ((2, 3), (6, 7)):
            np.testing.assert_array_equal(kernels[one], kernels[other])


def test_independent_kernels_of_one_shape_differ() -> None:
    first, second = networks.independent_kernels([(3, 3, 8, 8)] * 2, np.random.default_rng(0))
    assert (first != second).all()
