"""Stochastic gradient descent, as PyTorch has it: a bound on the gradient's norm, then momentum, then a step.

    v = momentum v + g;   theta = theta - lr v,   with Nesterov theta - lr (g + momentum v)

g is the gradient of the whole loss, weight decay included. v begins at 0 in every round of a client, and in every round
of the server, whose epochs in that round share it. Without momentum there is no v.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedmatch_tf.base.quiet import tf
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import flatten

if TYPE_CHECKING:
    from fedmatch_tf.config import Config

LOSS_SCALE = 128.0  # in float16, in which small gradients would vanish; bfloat16 has the range of float32


class SGD:
    """Steps on these variables, and their v."""

    def __init__(self, config: Config, variables: Sequence[Any]) -> None:
        self._config, self.variables = config, variables
        zeros = [tf.zeros_like(variable) for variable in variables] if config.momentum else []
        self._velocities = [tf.Variable(zero, trainable=False) for zero in zeros]
        self.takes_parts = not (config.momentum or config.clip_norm)  # whether a gradient's terms may come one by one

    def begin(self, velocity: np.ndarray | None = None) -> None:
        """v is 0, or as it was."""
        if velocity is not None:
            networks.assign(self._velocities, velocity)
            return
        for variable in self._velocities:
            variable.assign(tf.zeros_like(variable))

    def velocity(self) -> np.ndarray | None:
        """v as one vector; None without momentum."""
        return flatten([variable.numpy() for variable in self._velocities]) if self._velocities else None

    def gradients(self, tape: tf.GradientTape, loss: tf.Tensor) -> list[tf.Tensor]:
        """The loss' gradients; zeros for variables that it does not depend on."""
        zero = tf.UnconnectedGradients.ZERO
        if self._config.precision != "float16":
            return tape.gradient(loss, self.variables, unconnected_gradients=zero)  # type: ignore[no-any-return]
        scale = tf.constant(LOSS_SCALE)
        scaled = tape.gradient(loss, self.variables, output_gradients=scale, unconnected_gradients=zero)
        return [gradient / LOSS_SCALE for gradient in scaled]

    def descend(self, gradients: Sequence[tf.Tensor], lr: tf.Tensor) -> None:
        """One step."""
        config, momentum = self._config, self._config.momentum
        if config.clip_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, config.clip_norm)
        for velocity, gradient in zip(self._velocities, gradients):
            velocity.assign(momentum * velocity + gradient)
        if config.nesterov:
            gradients = [gradient + momentum * velocity for velocity, gradient in zip(self._velocities, gradients)]
        elif momentum:
            gradients = self._velocities
        for variable, gradient in zip(self.variables, gradients):
            variable.assign_sub(lr * gradient)
