"""What became of a task's gradient steps, checked and added up; and the server's epoch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmatch_tf.base import seeding
from fedmatch_tf.config import Config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.federation.tasks import Losses, ServerResult, ServerTask, TrainingError
from fedmatch_tf.learners.batches import all_slices, share_done
from fedmatch_tf.learners.learner import ABSENT, Learner, Terms
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.params import Params

LOWER_LR = "A lower --lr may help"


def train_epoch(config: Config, model: Any, learner: Learner, labeled: Examples, task: ServerTask) -> ServerResult:
    """The server's epoch on its labelled set: a supervised step on sigma for every minibatch (algorithm 2)."""
    networks.write(model, task.params)
    learner.sgd.begin(task.velocity)
    done, lr = share_done(config, task.round_num, task.epoch / config.num_epochs_server), np.float32(task.lr)
    labeled = weak_view(config, "weak, the server's", labeled, (task.round_num, task.epoch))
    rows = all_slices(len(labeled), config.batch_size_server)  # lines 5 to 7
    steps = [learner.server_step(labeled.x[part], labeled.y[part], done, lr) for part in rows]
    losses = losses_of(steps, len(steps), str(task))
    return ServerResult(checked(networks.read(model), str(task)), losses, learner.sgd.velocity())


def weak_view(config: Config, purpose: str, examples: Examples, ids: Sequence[int]) -> Examples:
    """The examples as an epoch sees them: with --weak each image's weak view, drawn for this purpose and these ids."""
    if config.weak == "none":
        return examples
    seed = seeding.stream(config.seed, purpose, *ids).integers(0, 2**31 - 1, 2, np.int32)
    from fedmatch_tf.data import augment  # loads TensorFlow

    return Examples(augment.flip_crop(examples.x, seed).numpy(), examples.y)


def checked(params: Params, where: str) -> Params:
    """The same. Raises TrainingError if weights are not numbers."""
    if not all(np.isfinite(part).all() for part in params.parts):
        raise TrainingError(f"expected finite weights, received NaN or infinity in {where}. {LOWER_LR}")
    return params


def losses_of(steps: Sequence[Terms], num_batches: int, where: str) -> Losses:
    """The mean over the batches of every term of their steps.

    Raises TrainingError at the first step whose loss is not a number.
    """
    losses = []
    for number, step in enumerate(steps):
        terms = {name: float(value) for name, value in step.losses.items()}
        if not math.isfinite(terms["total"]):
            kind = "supervised" if step.kept is None else "unsupervised"
            raise TrainingError(
                f"expected a finite loss, received {terms['total']} in {where}, step {number} ({kind}). {LOWER_LR}"
            )
        if len(terms) > 1:  # added up here: in which order TensorFlow does is not the same in every trace
            terms["total"] = sum(value for name, value in terms.items() if name != "total" and not math.isnan(value))
        values = [terms.get(name, ABSENT) for name in Losses._fields]
        losses.append(Losses(*(None if math.isnan(value) else value for value in values)))
    return mean_losses(losses, num_batches)


def mean_losses(losses: Sequence[Losses], count: int) -> Losses:
    """Sums over the count, by term; what is None adds 0, as it did to the loss. So terms always add up to `total`."""
    by_term = [[value for value in values if value is not None] for values in zip(*losses)]
    return Losses(*(sum(values) / count if values else None for values in by_term))


def count_labels(steps: Sequence[Terms], truths: Sequence[np.ndarray | None]) -> tuple[int, int]:
    """(rows that got a pseudo-label, how many of those are right)."""
    confident = correct = 0
    for step, truth in zip(steps, truths):
        if step.kept is not None and step.labels is not None and truth is not None:
            kept = step.kept.numpy()
            confident += int(kept.sum())
            correct += int((kept & (step.labels.numpy() == truth)).sum())
    return confident, correct
