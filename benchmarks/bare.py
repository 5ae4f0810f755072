"""The bare loop that training is compared with: a plain network, compiled, and nothing but passes through it."""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

Pass = tuple[str, int]  # forward or train, and how many images at once
FULL = 500  # images in a forward pass that has no batch size of its own to keep


class Bare:
    """Runs passes; a worker of the process backend, so that it starts as ours do."""

    def __init__(self, arch: str, threads: int, precision: str = "float32") -> None:
        from fedmatch_tf.workers.environment import prepare

        prepare(threads)
        import tensorflow as tf

        from fedmatch_tf.networks import build as networks

        model = networks.build_network(arch, (32, 32, 3), 10, decomposed=False, precision=precision)
        kernels = networks.sigmas(model)
        images, labels = tf.TensorSpec([None, 32, 32, 3]), tf.TensorSpec([None, 10])
        self._forward = tf.function(lambda x: model(x), [images], autograph=False)

        def train(x: Any, y: Any) -> Any:
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.keras.losses.categorical_crossentropy(y, model(x)))
            for kernel, gradient in zip(kernels, tape.gradient(loss, kernels)):
                kernel.assign_sub(1e-4 * gradient)
            return loss

        self._train = tf.function(train, [images, labels], autograph=False)
        self._x = tf.constant(np.random.default_rng(0).random((FULL, 32, 32, 3), np.float32))
        self._y = tf.one_hot(np.arange(FULL) % 10, 10)

    def run(self, passes: Mapping[Pass, int]) -> int:
        """Does so many of each; the process' peak memory in bytes."""
        for (kind, size), count in passes.items():
            x, y = self._x[:size], self._y[:size]
            step = partial(self._forward, x) if kind == "forward" else partial(self._train, x, y)
            for _ in range(count):
                result = step()
            if count:
                result.numpy()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def shares(passes: Mapping[Pass, int], num_workers: int, part: float) -> list[Counter[Pass]]:
    """What each of the workers gets of this part of the passes: every n-th of them, as even as whole passes are."""
    single = [what for what, count in sorted(passes.items()) for _ in range(count)]
    chosen = single[:: max(1, round(1 / part))]
    return [Counter(chosen[worker::num_workers]) for worker in range(num_workers)]


def num_images(passes: Mapping[Pass, int]) -> int:
    return sum(size * count for (_, size), count in passes.items())
