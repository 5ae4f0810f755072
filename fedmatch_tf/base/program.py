"""What the user types to call this program."""

from __future__ import annotations

import sys
from pathlib import Path

INSTALLED = "fedmatch"  # the command that an installation brings


def program() -> str:
    """The installed command where that runs, else `python main.py`."""
    return INSTALLED if Path(sys.argv[0]).name == INSTALLED else "python main.py"


def short_program() -> str:
    """The same, for the beginning of a message."""
    return program().split()[-1]
