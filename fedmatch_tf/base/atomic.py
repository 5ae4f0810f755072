"""Files that appear whole or not at all."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, cast


def not_through_links(path: str, flags: int) -> int:
    """Opens a file as `open` does, unless it is a symbolic link or a pipe: then it is not ours to write to."""
    descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    return descriptor


@contextmanager
def replacing(path: Path, keep_as: Path | None = None, large: bool = False) -> Iterator[IO[bytes]]:
    """A file to write, which takes the path's place once all is written; after a failure nothing has changed.

    Args:
        keep_as: the name that the file gets which was there before.
        large: megabytes go to the disk itself, not through the system's cache.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with Direct(temporary) if large else open(temporary, "wb", opener=not_through_links) as file:
            yield cast("IO[bytes]", file)
        if keep_as is not None:
            with suppress(FileNotFoundError):
                path.replace(keep_as)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


class Direct:
    """A file to write from its beginning to its end, past the system's cache where the file system lets us.

    What is written to disk in every round and hardly read needs no cache: filling it takes the processors from the
    workers, on some machines for ten times as long as the disk takes.
    """

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            self._descriptor = not_through_links(str(path), flags | DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            self._descriptor = not_through_links(str(path), flags)
        self._buffer = mmap.mmap(-1, _BUFFER)  # its address is a multiple of a page, as the disk wants it
        self._filled = self._written = 0

    def __enter__(self) -> Direct:
        return self

    def write(self, content: Any) -> None:
        """Adds the content: bytes, or an array's data."""
        left = memoryview(content).cast("B")
        while left:
            part = left[: _BUFFER - self._filled]
            self._buffer[self._filled : self._filled + len(part)] = part
            self._filled, left = self._filled + len(part), left[len(part) :]
            if self._filled == _BUFFER:
                self._empty(_BUFFER)

    def _empty(self, num_bytes: int) -> None:
        """Writes the buffer's beginning."""
        with memoryview(self._buffer) as whole:
            left = whole[:num_bytes]
            while left:
                done = os.write(self._descriptor, left)
                left = left[done:]
                if left and hasattr(fcntl, "F_SETFL"):  # an odd rest: the system can say why it is one without DIRECT
                    flags = fcntl.fcntl(self._descriptor, fcntl.F_GETFL)
                    fcntl.fcntl(self._descriptor, fcntl.F_SETFL, flags & ~DIRECT)
        self._written, self._filled = self._written + num_bytes, 0

    def __exit__(self, kind: Any, *_: Any) -> None:
        try:
            if kind is None and self._filled:
                size = self._written + self._filled
                self._empty(-(-self._filled // PAGE) * PAGE)  # whole pages, of which the last is cut off again
                os.ftruncate(self._descriptor, size)
        finally:
            os.close(self._descriptor)


DIRECT: int = getattr(os, "O_DIRECT", 0)
PAGE = mmap.PAGESIZE
_BUFFER = 4 * 2**20


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
