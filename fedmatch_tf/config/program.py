"""What the user types to call this program."""

from __future__ import annotations

import sys
from pathlib import Path


def program() -> str:
    """`fedmatch` where the installed command runs, else `python main.py`."""
    return "fedmatch" if Path(sys.argv[0]).name == "fedmatch" else "python main.py"


def short_program() -> str:
    """The same, for the beginning of a message."""
    return program().split()[-1]
