"""TensorFlow, loaded when it is first used, and without its remarks on the machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

__all__ = ["load_tensorflow", "no_stderr", "set_variables", "tf"]


def set_variables() -> None:
    """Fast convolutions and quiet logs, unless the user has set them; before anything imports TensorFlow."""
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # off by default on AMD, where it is the faster choice
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@contextmanager
def no_stderr() -> Iterator[None]:
    """What compiled libraries write there meanwhile, past Python, is lost."""
    sys.stderr.flush()
    saved, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
        os.close(nowhere)


def load_tensorflow() -> Any:
    """TensorFlow; the current one remarks on the machine while it is loaded, whatever it is told."""
    set_variables()
    quiet = os.environ["TF_CPP_MIN_LOG_LEVEL"] in ("2", "3") and "tensorflow" not in sys.modules
    with no_stderr() if quiet else nullcontext():
        import tensorflow as tf
    return tf


class _WhenUsed:
    """Stands for TensorFlow in modules that settings look at, so that these are imported in no time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(load_tensorflow(), name)


if TYPE_CHECKING:
    import tensorflow as tf
else:
    tf = _WhenUsed()
