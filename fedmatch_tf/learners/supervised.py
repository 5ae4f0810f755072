"""SL, the upper bound: all data with their true labels, those included that other learners see without labels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Callable

import numpy as np

from fedmatch_tf.base.plugins import LearnerEntry
from fedmatch_tf.learners.batches import Batch
from fedmatch_tf.learners.joint import JointLearner
from fedmatch_tf.learners.learner import Terms


class Supervised(JointLearner):
    """lambda_s times the mean cross-entropy over the labelled and the unlabelled batch together."""

    def client_steps(self, batch: Batch) -> Sequence[Callable[[], Terms]]:
        """One step on all images at hand."""
        x = [part for part in (batch.x_labeled, batch.x_unlabeled) if part is not None]
        y = [part for part in (batch.y_labeled, batch.y_unlabeled) if part is not None]
        return [partial(self._labeled_step, batch.lr, (np.concatenate(x), np.concatenate(y), batch.share_done))]


ENTRY = LearnerEntry("sl", Supervised, uses_true_labels=True, depends_on_end=False, passes=1.0, place=1)
