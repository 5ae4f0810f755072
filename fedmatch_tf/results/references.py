"""What others report for a run's settings: given by who asks for a result. An installation has none of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, NamedTuple, Protocol


class Reported(NamedTuple):
    """A value of the paper: accuracies in percent, costs as shares of one parameter set."""

    where: str
    accuracy: float
    deviation: float | None = None
    s2c: float | None = None
    c2s: float | None = None
    local: bool = False  # mean over clients after their training, not the global model


class Published(NamedTuple):
    """A value of another paper."""

    where: str
    model: str  # one of ours, or what it is
    accuracy: float  # percent


class Reference(NamedTuple):
    """What stands beside a run."""

    paper: Reported | None = None
    other_settings: str = ""  # of the run, that are not the paper's
    published: Sequence[Published] = ()  # of its own model first
    unlike_profile: str = ""  # how its settings differ from those of the papers that published them
    shipped: str = ""  # what records of the same settings reached


References = Callable[[Mapping[str, Any]], Reference]  # of a run's settings


class Study(Protocol):
    """What a checkout's `study/` does for the command line."""

    @property
    def references(self) -> References:
        """What others report for a run with these settings."""

    @property
    def reproduce(self) -> Callable[..., None]:
        """Lists experiments, prints their commands, or runs one and reports on it."""
