"""The algorithms and learners by name. A model's name is one of each: `fedavg-fixmatch`.

An algorithm with a learner of the same name is a model by itself: `fedmatch`. A new one is a file in its room and a
line here; the entries also say what settings need to know of it, so that nobody asks for names.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple


class AlgorithmEntry(NamedTuple):
    """A federated algorithm: what crosses, what is averaged, what is remembered."""

    where: str  # module:class
    has_global_model: bool = True  # False: clients share nothing, so figures are means over clients
    decomposed: bool = False  # parameters are sigma and psi
    has_helpers: bool = False  # clients receive other clients' parameters
    reads: frozenset[str] = frozenset()  # settings that not every algorithm looks at


class LearnerEntry(NamedTuple):
    """The gradient steps of a client or server on one model."""

    where: str  # module:class
    ignores: frozenset[str] = frozenset()  # settings that it does not look at
    uses_true_labels: bool = False  # of the images that other learners see without labels
    depends_on_end: bool = True  # its loss may look at the share of all rounds that is done
    passes: float = 1.5  # training passes per unlabelled image, for estimates of time


_FEDMATCH_ONLY = """
    lambda_i lambda_a lambda_l1 lambda_l2 l1_thres delta_thres psi_factor num_helpers helper_interval icc_rows
    s2c_content probe_image no_icc no_decomposition ablate_eval
"""

ALGORITHMS = {
    "fedmatch": AlgorithmEntry(
        "fedmatch_tf.algorithms.fedmatch:FedMatch",
        decomposed=True,
        has_helpers=True,
        reads=frozenset(_FEDMATCH_ONLY.split()),
    ),
    "fedavg": AlgorithmEntry("fedmatch_tf.algorithms.fedavg:FedAvg"),
    "fedprox": AlgorithmEntry("fedmatch_tf.algorithms.fedprox:FedProx", reads=frozenset({"mu"})),
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
    "fixmatch": LearnerEntry("fedmatch_tf.learners.fixmatch:FixMatch", depends_on_end=False, passes=1.4),
}

MODELS = (
    *(name for name in ALGORITHMS if name in LEARNERS),
    *(
        f"{algorithm}-{learner}"
        for algorithm in ALGORITHMS
        if algorithm not in LEARNERS
        for learner in LEARNERS
        if learner not in ALGORITHMS
    ),
)


def parts_of(model: str) -> tuple[str, str]:
    """(algorithm, learner) of a model's name."""
    algorithm, _, learner = model.partition("-")
    return algorithm, learner or algorithm


def algorithms_with(setting: str) -> str:
    """The algorithms that look at a setting, for messages."""
    return ", ".join(name for name, entry in ALGORITHMS.items() if setting in entry.reads)


def load(where: str) -> Any:
    """The class that an entry names."""
    module, name = where.split(":")
    return getattr(import_module(module), name)
