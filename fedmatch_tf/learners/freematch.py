"""FreeMatch's thresholds (Wang et al. 2023): the model's own confidence, and less for classes that it rarely predicts.

A row counts if max p(u) >= T(argmax p(u)), where with means over the unlabelled images of the client

    tau = mean max_c p(u, c),   q(c) = mean p(u, c),   T(c) = tau q(c) / max_k q(k)

FreeMatch takes moving averages over all batches of the training, with a momentum of 0.999. A client here keeps nothing
between rounds: the means are over all of its images as the received model predicts them (with --weak the first epoch's
weak views), and T stays for the round. FreeMatch's fairness loss is not here.
"""

from __future__ import annotations

import numpy as np

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.learners.flexmatch import FlexMatch
from fedmatch_tf.learners.joint import PSEUDO_LABELS


class FreeMatch(FlexMatch):
    """L_u: FixMatch's, with the threshold of the row's class."""

    def thresholds(self, probs: np.ndarray) -> np.ndarray:
        """T(c), [classes], from the received model's predictions [n, classes]."""
        mean = probs.mean(axis=0, dtype=np.float64)
        result: np.ndarray = probs.max(axis=1).mean(dtype=np.float64) * mean / mean.max()
        return result


ENTRY = LearnerEntry(
    "freematch",
    FreeMatch,
    reads=PSEUDO_LABELS - {"confidence"},
    depends_on_end=False,
    passes=1.7,
    place=7,
)
