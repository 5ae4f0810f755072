"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO


def not_through_links(path: str, flags: int) -> int:
    """Opens a file as `open` does, unless it is a symbolic link or a pipe: then it is not ours to write to."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def replacing(path: Path, keep_as: Path | None = None) -> Iterator[IO[bytes]]:
    """A file to write, which takes the path's place once all is written; after a failure nothing has changed.

    Args:
        keep_as: the name that the file gets which was there before.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with open(temporary, "wb", opener=not_through_links) as file:
            yield file
        if keep_as is not None:
            with suppress(FileNotFoundError):
                path.replace(keep_as)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync(paths: Iterable[Path]) -> None:
    """Waits until files and folders are on the disk itself, where a power cut can't reach them."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Writes the file whole or not at all."""
    with replacing(path) as file:
        file.write(text.encode())
