"""What the rounds of all peers share, so that they do the same work. Needs NumPy alone."""

from __future__ import annotations

import argparse
import json
import time

import numpy as np

CLIENTS, IMAGES, BATCH, CLASSES = 5, 490, 98, 10
LR = 1e-3


def client_data(client: int) -> tuple[np.ndarray, np.ndarray]:
    """Images float32 [490, 32, 32, 3] and labels [490] of a client."""
    rng = np.random.default_rng(client)
    return rng.random((IMAGES, 32, 32, 3), np.float32), np.arange(IMAGES) % CLASSES


def num_rounds() -> int:
    """How many rounds the caller wants, from the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    return int(parser.parse_known_args()[0].rounds)


class Clock:
    """Tells the seconds of each round; the first one, which starts and compiles things, is told apart."""

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._seconds: list[float] = []

    def end_of_round(self) -> None:
        now = time.perf_counter()
        self._seconds.append(now - self._last)
        self._last = now

    def tell(self) -> None:
        """The line that benchmarks/peers looks for."""
        print("ROUNDS " + json.dumps(self._seconds), flush=True)


def keras_resnet9(keras: object) -> object:
    """ResNet-9 as this project has it, in any Keras."""
    layers = keras.layers  # type: ignore[attr-defined]

    def conv(filters: int) -> object:
        return layers.Conv2D(filters, 3, padding="same", activation="relu", use_bias=False)

    image = keras.Input((32, 32, 3))  # type: ignore[attr-defined]
    x = conv(64)(image)  # type: ignore[operator]
    x = layers.MaxPool2D(2)(conv(128)(x))  # type: ignore[operator]
    x = layers.Add()([x, conv(128)(conv(128)(x))])  # type: ignore[operator]
    x = layers.MaxPool2D(2)(conv(256)(x))  # type: ignore[operator]
    x = layers.MaxPool2D(2)(conv(512)(x))  # type: ignore[operator]
    x = layers.Add()([x, conv(512)(conv(512)(x))])  # type: ignore[operator]
    x = layers.Flatten()(layers.MaxPool2D(4)(x))
    return keras.Model(image, layers.Dense(CLASSES, use_bias=False)(x))  # type: ignore[attr-defined]
