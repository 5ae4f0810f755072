"""What the user types to call this program."""

from __future__ import annotations

import sys
from pathlib import Path

# By the end of the path that Python was started with.
_DOORS = {
    "fedmatch": "fedmatch",
    "fedmatch_tf/__main__.py": "python -m fedmatch_tf",
    "data/generator.py": "python -m data.generator",
}


def program() -> str:
    """The installed command where that runs, or the module that was started; else `python main.py`."""
    started = Path(sys.argv[0])
    return _DOORS.get(started.name) or _DOORS.get("/".join(started.parts[-2:]), "python main.py")


def short_program() -> str:
    """The same, for the beginning of a message."""
    return program().split()[-1]
