"""What became of a task's gradient steps: checked, and added up. No TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from fedmatch_tf.federation.tasks import Losses, TrainingError
from fedmatch_tf.networks.params import Params

if TYPE_CHECKING:
    from fedmatch_tf.learners.learner import Terms

LOWER_LR = "A lower --lr may help"


def losses_of(steps: Sequence[Terms], num_batches: int, where: str) -> Losses:
    """The mean over the batches of every term of their steps.

    Raises TrainingError at the first step whose loss is not a number.
    """
    values = []
    for number, step in enumerate(steps):
        losses = {name: float(value) for name, value in step.losses.items()}
        if not math.isfinite(losses["total"]):
            kind = "supervised" if step.kept is None else "unsupervised"
            raise TrainingError(
                f"expected a finite loss, received {losses['total']} in {where}, step {number} ({kind}). {LOWER_LR}"
            )
        values.append({name: None if math.isnan(value) else value for name, value in losses.items()})
    return mean_losses(values, num_batches)


def mean_losses(losses: Sequence[Losses], count: int) -> Losses:
    """Sums over the count, by term; what is None adds 0, as it did to the loss. So terms always add up to `total`."""
    by_name: dict[str, list[float]] = {}
    for each in losses:
        for name, value in each.items():
            by_name.setdefault(name, []).extend([] if value is None else [value])
    return {name: sum(values) / count if values else None for name, values in by_name.items()}


def count_labels(steps: Sequence[Terms], truths: Sequence[np.ndarray | None]) -> tuple[int, int]:
    """(rows that got a pseudo-label, how many of those are right)."""
    confident = correct = 0
    for step, truth in zip(steps, truths):
        if step.kept is not None and step.labels is not None and truth is not None:
            kept = step.kept.numpy()
            confident += int(kept.sum())
            correct += int((kept & (step.labels.numpy() == truth)).sum())
    return confident, correct


def check_result(params: Params, where: str) -> None:
    """Raises TrainingError if weights are not numbers."""
    if not all(np.isfinite(part).all() for part in params.parts):
        raise TrainingError(f"expected finite weights, received NaN or infinity in {where}. {LOWER_LR}")
