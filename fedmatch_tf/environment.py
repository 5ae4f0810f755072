"""What must be set before TensorFlow is imported."""

from __future__ import annotations

import os


def set_variables() -> None:
    """Fast convolutions and quiet logs, unless the user has set them; before anything imports TensorFlow."""
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # off by default on AMD, where it is the faster choice
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def prepare(threads: int | None = None) -> None:
    """TensorFlow with this number of threads; its own choice if None."""
    set_variables()
    import tensorflow as tf

    if threads is not None:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
