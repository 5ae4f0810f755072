"""Layers whose kernel is the sum of two trainable parts: sigma, learnt from labels, and psi, learnt without."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Union

import tensorflow as tf

keras = tf.keras
Size = Union[int, Sequence[int]]


def hard_threshold(psi: tf.Tensor, threshold: float) -> tf.Tensor:
    """psi with elements of magnitude up to the threshold set to 0."""
    return tf.where(tf.abs(psi) <= threshold, tf.zeros_like(psi), psi)


def default_initializer() -> Any:
    """Variance scaling as in the paper: fan-in, truncated normal, scale 1."""
    return keras.initializers.VarianceScaling(scale=1.0, mode="fan_in", distribution="truncated_normal")


class _Decomposed(keras.layers.Layer):  # type: ignore[name-defined]
    """theta = sigma + psi. Outside training, small elements of psi count as 0. A bias has no psi."""

    def __init__(self, l1_thres: float = 0.0, activation: Any = None, use_bias: bool = False, **kw: Any) -> None:
        super().__init__(**kw)
        if l1_thres < 0:
            raise ValueError(f"expected l1_thres of 0 or greater, received {l1_thres}")
        self.l1_thres = float(l1_thres)
        self.activation, self.use_bias = keras.activations.get(activation), use_bias

    def _add_parts(self, shape: tuple[int, ...]) -> None:
        # In mixed precision, too, the two parts are added up in full: psi is small beside sigma.
        full: dict[str, Any] = {"shape": shape, "trainable": True, "experimental_autocast": False}
        self.sigma = self.add_weight(name="sigma", initializer=default_initializer(), **full)
        self.psi = self.add_weight(name="psi", initializer="zeros", **full)
        self.bias: Any = self.add_weight(name="bias", shape=shape[-1:], initializer="zeros") if self.use_bias else None

    def _activated(self, y: tf.Tensor) -> tf.Tensor:
        return self.activation(y if self.bias is None else y + tf.cast(self.bias, y.dtype))

    def theta(self, training: bool) -> tf.Tensor:
        """The kernel in use."""
        psi = tf.convert_to_tensor(self.psi)
        theta = self.sigma + (psi if training else hard_threshold(psi, self.l1_thres))
        return tf.cast(theta, self.compute_dtype)

    def get_config(self) -> dict[str, Any]:
        """Arguments that make the same layer again."""
        activation = keras.activations.serialize(self.activation)
        own = {"l1_thres": self.l1_thres, "activation": activation, "use_bias": self.use_bias}
        return {**super().get_config(), **own}


@keras.utils.register_keras_serializable("fedmatch_tf")
class DecomposedConv2D(_Decomposed):
    """2D convolution, kernel sigma + psi. Sizes, strides and dilation are whole numbers, or pairs of them."""

    def __init__(
        self,
        filters: int,
        kernel_size: Size,
        strides: Size = 1,
        padding: str = "same",
        dilation_rate: Size = 1,
        **kw: Any,
    ) -> None:
        super().__init__(**kw)
        sizes = {"kernel_size": kernel_size, "strides": strides, "dilation_rate": dilation_rate}
        for name, value in {"filters": filters, **sizes}.items():
            numbers = value if isinstance(value, (list, tuple)) and len(value) == 2 and name in sizes else [value]
            if not all(isinstance(number, int) and number > 0 for number in numbers):
                raise ValueError(f"{name}: expected a whole number greater than 0, received {value!r}")
        if padding not in ("same", "valid"):
            raise ValueError(f"padding: expected same or valid, received {padding!r}")
        self.filters, self.kernel_size, self.strides, self.padding = filters, kernel_size, strides, padding
        self.dilation_rate = dilation_rate

    def build(self, input_shape: Any) -> None:
        """Makes sigma and psi [k, k, channels, filters]."""
        channels = input_shape[-1]
        if len(input_shape) != 4 or channels is None:
            raise ValueError(f"expected images [batch, h, w, channels], received {tuple(input_shape)}")
        size = (self.kernel_size,) * 2 if isinstance(self.kernel_size, int) else tuple(self.kernel_size)
        self._add_parts((*size, int(channels), self.filters))
        super().build(input_shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """[batch, h, w, channels] -> [batch, h', w', filters]."""
        theta, padding = self.theta(training), self.padding.upper()
        return self._activated(tf.nn.conv2d(x, theta, self.strides, padding, dilations=self.dilation_rate))

    def get_config(self) -> dict[str, Any]:
        """Arguments that make the same layer again."""
        names = ("filters", "kernel_size", "strides", "padding", "dilation_rate")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.utils.register_keras_serializable("fedmatch_tf")
class DecomposedDense(_Decomposed):
    """Fully connected layer, kernel sigma + psi."""

    def __init__(self, units: int, **kw: Any) -> None:
        super().__init__(**kw)
        if not isinstance(units, int) or units < 1:
            raise ValueError(f"units: expected a whole number greater than 0, received {units!r}")
        self.units = units

    def build(self, input_shape: Any) -> None:
        """Makes sigma and psi [features, units]."""
        if len(input_shape) != 2 or input_shape[-1] is None:
            raise ValueError(f"expected vectors [batch, features], received {tuple(input_shape)}")
        self._add_parts((int(input_shape[-1]), self.units))
        super().build(input_shape)

    def call(self, x: tf.Tensor, training: bool = False) -> tf.Tensor:
        """[batch, features] -> [batch, units]."""
        return self._activated(tf.matmul(x, self.theta(training)))

    def get_config(self) -> dict[str, Any]:
        """Arguments that make the same layer again."""
        return {**super().get_config(), "units": self.units}
