"""The version of this program, what the user types to call it, and how it speaks to him."""

from __future__ import annotations

import sys
from pathlib import Path

VERSION = "0.5.0"
_GENERATOR = "python -m data.generator"
# By the end of the path that Python was started with.
_DOORS = {
    "fedmatch": "fedmatch",
    "fedmatch_tf/__main__.py": "python -m fedmatch_tf",
    "data/generator.py": _GENERATOR,
}


def program() -> str:
    """The installed command where that runs, or the module that was started; else `python main.py`."""
    started = Path(sys.argv[0])
    return _DOORS.get(started.name) or _DOORS.get("/".join(started.parts[-2:]), "python main.py")


def program_for(work: str) -> str:
    """What the user types for a kind of work: with its name, but for training and a door to one kind."""
    return program() if work == "train" or program() == _GENERATOR else f"{program()} {work}"


def short_program() -> str:
    """The same, for the beginning of a message."""
    return program().split()[-1]


def say(kind: str, text: str) -> None:
    """Writes an error or a note to stderr, after the program's name."""
    print(f"{short_program()}: {kind}: {text}", file=sys.stderr)
