"""What a task's exception becomes: something to show, and whether it makes sense to try again."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from fedmatch_tf.base.errors import DataError, lack_of_memory, words
from fedmatch_tf.config import ConfigError
from fedmatch_tf.federation.tasks import TrainingError

# Errors that say all there is to say, and that would come again: the user's mistakes, and losses that explode.
FINAL: dict[str, type[Exception]] = {kind.__name__: kind for kind in (ConfigError, DataError, TrainingError)}


RAISED = (Exception, SystemExit)  # what a task ends with; a user's own code may want to end the process


class Failure(NamedTuple):
    """An exception as plain text, so that it can cross from any process to any other."""

    kind: str
    text: str
    trace: str
    lacks: str | None = None  # of what there was too little, if that is the reason

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """The exception with its traceback."""
        kind = next((name for name, kind in FINAL.items() if isinstance(error, kind)), type(error).__name__)
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(kind, words(error), trace, lack_of_memory(error))

    @property
    def final(self) -> bool:
        """Whether another try would end in the same way."""
        return self.kind in FINAL

    def describe(self) -> str:
        """In one line."""
        return f"{self.kind}: {self.text}".strip().splitlines()[0]

    def error(self, where: str) -> Exception:
        """The exception to raise here."""
        if self.final:
            return FINAL[self.kind](self.text)
        if self.lacks is not None:
            return TrainingError(f"{where}: a worker found {self.lacks}")
        return TrainingError(f"{where}: {self.describe()}\n{self.trace}".rstrip())
