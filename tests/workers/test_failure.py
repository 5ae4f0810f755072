"""What a worker's exception becomes for the user."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from fedmatch_tf.config import ConfigError
from fedmatch_tf.federation.tasks import TrainingError
from fedmatch_tf.workers.failure import Failure


def numpys_own() -> Exception:
    with pytest.raises(MemoryError) as error:
        np.empty(1 << 55, np.uint8)
    return error.value


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("9 GB"),
        tf.errors.ResourceExhaustedError(None, None, "OOM when allocating"),
        numpys_own(),
        RuntimeError("can't start new thread"),
        ImportError("libtensorflow_cc.so.2: failed to map segment from shared object"),
    ],
    ids=["Python", "TensorFlow", "NumPy", "thread", "library"],
)
def test_too_little_memory_is_one_message_with_what_helps(error: Exception) -> None:
    failure = Failure.of(error)
    assert not failure.final  # another client may leave room
    told = failure.error("round 3, client 5")
    assert isinstance(told, TrainingError)
    assert str(told).startswith("round 3, client 5: a worker found too little memory (")
    assert "--clients-per-gpu" in str(told)
    assert "Traceback" not in str(told)
    assert "\n" not in str(told)


def test_a_defect_keeps_its_traceback_and_a_mistake_has_none() -> None:
    try:
        raise ZeroDivisionError("by hand")
    except ZeroDivisionError as error:
        told = Failure.of(error).error("round 1")
    assert "round 1: ZeroDivisionError: by hand\nTraceback" in str(told)
    mistake = Failure.of(ConfigError("--lr: no")).error("round 1")
    assert (type(mistake), str(mistake)) == (ConfigError, "--lr: no")


def test_an_error_that_has_no_text_is_told_by_its_kind() -> None:
    class Rude(RuntimeError):
        def __str__(self) -> str:
            raise ValueError("no text")

    told = Failure.of(Rude()).error("round 1")
    assert str(told).startswith("round 1: Rude:\n")
