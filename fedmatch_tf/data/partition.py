"""Who holds which example: pure functions of labels, counts and a seed, equal to the original's index for index."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.dealing import KINDS, LEAST_LABELED, PartitionSpec, consecutive, draw_counts, even_sizes, stream

Split = tuple[np.ndarray, np.ndarray, np.ndarray]  # indices of train, test and validation examples


@dataclass(frozen=True)
class Partition:
    """Indices of examples, in the order in which they are stored."""

    test: np.ndarray
    valid: np.ndarray
    labeled: tuple[np.ndarray, ...]  # one per client (lc; empty if it has no labels), or the server's alone (ls)
    unlabeled: tuple[tuple[np.ndarray, ...], ...]  # [client][step]


def make_partition(
    labels: np.ndarray, spec: PartitionSpec, groups: np.ndarray | None = None, num_own_test: int = 0
) -> Partition:
    """Deals examples with these labels (0 .. C-1) to test, validation, server and clients.

    Args:
        groups: examples with the same number are copies of one image and stay on one side of the split.
        num_own_test: so many, the last ones, are the dataset's own test set.
    """
    num_classes = int(labels.max()) + 1
    if spec.test_split == "source":
        train, test, valid = split_as_source(len(labels), spec, groups, num_own_test)
    else:
        check_sizes(len(labels), spec)
        train, test, valid = split(len(labels), spec, groups)
    by_class = [train[labels[train] == label] for label in range(num_classes)]
    counts = labeled_counts(by_class, spec)
    labeled = tuple(shuffle(index, spec) for index in consecutive(by_class, counts))
    rest = [index[used:] for index, used in zip(by_class, counts.sum(axis=0))]
    check_unlabeled(rest, spec)
    dealt = KINDS[spec.kind].deal(rest, spec)
    limit = spec.unlabeled_per_client
    unlabeled = tuple(cut(shuffle(index, spec)[:limit], spec, client) for client, index in enumerate(dealt))
    return Partition(test, valid, labeled, unlabeled)


def labeled_counts(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> np.ndarray:
    """Labelled examples of each class: of every client [clients, classes] (lc), of the server [1, classes] (ls)."""
    if spec.scenario == "ls":
        holders = np.array([0])
    else:
        number = spec.num_clients if spec.labeled_clients is None else spec.labeled_clients
        if not 1 <= number <= spec.num_clients:
            raise DataError(f"--labeled-clients: expected 1 to {spec.num_clients} of the clients, received {number}")
        holders = np.sort(stream(spec, "labelled clients").permutation(spec.num_clients)[:number])
    if spec.labeled_fraction is None:
        totals = np.full(len(by_class), spec.labels_per_class * len(holders))
    else:
        totals = np.array([int(spec.labeled_fraction * len(index) + 1e-9) for index in by_class])
    check_labels(by_class, totals, len(holders), spec)
    if spec.alpha_labeled is None:
        each, rest = totals // len(holders), totals % len(holders)
        turn = (np.arange(len(holders))[:, np.newaxis] + np.arange(len(totals))) % len(holders)
        dealt = each + (turn < rest)  # a remainder goes one by one, beginning with another holder in every class
    else:
        rng = stream(spec, "labelled examples")
        dealt = draw_counts(rng, totals, len(holders), spec.alpha_labeled, LEAST_LABELED, "--alpha-labeled")
    counts = np.zeros((1 if spec.scenario == "ls" else spec.num_clients, len(by_class)), np.int64)
    counts[holders] = dealt
    return counts


def shuffle(index: np.ndarray, spec: PartitionSpec) -> np.ndarray:
    """The indices in the order of Python's generator, seeded anew for every call as the original does."""
    order = list(range(len(index)))
    random.Random(spec.seed).shuffle(order)
    return index[order]


def split(num_examples: int, spec: PartitionSpec, groups: np.ndarray | None) -> Split:
    """(train, test, valid): consecutive runs of the shuffled examples; copies follow the first of them."""
    order = shuffle(np.arange(num_examples), spec)
    sizes = (num_examples - spec.num_test - spec.num_valid, spec.num_test, spec.num_valid)
    if groups is None or len(np.unique(groups)) == num_examples:
        train, test, valid = np.split(order, np.cumsum(sizes)[:2])
        return train, test, valid
    return _split_groups(order, groups, sizes)


