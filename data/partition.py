"""Who holds which example: pure functions of labels, counts and a seed, equal to the original's index for index."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.errors import DataError

# Class shares of a client of type 0 for ten classes; type k is this rotated right by k.
TEN_CLASS_SHARES = (0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15)


@dataclass(frozen=True)
class PartitionSpec:
    """What decides a partition, besides the images."""

    scenario: str  # lc or ls
    kind: str  # biid, bimb or simb
    dataset: str  # c10, fmnist, covid, digits or own
    num_clients: int
    labels_per_class: int  # of each client (lc), of the server (ls)
    num_test: int
    num_valid: int
    num_steps: int  # streaming parts per client; 1 for batch tasks
    image_size: int
    seed: int
    unlabeled_per_client: int | None = None  # at most; None: as many as there are

    @property
    def task(self) -> str:
        """The task's name, which is also its folder's."""
        return f"{self.scenario}-{self.kind}-{self.dataset}"


Split = tuple[np.ndarray, np.ndarray, np.ndarray]  # indices of train, test and validation examples


@dataclass(frozen=True)
class Partition:
    """Indices of examples, in the order in which they are stored."""

    test: np.ndarray
    valid: np.ndarray
    labeled: tuple[np.ndarray, ...]  # one per client (lc), or the server's alone (ls)
    unlabeled: tuple[tuple[np.ndarray, ...], ...]  # [client][step]


def make_partition(labels: np.ndarray, spec: PartitionSpec, groups: np.ndarray | None = None) -> Partition:
    """Deals examples with these labels (0 .. C-1) to test, validation, server and clients.

    Args:
        groups: examples with the same number are copies of one image and stay on one side of the split.
    """
    num_classes = int(labels.max()) + 1
    check_sizes(len(labels), spec)
    train, test, valid = split(len(labels), spec, groups)
    by_class = [train[labels[train] == label] for label in range(num_classes)]
    holders = spec.num_clients if spec.scenario == "lc" else 1
    check_labels(by_class, spec, holders)

    size = spec.labels_per_class
    labeled = tuple(
        shuffle(np.concatenate([index[c * size : (c + 1) * size] for index in by_class]), spec) for c in range(holders)
    )
    rest = [index[size * holders :] for index in by_class]
    check_unlabeled(rest, spec)
    deal = deal_evenly if spec.kind == "biid" else deal_imbalanced
    dealt = deal(rest, spec)
    unlabeled = tuple(cut(shuffle(index, spec), spec, client) for client, index in enumerate(dealt))
    return Partition(test, valid, labeled, unlabeled)


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


def deal_evenly(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[np.ndarray]:
    """Client c gets the c-th equal slice of every class; what doesn't divide is left out."""
    sizes = _even_sizes(by_class, spec)
    return [
        np.concatenate([index[c * size : (c + 1) * size] for index, size in zip(by_class, sizes)])
        for c in range(spec.num_clients)
    ]


def _even_sizes(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[int]:
    """How many examples of each class a client gets."""
    sizes = [len(index) // spec.num_clients for index in by_class]
    if spec.unlabeled_per_client is None:
        return sizes
    return [min(size, spec.unlabeled_per_client // len(by_class)) for size in sizes]


def deal_imbalanced(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[np.ndarray]:
    """Clients, one after the other, draw classes from their own distribution; an empty class gives nothing."""
    wanted = sum(len(index) for index in by_class) // spec.num_clients
    if spec.unlabeled_per_client is not None:
        wanted = min(wanted, spec.unlabeled_per_client)
    num_classes = len(by_class)
    draw = np.random.RandomState(spec.seed)  # the original draws from this legacy generator
    used = np.zeros(num_classes, np.int64)
    dealt = []
    for client in range(spec.num_clients):
        classes = draw.choice(np.arange(num_classes), wanted, p=class_shares(num_classes, client))
        counts = np.bincount(classes, minlength=num_classes)
        dealt.append(np.concatenate([index[a : a + n] for index, a, n in zip(by_class, used, counts)]))
        used += counts
    return dealt


def class_shares(num_classes: int, client: int) -> np.ndarray:
    """The client's class distribution: one main class, its two neighbours, and the rest.

    Ten classes: the original's table. Any other number keeps its shape: 0.5 for the main class, 0.15 for each of its
    neighbours (the classes form a ring), the remaining 0.2 spread evenly. With three classes or fewer there is no rest,
    and the shares are scaled to add up to 1.
    """
    if num_classes == len(TEN_CLASS_SHARES):
        shares = np.array(TEN_CLASS_SHARES)
    else:
        shares = np.zeros(num_classes)
        shares[0] += 0.5
        if num_classes > 1:
            shares[1] += 0.15
            shares[-1] += 0.15
        if num_classes > 3:
            shares[2:-1] = 0.2 / (num_classes - 3)
        shares /= shares.sum()
    return np.roll(shares, client % num_classes)


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


def check_labels(by_class: Sequence[np.ndarray], spec: PartitionSpec, holders: int) -> None:
    """Raises unless every class has the labelled examples that are asked for."""
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
    total = sum(len(index) for index in by_class)
    if spec.kind == "biid":
        total = spec.num_clients * sum(_even_sizes(by_class, spec))
    need = spec.num_clients * spec.num_steps
    if total < need:
        how = " that divide evenly by class" if spec.kind == "biid" else ""
        limit = spec.unlabeled_per_client
        limited = "" if limit is None else f" and with --unlabeled-per-client {limit}"
        raise DataError(
            f"expected at least {spec.num_clients} clients x {spec.num_steps} steps = {need} unlabelled examples{how}; "
            f"{total} remain after {spec.num_test} test, {spec.num_valid} validation and the labelled ones{limited}. "
            f"Use fewer clients, fewer --labels-per-class, "
            f"{'' if limit is None else 'a larger --unlabeled-per-client, '}or smaller --num-test and --num-valid"
        )
