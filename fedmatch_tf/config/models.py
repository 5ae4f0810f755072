"""The algorithms and learners by name. A model's name is one of each: `fedavg-fixmatch`.

A new one is a file in its room and a line here. The entries say what settings, reports and estimates need to know, so
that no other room checks which algorithm or learner runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, NamedTuple


class AlgorithmEntry(NamedTuple):
    """A federated algorithm: what crosses, what is averaged, what is remembered."""

    where: str  # module:class
    learner: str | None = None  # the one that it goes with; None: every learner that belongs to no algorithm
    has_global_model: bool = True  # False: clients share nothing, so figures are means over clients
    decomposed: bool = False  # parameters are sigma and psi
    scenario: str | None = None  # the one that it is for; None: both
    has_helpers: bool = False  # clients receive other clients' parameters
    group: str | None = None  # of settings that are for this algorithm only
    reads: frozenset[str] = frozenset()  # other settings that not every algorithm looks at


class LearnerEntry(NamedTuple):
    """The gradient steps of a client or server on one model."""

    where: str  # module:class
    ignores: frozenset[str] = frozenset()  # settings that it does not look at
    defaults: Mapping[str, Any] = MappingProxyType({})  # that differ from the profile's
    uses_true_labels: bool = False  # of the images that other learners see without labels
    depends_on_end: bool = True  # its loss may look at the share of all rounds that is done
    passes: float = 1.5  # training passes per unlabelled image, for estimates of time


ALGORITHMS = {
    "fedmatch": AlgorithmEntry(
        "fedmatch_tf.algorithms.fedmatch:FedMatch",
        learner="fedmatch",
        decomposed=True,
        has_helpers=True,
        group="FedMatch",
    ),
    "fedavg": AlgorithmEntry("fedmatch_tf.algorithms.fedavg:FedAvg"),
    "fedprox": AlgorithmEntry("fedmatch_tf.algorithms.fedprox:FedProx", reads=frozenset({"mu"})),
    "semifl": AlgorithmEntry("fedmatch_tf.algorithms.semifl:SemiFL", learner="semifl", scenario="ls"),
    "local": AlgorithmEntry("fedmatch_tf.algorithms.local:Local", has_global_model=False),
}

LEARNERS = {
    "fedmatch": LearnerEntry(
        "fedmatch_tf.learners.fedmatch:FedMatch",
        ignores=frozenset({"lambda_u"}),
        depends_on_end=False,
        passes=1.4,
    ),
    "sl": LearnerEntry(
        "fedmatch_tf.learners.supervised:Supervised",
        ignores=frozenset({"lambda_u", "augment", "equalize", "confidence"}),
        uses_true_labels=True,
        depends_on_end=False,
        passes=1.0,
    ),
    "uda": LearnerEntry("fedmatch_tf.learners.uda:UDA", ignores=frozenset({"confidence"}), passes=2.0),
    "fixmatch": LearnerEntry(
        "fedmatch_tf.learners.fixmatch:FixMatch",
        defaults=MappingProxyType({"confidence": 0.85}),
        depends_on_end=False,
        passes=1.4,
    ),
    "semifl": LearnerEntry(
        "fedmatch_tf.learners.semifl:SemiFL",
        defaults=MappingProxyType(
            {"confidence": 0.95, "num_epochs_client": 5, "num_epochs_server": 5, "lambda_s": 1.0}
        ),
        depends_on_end=False,
        passes=2.0,
    ),
    "gpl": LearnerEntry(
        "fedmatch_tf.learners.gpl:GPL",
        defaults=MappingProxyType({"confidence": 0.85}),
        depends_on_end=False,
        passes=1.4,
    ),
}


def _learners_of(entry: AlgorithmEntry) -> list[str]:
    """The learners that an algorithm goes with."""
    if entry.learner is not None:
        return [entry.learner]
    owned = {other.learner for other in ALGORITHMS.values()}
    return [learner for learner in LEARNERS if learner not in owned]


# A model of an algorithm and a learner of the same name has that name.
_PARTS = {
    algorithm if algorithm == learner else f"{algorithm}-{learner}": (algorithm, learner)
    for algorithm, entry in ALGORITHMS.items()
    for learner in _learners_of(entry)
}
MODELS = tuple(_PARTS)


def parts_of(model: str) -> tuple[str, str]:
    """(algorithm, learner) of a model's name."""
    return _PARTS[model]


def algorithm_of(model: str) -> AlgorithmEntry:
    """The entry of a model's algorithm."""
    return ALGORITHMS[_PARTS[model][0]]


def learner_of(model: str) -> LearnerEntry:
    """The entry of a model's learner."""
    return LEARNERS[_PARTS[model][1]]


def load(where: str) -> Any:
    """The class that an entry names."""
    module, name = where.split(":")
    return getattr(import_module(module), name)
