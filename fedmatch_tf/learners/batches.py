"""A client's round cut into batches: which rows make each, and what a step has at hand. No TensorFlow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

import numpy as np

from fedmatch_tf.base import seeding

if TYPE_CHECKING:
    from fedmatch_tf.config import Config
    from fedmatch_tf.data.files import Examples
    from fedmatch_tf.data.loader import ClientData

WITHOUT_LABELS = 100  # unlabelled examples in a batch of a client that has no labels though others do
UNEVEN = 500  # unlabelled examples in a batch at most, where labels are dealt by a Dirichlet distribution


class View(NamedTuple):
    """A client's images as an epoch sees them: as they are, or their weak views, drawn for each epoch."""

    data: ClientData
    helper_probs: np.ndarray  # float32 [helpers, unlabelled examples, classes]: frozen predictions of helpers
    extra: tuple[np.ndarray, ...] = ()  # what a learner knows of each unlabelled example, for `Batch.extra`


class ClientRound(NamedTuple):
    """What a learner makes a client's batches of."""

    round_num: int
    client: int
    lr: float
    views: Sequence[View]  # of each epoch in turn, or one for all
    predict: Callable[[np.ndarray], np.ndarray]  # uint8 images -> probabilities [n, classes] of the received model

    @property
    def data(self) -> ClientData:
        """What the first epoch sees."""
        return self.views[0].data


class Batch(NamedTuple):
    """What one step of a client has at hand; images are uint8 [n, h, w, c], targets float32 one-hot [n, classes].

    With --weak the images are their weak views, which the strong view is made of.
    """

    x_labeled: np.ndarray | None  # None in labels-at-server, or when they are used up
    y_labeled: np.ndarray | None
    x_unlabeled: np.ndarray | None  # None when they are used up
    y_unlabeled: np.ndarray | None  # the truth: only full supervision may look
    rows: slice | None  # of the unlabelled examples
    helper_probs: np.ndarray  # float32 [helpers, n, classes]: of rows
    seed: np.ndarray  # int32 [2], for augmentation
    rng: np.random.Generator  # of this step, for whatever else is drawn
    share_done: np.float32  # share of the whole training that is done, from 0 to 1
    lr: np.float32
    extra: tuple[Any, ...] = ()  # what only its learner knows: `extra` of the view, or what the learner puts here


class Minibatches(NamedTuple):
    """A client's round, cut into batches."""

    num_batches: int  # in all local epochs
    num_unlabeled: int  # unlabelled examples that the learner looked at, in all local epochs
    batches: Iterable[Batch]


Cut = tuple["slice | None", "slice | None"]  # rows of the labelled and unlabelled examples


def minibatches(config: Config, given: ClientRound, cuts: Sequence[Cut] | None = None) -> Minibatches:
    """The batches of all local epochs (algorithm 1, lines 15 and 16; 2, lines 19 and 20).

    Args:
        cuts: of one epoch, if they are not `cut`'s.
    """
    cuts = cut(config, given.data) if cuts is None else cuts
    epochs, num_unlabeled = config.num_epochs_client, sum(len(given.data.unlabeled.y[rows]) for _, rows in cuts if rows)
    return Minibatches(epochs * len(cuts), epochs * num_unlabeled, _batches(config, given, cuts))


def _batches(config: Config, given: ClientRound, cuts: Sequence[Cut]) -> Iterator[Batch]:
    for epoch in range(config.num_epochs_client):
        data, helper_probs, extra = given.views[epoch % len(given.views)]
        for step, (labeled, unlabeled) in enumerate(cuts):
            rng = seeding.stream(config.seed, "augment", given.round_num, given.client, epoch, step)
            of_round = (epoch * len(cuts) + step) / (config.num_epochs_client * len(cuts))
            yield Batch(
                *_rows(data.labeled, labeled),
                *_rows(data.unlabeled, unlabeled),
                rows=unlabeled,
                helper_probs=helper_probs[:, unlabeled or slice(0, 0)],
                seed=rng.integers(0, 2**31 - 1, 2, np.int32),
                rng=rng,
                share_done=share_done(config, given.round_num, of_round),
                lr=np.float32(given.lr),
                extra=() if unlabeled is None else tuple(part[unlabeled] for part in extra),
            )


def _rows(examples: Examples | None, rows: slice | None) -> tuple[np.ndarray | None, np.ndarray | None]:
    if examples is None or rows is None:
        return None, None
    return examples.x[rows], examples.y[rows]


def cut(config: Config, data: ClientData) -> list[Cut]:
    """Rows of the labelled (labels-at-client) and unlabelled batch of every step: consecutive slices, no shuffling.

    Labels-at-client: as many steps as there are labelled batches, over which the unlabelled examples are spread.
    When they are used up, the remaining steps have None. Clients without labels: unlabelled batches of a fixed size.
    --alpha-labeled may leave a client one labelled batch beside thousands of unlabelled examples. There a batch has a
    bound, and when the labels are used up, the remaining steps have None of them.

    With --epoch-of unlabeled, as many steps as there are unlabelled batches, for which labelled ones begin anew.
    """
    if data.labeled is None:
        usual = config.batch_size_client if config.scenario == "ls" else WITHOUT_LABELS
        return [(None, rows) for rows in slices(len(data.unlabeled), config.batch_size_unlabeled or usual)]
    labeled = slices(len(data.labeled), config.batch_size_client)
    if config.epoch_of == "unlabeled":
        batches = all_slices(len(data.unlabeled), config.batch_size_unlabeled or UNEVEN)
        return [(labeled[step % len(labeled)], rows) for step, rows in enumerate(batches)]
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
