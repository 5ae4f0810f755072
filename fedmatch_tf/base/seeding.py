"""Independent random streams, one for each use: every draw follows from (seed, purpose, ids)."""

from __future__ import annotations

import zlib

import numpy as np


def stream(seed: int, purpose: str, *ids: int) -> np.random.Generator:
    """The generator for this purpose and these ids (round, client, step, ...)."""
    # The number of ids is part of the name: NumPy takes [.., 0] and [.., 0, 0] for the same seed.
    return np.random.default_rng([seed, zlib.crc32(purpose.encode()), len(ids), *ids])
