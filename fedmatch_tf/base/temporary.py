"""Folders for temporary files, which go with the work; those of a process that was killed go with the next work.

Whoever makes such a folder holds a lock in it, which the system takes back when the process ends, however that
happens.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PREFIX = "fedmatch-"
_MARK = ".fedmatch_tf-in-use-"


@contextmanager
def new_folder(name: str = "", parent: str | Path | None = None) -> Iterator[str]:
    """A folder that is removed in the end.

    Args:
        name: the beginning of its name.
        parent: where it is, if not where the system has temporary files.
    """
    sweep(Path(parent or tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"{PREFIX}{name}", dir=parent)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        stack.callback(os.close, hold(Path(folder)))
        yield folder


def hold(folder: Path) -> int:
    """Makes the folder, unless it is there, and keeps it from being swept.

    Returns: a descriptor; when that is closed, or the process ends, the folder is free.
    """
    folder.mkdir(exist_ok=True)
    lock, name = tempfile.mkstemp(dir=folder)
    fcntl.flock(lock, fcntl.LOCK_EX)
    Path(name).rename(folder / f"{_MARK}{Path(name).name}")  # nobody finds it unlocked
    return lock


def abandoned(parent: Path) -> Iterator[Path]:
    """The folders there that are held no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        with suppress(OSError):  # someone else is removing it
            marks = list(folder.glob(f"{_MARK}*"))
            if marks and not any(map(_is_held, marks)):
                yield folder


def sweep(parent: Path) -> None:
    """Removes the folders there that are held no more; others are not touched, whatever they are called."""
    for folder in abandoned(parent):
        shutil.rmtree(folder, ignore_errors=True)


def _is_held(mark: Path) -> bool:
    try:
        with mark.open("rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # by a process, or another user's, or just removed by someone else
        return True
    return False
