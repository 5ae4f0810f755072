"""Which rows make a batch, and what every step's outcome must satisfy. No TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from fedmatch_tf.config import Config
from fedmatch_tf.data.loader import ClientData
from fedmatch_tf.federation.tasks import Step, TrainingError
from fedmatch_tf.networks.params import Params

WITHOUT_LABELS = 100  # unlabelled examples in a batch of a client that has no labels though others do
UNEVEN = 500  # unlabelled examples in a batch at most, where labels are dealt by a Dirichlet distribution
LOWER_LR = "A lower --lr may help"


def batches(config: Config, data: ClientData, chosen: bool = False) -> list[tuple[slice | None, slice | None]]:
    """Rows of the labelled (labels-at-client) and unlabelled batch of every step: consecutive slices, no shuffling.

    Labels-at-client: as many steps as there are labelled batches, over which the unlabelled examples are spread.
    When they are used up, the remaining steps have None. Clients without labels: unlabelled batches of a fixed size.
    --alpha-labeled may leave a client one labelled batch beside thousands of unlabelled examples. There a batch has a
    bound, and when the labels are used up, the remaining steps have None of them.

    Args:
        chosen: the unlabelled examples are those that the learner chose, so each of them is in a batch.
    """
    if data.labeled is None:
        usual = config.batch_size_client if config.scenario == "ls" else WITHOUT_LABELS
        size = config.batch_size_unlabeled or usual
        return [(None, rows) for rows in (all_slices if chosen else slices)(len(data.unlabeled), size)]
    labeled = slices(len(data.labeled), config.batch_size_client)
    size = config.batch_size_unlabeled or math.ceil(len(data.unlabeled) / len(labeled))
    if config.batch_size_unlabeled is None and config.alpha_labeled is not None and size > UNEVEN:
        return list(zip_longest(labeled, all_slices(len(data.unlabeled), UNEVEN)))
    begins = [step * size for step in range(len(labeled))]
    unlabeled = [slice(begin, begin + size) if begin < len(data.unlabeled) else None for begin in begins]
    return list(zip(labeled, unlabeled))


def slices(num_examples: int, batch_size: int) -> list[slice]:
    """round(num_examples / batch_size) consecutive slices, at least one of any examples; what is beyond is left out."""
    steps = max(min(1, num_examples), round(num_examples / batch_size))
    return [slice(step * batch_size, (step + 1) * batch_size) for step in range(steps)]


def all_slices(num_examples: int, batch_size: int) -> list[slice]:
    """Consecutive slices of all examples; the last one may be smaller."""
    return [slice(begin, min(begin + batch_size, num_examples)) for begin in range(0, num_examples, batch_size)]


def share_done(config: Config, round_num: int, of_round: float) -> np.float32:
    """The share of the whole training that is done, when `of_round` of this round is."""
    return np.float32((round_num + of_round) / config.num_rounds)


def check_finite(steps: Sequence[Step], where: str) -> None:
    """Raises TrainingError at the first step whose loss is not a number."""
    for number, step in enumerate(steps):
        if not math.isfinite(step.loss):
            kind = "supervised" if step.kind == "s" else "unsupervised"
            raise TrainingError(
                f"expected a finite loss, received {step.loss} in {where}, step {number} ({kind}). {LOWER_LR}"
            )


def check_result(params: Params, where: str) -> None:
    """Raises TrainingError if weights are not numbers."""
    if not all(np.isfinite(part).all() for part in params):
        raise TrainingError(f"expected finite weights, received NaN or infinity in {where}. {LOWER_LR}")
