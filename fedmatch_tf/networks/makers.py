"""What networks are made of: layers, decomposed or plain, so that one function says both networks."""

from __future__ import annotations

from typing import Any, Callable

from fedmatch_tf.base.quiet import tf

Maker = Callable[..., Any]
GROUPS = 8  # of a group normalisation; every width of ours is a multiple of it


def makers(decomposed: bool, l1_thres: float) -> tuple[Maker, Maker]:
    """(conv, dense), of kernels that are sigma + psi or plain."""
    from fedmatch_tf.networks import layers  # loads TensorFlow

    def plain(more: dict[str, Any]) -> dict[str, Any]:
        return {"use_bias": False, "kernel_initializer": layers.default_initializer(), **more}

    def conv(
        filters: int, size: Any, padding: str = "same", strides: Any = 1, activation: Any = "relu", **more: Any
    ) -> Any:
        given, more = (filters, size, strides, padding), {"activation": activation, **more}
        if decomposed:
            return layers.DecomposedConv2D(*given, l1_thres=l1_thres, **more)
        return _ours(tf.keras.layers.Conv2D(*given, **plain(more)))

    def dense(units: int, activation: Any = None, **more: Any) -> Any:
        more = {"activation": activation, **more}
        if decomposed:
            return layers.DecomposedDense(units, l1_thres=l1_thres, **more)
        return _ours(tf.keras.layers.Dense(units, **plain(more)))

    return conv, dense


def _ours(layer: Any) -> Any:
    """Marks a plain layer as one that stands for a decomposed one; the mark is not part of a saved model."""
    layer.stands_for_decomposed = True
    return layer


def is_ours(layer: Any) -> bool:
    """Whether conv or dense made it."""
    return hasattr(layer, "psi") or hasattr(layer, "stands_for_decomposed")


def group_norm() -> Any:
    """A layer that normalises groups of channels, which knows nothing of other images, as batch norm does."""
    return tf.keras.layers.GroupNormalization(GROUPS)


def normalised(x: Any) -> Any:
    """Group norm, then ReLU."""
    return tf.keras.layers.ReLU()(group_norm()(x))
