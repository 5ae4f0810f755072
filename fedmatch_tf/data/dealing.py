"""How unlabelled examples are dealt to clients: evenly, by the original's imbalance, by Dirichlet, by classes."""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional

import numpy as np

from fedmatch_tf.base.errors import DataError

# Class shares of a client of type 0 for ten classes; type k is this rotated right by k.
TEN_CLASS_SHARES = (0.50, 0.15, 0.03, 0.03, 0.03, 0.02, 0.03, 0.03, 0.03, 0.15)


@dataclass(frozen=True)
class PartitionSpec:
    """What decides a partition, besides the images."""

    scenario: str  # lc or ls
    kind: str  # one of KINDS
    dataset: str  # a file of `datasets/`
    num_clients: int
    labels_per_class: int  # of each client (lc), of the server (ls)
    num_test: int
    num_valid: int
    num_steps: int  # streaming parts per client; 1 for batch tasks
    image_size: int
    seed: int
    unlabeled_per_client: Optional[int] = None  # at most; None: as many as there are
    alpha: Optional[float] = None  # bdir: concentration of each class over the clients
    alpha_labeled: Optional[float] = None  # the same for labelled examples; None: as many of each class for everyone
    classes_per_client: Optional[int] = None  # bshard
    labeled_fraction: Optional[float] = None  # share of each class that is labelled, instead of labels_per_class
    labeled_clients: Optional[int] = None  # lc: so many clients have labels; None: all
    test_split: Optional[str] = None  # "source": the dataset's own test set; None: drawn from all its examples

    @property
    def task(self) -> str:
        """The task's name, which is also its folder's."""
        return f"{self.scenario}-{self.kind}-{self.dataset}"


def deal_evenly(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[np.ndarray]:
    """Client c gets the c-th equal slice of every class; what doesn't divide is left out."""
    sizes = even_sizes(by_class, spec)
    return [
        np.concatenate([index[c * size : (c + 1) * size] for index, size in zip(by_class, sizes)])
        for c in range(spec.num_clients)
    ]


def even_sizes(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[int]:
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


LEAST = 10  # unlabelled examples that a client of `bdir` gets: one batch of the smallest size in use
LEAST_LABELED = 1
MAX_DRAWS = 2000


def deal_dirichlet(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[np.ndarray]:
    """Each class is cut by shares over the clients that are drawn from a Dirichlet distribution."""
    totals = np.array([len(index) for index in by_class])
    assert spec.alpha is not None
    counts = draw_counts(stream(spec, "unlabelled examples"), totals, spec.num_clients, spec.alpha, LEAST, "--alpha")
    return list(consecutive(by_class, counts))


def draw_counts(
    rng: np.random.Generator, totals: np.ndarray, holders: int, alpha: float, least: int, flag: str
) -> np.ndarray:
    """Examples [holders, classes] that add up to the totals [classes]; redrawn until every holder has the least.

    For each class, shares ~ Dirichlet(alpha, ..., alpha), the same for everyone, so holders differ by chance alone.
    """
    for _ in range(MAX_DRAWS):
        shares = rng.dirichlet(np.full(holders, alpha), len(totals))  # [classes, holders]
        cuts = np.rint(np.nan_to_num(shares).cumsum(axis=1) * totals[:, np.newaxis]).astype(np.int64)
        cuts[:, -1] = totals
        counts = np.diff(cuts, axis=1, prepend=0).T
        if counts.sum(axis=1).min() >= least and counts.min() >= 0:
            return counts
    raise DataError(
        f"{flag}: {MAX_DRAWS} draws with {alpha:g} left somebody with fewer than {least} of {totals.sum()} examples: "
        f"{holders} clients have {totals.sum() / holders:.0f} each on average. Use a larger {flag}, or fewer clients"
    )


def deal_shards(by_class: Sequence[np.ndarray], spec: PartitionSpec) -> list[np.ndarray]:
    """A client holds a few classes only; the holders of a class share it evenly. What doesn't divide is left out."""
    number = spec.classes_per_client
    assert number is not None
    if number > len(by_class):
        raise DataError(f"--classes-per-client: expected at most the {len(by_class)} classes, received {number}")
    chosen = choose_classes(stream(spec, "classes of clients"), len(by_class), spec.num_clients, number)
    holders = np.bincount(chosen.ravel(), minlength=len(by_class))
    sizes = [len(index) // max(held, 1) for index, held in zip(by_class, holders)]
    counts = np.zeros((spec.num_clients, len(by_class)), np.int64)
    for client, classes in enumerate(chosen):
        counts[client, classes] = [sizes[label] for label in classes]
    return list(consecutive(by_class, counts))


def choose_classes(rng: np.random.Generator, num_classes: int, num_clients: int, number: int) -> np.ndarray:
    """Different classes of each client [clients, number]; all classes have equally many clients, give or take one.

    Clients take what is left of a random order of all classes, then go on with a new one; who has the next class
    already takes the one behind it.
    """
    chosen, left = [], list[int]()
    for _ in range(num_clients):
        own = left[:number]
        left = left[number:]
        if len(own) < number:
            order = rng.permutation(num_classes).tolist()
            more = [label for label in order if label not in own][: number - len(own)]
            own, left = own + more, [label for label in order if label not in more]
        chosen.append(own)
    return np.array(chosen)


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


def consecutive(by_class: Sequence[np.ndarray], counts: np.ndarray) -> Iterator[np.ndarray]:
    """For each row of counts [holders, classes], the next examples of every class, class after class."""
    ends = counts.cumsum(axis=0)
    for begin, end in zip(ends - counts, ends):
        yield np.concatenate([index[a:b] for index, a, b in zip(by_class, begin, end)])


def stream(spec: PartitionSpec, purpose: str) -> np.random.Generator:
    """The random stream of this use."""
    return np.random.default_rng([spec.seed, zlib.crc32(purpose.encode())])


@dataclass(frozen=True)
class Kind:
    """A way of dealing, the middle of a task's name."""

    deal: Callable[[Sequence[np.ndarray], PartitionSpec], list[np.ndarray]]  # of each class -> of each client
    is_even: bool = False  # every client gets equally many of a class, and what doesn't divide is left out
    streams: bool = False  # a client's examples arrive in steps
    least: int = 1  # examples that a client gets for each step
    reads: frozenset[str] = frozenset()  # of the settings that not every kind looks at
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of settings, whatever the dataset


TEN_STEPS = {"num_clients": 10, "num_rounds": 100, "num_steps": 10}  # of 10 rounds
KINDS = {
    "biid": Kind(deal_evenly, is_even=True),
    "bimb": Kind(deal_imbalanced),
    "bdir": Kind(deal_dirichlet, least=LEAST, reads=frozenset({"alpha"})),
    "bshard": Kind(deal_shards, reads=frozenset({"classes_per_client"})),
    "simb": Kind(deal_imbalanced, streams=True, defaults=TEN_STEPS),
}
