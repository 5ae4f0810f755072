"""What is added as one file: its entry, found by listing the folder that the file is in.

Settings are checked by entries, so a file with one loads no TensorFlow when it is imported (`tf` of `base/quiet.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Callable, TypeVar

LAST = 99  # place in lists; entries of one place stand by name
T = TypeVar("T")


def entries(package: str, kind: type[T], leave_out: Sequence[str] = ()) -> dict[str, T]:
    """Name -> entry of that type, of all modules in the package but those left out."""
    found: dict[str, Any] = {}
    for module in iter_modules(import_module(package).__path__):
        if module.name in leave_out:
            continue
        values = vars(import_module(f"{package}.{module.name}")).values()
        for value in filter(lambda value: isinstance(value, kind), values):
            if found.setdefault(value.name, value) is not value:
                raise ValueError(f"{package}.{module.name}: expected an entry with a name of its own, received {value}")
    return {entry.name: entry for entry in sorted(found.values(), key=lambda entry: (entry.place, entry.name))}


@dataclass(frozen=True)
class NetworkEntry:
    """A network."""

    name: str
    build: Callable[..., Any]  # (image, classes, conv, dense) -> scores before softmax
    smallest: int = 1  # image: what is left after the last pooling is at least one pixel
    gflop: float | None = None  # forward, one image of 32x32x3; None: not known, so estimates of time leave it out
    rate: float = 600.0  # GFLOP per second that rounds reach on two cores of an AMD EPYC (Zen 5)
    place: int = LAST


@dataclass(frozen=True)
class LearnerEntry:
    """The gradient steps of a client or server on one model."""

    name: str
    make: Callable[..., Any]  # (config, model, augment, proximal_weight) -> Learner
    reads: frozenset[str] = frozenset()  # of the settings that not every learner looks at
    defaults: Mapping[str, Any] = field(default_factory=dict)  # that differ from the profile's
    uses_true_labels: bool = False  # of the images that other learners see without labels
    needs_global_model: bool = False  # its labels are the received model's
    depends_on_end: bool = True  # its loss may look at the share of all rounds that is done
    passes: float = 1.5  # training passes per unlabelled image, for estimates of time; 0: it looks at none
    place: int = LAST


@dataclass(frozen=True)
class AlgorithmEntry:
    """A federated algorithm: what crosses, what is averaged, what is remembered."""

    name: str
    make: Callable[..., Any]  # (config) -> Algorithm
    learner: str | None = None  # the one that it goes with; None: every learner that belongs to no algorithm
    has_global_model: bool = True  # False: clients share nothing, so figures are means over clients
    decomposed: bool = False  # parameters are sigma and psi
    scenario: str | None = None  # the one that it is for; None: both
    has_helpers: bool = False  # clients receive other clients' parameters
    group: str | None = None  # of settings that are for this algorithm only
    reads: frozenset[str] = frozenset()  # other settings that not every algorithm looks at
    place: int = LAST


@cache
def networks() -> dict[str, NetworkEntry]:
    """The networks by name."""
    return entries("fedmatch_tf.networks", NetworkEntry, leave_out=("layers",))  # Keras' classes, so TensorFlow


@cache
def learners() -> dict[str, LearnerEntry]:
    """The learners by name."""
    return entries("fedmatch_tf.learners", LearnerEntry)


@cache
def algorithms() -> dict[str, AlgorithmEntry]:
    """The algorithms by name."""
    return entries("fedmatch_tf.algorithms", AlgorithmEntry)


def is_own_network(arch: str) -> bool:
    """Whether it is a user's network, `package.module:function`."""
    module, colon, name = arch.partition(":")
    return bool(colon) and name.isidentifier() and all(part.isidentifier() for part in module.split("."))


def is_keras_file(arch: str) -> bool:
    """Whether it is a file with a user's Keras model."""
    return arch.endswith(".keras")


def smallest_image(arch: str) -> int:
    """Pixels that a side of an image needs at least; of a user's network that is not known before it is built."""
    return networks()[arch].smallest if arch in networks() else 1
