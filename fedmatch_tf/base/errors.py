"""The errors that a user's mistake is raised as, and texts that are safe to show."""

from __future__ import annotations

import errno
import re
import traceback
from typing import Any

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
MOST_SHOWN = 200  # characters of a value


def printable(text: str) -> str:
    """The text with characters that would do something to a terminal, or can't be written, as escapes."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def short(value: Any) -> str:
    """A value as Python writes it, cut off if that is long."""
    if isinstance(value, int) and abs(value) >= 10**100:
        return "a whole number of more than 100 digits"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}... ({len(text)} characters)"


def shortened(text: str, most: int = 4000) -> str:
    """A message that quotes something long, such as a path of thousands of letters, without its end."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def words(error: BaseException) -> str:
    """What an exception says of itself: nothing if that fails, as with a user's own kind it may."""
    try:
        return str(error)
    except (Exception, SystemExit):
        return ""


def in_one_line(error: BaseException) -> str:
    """What went wrong in a user's code, and where."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    what = ": ".join(filter(None, (type(error).__name__, words(error).strip().partition("\n")[0])))
    return f"{what} ({frame.f_code.co_filename}, line {line})"


def lack_of_memory(error: BaseException) -> str | None:
    """What to say if the error is one, in one line; None if it is another. A thread needs memory, too."""
    kind = type(error).__name__
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in words(error)
    no_library = isinstance(error, ImportError) and "failed to map segment" in words(error)
    no_room = isinstance(error, MemoryError) or kind == "ResourceExhaustedError"  # TensorFlow's
    no_room |= kind == "AbortedError" and "could not create a primitive" in words(error)  # oneDNN's, for its buffers
    if not (no_room or no_thread or no_library or (isinstance(error, OSError) and error.errno == errno.ENOMEM)):
        return None
    return (
        f"too little memory ({kind}: {' '.join(words(error).split())[:MOST_SHOWN]}). A smaller --image-size, smaller "
        f"batches, fewer --workers, --clients-per-gpu or --threads-per-worker need less; a larger --gpu-memory helps"
    )


class _Mistake(ValueError):
    """What a user can put right: what was expected, what was received, what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class DataError(_Mistake):
    """Data that can't be used."""


class ConfigError(_Mistake):
    """A setting that can't be used."""
