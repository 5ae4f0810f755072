"""Models by name: an algorithm and a learner, as in `fedavg-fixmatch`."""

from __future__ import annotations

from fedmatch_tf.base.plugins import AlgorithmEntry, LearnerEntry, algorithms, learners


def _learners_of(algorithm: AlgorithmEntry) -> list[str]:
    """The learners that an algorithm goes with."""
    if algorithm.learner is not None:
        return [algorithm.learner]
    owned = {other.learner for other in algorithms().values()}
    fitting = {name for name, entry in learners().items() if algorithm.has_global_model or not entry.needs_global_model}
    return [learner for learner in learners() if learner in fitting - owned]


# A model of an algorithm and a learner of the same name has that name.
_PARTS = {
    name if name == learner else f"{name}-{learner}": (name, learner)
    for name, algorithm in algorithms().items()
    for learner in _learners_of(algorithm)
}
MODELS = tuple(_PARTS)


def parts_of(model: str) -> tuple[str, str]:
    """(algorithm, learner) of a model's name."""
    return _PARTS[model]


def algorithm_of(model: str) -> AlgorithmEntry:
    """The entry of a model's algorithm."""
    return algorithms()[_PARTS[model][0]]


def learner_of(model: str) -> LearnerEntry:
    """The entry of a model's learner."""
    return learners()[_PARTS[model][1]]