def split_as_source(num_examples: int, spec: PartitionSpec, groups: np.ndarray | None, num_test: int) -> Split:
    """The same, but the last examples are the test set, in their own order; their copies elsewhere are left out."""
    if not num_test:
        raise DataError(
            "--test-split: expected a dataset that has a test set of its own (x_test, test batches, a folder test/); "
            "this one has none. Use --test-split pooled, which draws one"
        )
    first, test = np.split(np.arange(num_examples), [num_examples - num_test])
    kept = first if groups is None else first[~np.isin(groups[first], groups[test])]
    check_sizes(len(kept), spec)
    train, none, valid = split(len(kept), spec, None if groups is None else groups[kept])
    assert not len(none)
    return kept[train], test, kept[valid]


def _split_groups(order: np.ndarray, groups: np.ndarray, sizes: Sequence[int]) -> Split:
    """Fills the sides in order; a group that no longer fits one side goes whole to the next that has room."""
    members: dict[int, list[int]] = {}
    for example in order:
        members.setdefault(int(groups[example]), []).append(int(example))
    sides: tuple[list[int], list[int], list[int]] = ([], [], [])
    for group in members.values():
        side = next((side for side, size in zip(sides, sizes) if len(side) + len(group) <= size), None)
        if side is None:
            raise DataError(
                f"expected groups of identical images that fit into {sizes[0]} training, {sizes[1]} test and "
                f"{sizes[2]} validation examples without being split; {len(group)} copies of one image do not. "
                f"Remove copies, or change --num-test or --num-valid"
            )
        side.extend(group)
    train, test, valid = (np.array(side, np.int64) for side in sides)
    return train, test, valid


def cut(index: np.ndarray, spec: PartitionSpec, client: int) -> tuple[np.ndarray, ...]:
    """`num_steps` equal consecutive parts; what doesn't divide is left out."""
    size = len(index) // spec.num_steps
    if size == 0:
        raise DataError(
            f"expected at least one unlabelled example for each of {spec.num_steps} steps of client {client}, which "
            f"was dealt {len(index)}. Use fewer --num-clients (now {spec.num_clients}), --num-steps or "
            f"--labels-per-class"
        )
    return tuple(index[step * size : (step + 1) * size] for step in range(spec.num_steps))


def check_sizes(num_examples: int, spec: PartitionSpec) -> None:
    """Raises unless something is left to train on."""
    left = num_examples - spec.num_test - spec.num_valid
    if left <= 0:
        raise DataError(
            f"expected examples left for training: {num_examples} examples - {spec.num_test} test - {spec.num_valid} "
            f"validation = {left}. Use smaller --num-test and --num-valid"
        )


def check_labels(by_class: Sequence[np.ndarray], totals: np.ndarray, holders: int, spec: PartitionSpec) -> None:
    """Raises unless every class has the labelled examples that are asked for, and everyone gets some of them."""
    if spec.labeled_fraction is not None:
        least = 1 if spec.alpha_labeled is not None else holders
        few = [label for label, total in enumerate(totals) if total < least]
        if few:
            raise DataError(
                f"--labeled-fraction: expected at least {least} labelled examples of every class, one for each of "
                f"{holders} who hold labels; {spec.labeled_fraction:g} x {len(by_class[few[0]])} of class {few[0]} are "
                f"{totals[few[0]]}. Use a larger share, or fewer clients"
            )
        return
    need = spec.labels_per_class * holders
    short = [f"class {label} has {len(index)}" for label, index in enumerate(by_class) if len(index) < need]
    if short:
        whose = f"{holders} clients x " if spec.scenario == "lc" else ""
        raise DataError(
            f"expected {whose}{spec.labels_per_class} labels = {need} training examples of every class; "
            f"{', '.join(short[:5])}{', ...' if len(short) > 5 else ''}. Use fewer --labels-per-class or --num-clients"
        )


def check_unlabeled(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> None:
    """Raises unless every client can get an unlabelled example for each step."""
    total, kind = sum(len(index) for index in by_class), KINDS[spec.kind]
    if kind.is_even:
        total = spec.num_clients * sum(even_sizes(by_class, spec))
    least = kind.least
    need = spec.num_clients * spec.num_steps * least
    if total < need:
        how = " that divide evenly by class" if kind.is_even else ""
        limit = spec.unlabeled_per_client
        limited = "" if limit is None else f" and with --unlabeled-per-client {limit}"
        raise DataError(
            f"expected at least {spec.num_clients} clients x {spec.num_steps} steps"
            f"{f' x {least}' if least > 1 else ''} = {need} unlabelled examples{how}; "
            f"{total} remain after {spec.num_test} test, {spec.num_valid} validation and the labelled ones{limited}. "
            f"Use fewer clients, fewer --labels-per-class, "
            f"{'' if limit is None else 'a larger --unlabeled-per-client, '}or smaller --num-test and --num-valid"
        )
