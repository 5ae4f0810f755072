"""Files that appear whole or not at all."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError


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


@contextmanager
def writing_to(path: Path, flag: str, begins: bytes) -> Iterator[IO[bytes]]:
    """The file that a user names, to write: a new one, or in the place of one of the same kind.

    A link is followed. A pipe or a device, such as /dev/stdout, is written to; anything else that is there is not ours.

    Args:
        begins: what a file of this kind begins with.
    """
    mode = path.stat().st_mode if path.exists() else None
    if mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or path.absolute().parts[1] in ("dev", "proc")):
        with path.open("ab") as file:
            yield file
        return
    target = path.resolve()
    if mode is not None and not stat.S_ISREG(mode):
        raise DataError(f"{flag}: expected a file to write, received {path}, which is none")
    if mode is not None and (content := untrusted.read_beginning(target, len(begins))) not in (b"", begins):
        raise DataError(
            f"{flag}: expected a new file or one that was written here before, received {path}, which begins with "
            f"{content!r}; not replacing it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target) as file:
        yield file


def write_large(file: IO[bytes], *parts: Any) -> None:
    """Writes these parts, bytes or arrays' data, as all of the file, past the system's cache.

    What is written to disk in every round and hardly read needs no cache: filling it takes the processors from the
    workers, on some machines for ten times as long as the disk takes.
    """
    descriptor = file.fileno()
    _past_cache(descriptor)
    buffer, filled = memoryview(mmap.mmap(-1, _BUFFER)), 0  # at a multiple of a page, as the disk wants it
    for part in parts:
        left = memoryview(part).cast("B")
        while left:
            piece = left[: _BUFFER - filled]
            buffer[filled : filled + len(piece)] = piece
            filled, left = filled + len(piece), left[len(piece) :]
            if filled == _BUFFER:
                _write(descriptor, buffer)
                filled = 0
    _write(descriptor, buffer[: _whole_pages(filled)])  # the end of the last page is cut off again
    os.ftruncate(descriptor, sum(memoryview(part).nbytes for part in parts))


def _write(descriptor: int, left: memoryview) -> None:
    with suppress(OSError):
        left = left[os.write(descriptor, left) :]
    if left:
        _past_cache(descriptor, False)  # only through the cache the system can say why something is left
    while left:
        left = left[os.write(descriptor, left) :]


def read_large(file: IO[bytes]) -> np.ndarray:
    """The file's content as uint8 [n], past the system's cache."""
    descriptor = file.fileno()
    _past_cache(descriptor)
    size = os.fstat(descriptor).st_size
    room = np.empty(size + 2 * PAGE, np.uint8)
    begin, done = -room.ctypes.data % PAGE, 0
    pages = room[begin : begin + _whole_pages(size)].data
    while done < size and (count := os.preadv(descriptor, [pages[done:]], done)):
        done += count
    return room[begin : begin + min(done, size)]


def _past_cache(descriptor: int, value: bool = True) -> None:
    """From now on past the system's cache, or through it; always through it where the file system knows no other."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    with suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | DIRECT if value else flags & ~DIRECT)


def _whole_pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


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
