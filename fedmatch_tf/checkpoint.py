"""The global model of a run on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from fedmatch_tf.params import Params

NAME = "state.npz"


def save(folder: Path, params: Params, rounds_done: int) -> Path:
    """Writes the global parameters after so many rounds, whole or not at all; returns the file."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary, path = folder / f".{NAME}.partial.npz", folder / NAME
    np.savez(temporary, sigma=params.sigma, psi=params.psi, rounds_done=rounds_done)
    temporary.replace(path)
    return path
