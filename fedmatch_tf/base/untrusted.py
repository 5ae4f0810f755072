"""Files that others may have written: only regular files are read, and nothing grows beyond what was asked for.

A pipe would keep the reader waiting, a device would never end, and a few bytes of an archive can stand for gigabytes.
"""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from fedmatch_tf.base.errors import DataError, short

MOST = 2**34  # bytes of any file that is read as a whole
MOST_TEXT = 2**30

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISDIR, "a folder"),
)


def open_regular(path: Path) -> IO[bytes]:
    """The file, opened; DataError unless it is a regular one (or a link to one), whatever happens to it meanwhile."""
    _check_regular(path, path.stat())  # before it is opened: that alone can have consequences
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        _check_regular(path, os.fstat(file.fileno()))
    except BaseException:
        file.close()
        raise
    return file


def _check_regular(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = next((name for test, name in _KINDS if test(found.st_mode)), "something else")
        raise DataError(f"{path}: expected a regular file, found {kind}")


def read_bytes(path: Path, most: int = MOST) -> bytes:
    """The content of a regular file."""
    with open_regular(path) as file:
        check_size(str(path), os.fstat(file.fileno()).st_size, most)
        content = _up_to(file, most)
    check_size(str(path), len(content), most)
    return content


def read_beginning(path: Path, most: int) -> bytes:
    """The first bytes of a regular file."""
    with open_regular(path) as file:
        return file.read(most)


_PIECE = 2**20  # bytes


def _up_to(file: Any, most: int) -> bytes:
    """All of the file, or so much of it that it is seen to be larger. Room is made for what comes, not for the most."""
    content = bytearray()
    while len(content) <= most and (piece := file.read(min(_PIECE, most + 1 - len(content)))):
        content += piece
    return bytes(content)


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """The content of a regular file as text."""
    return read_bytes(path, most).decode("utf-8")


def check_size(what: str, size: int, most: int) -> None:
    """Raises DataError, with both sizes, if it is too large."""
    if size > most:
        raise DataError(f"{what}: expected at most {in_words(most)}, received {in_words(size)}")


def in_words(num_bytes: int) -> str:
    """A size for people."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.1f} {unit}"
    return f"{num_bytes} bytes"


def gunzip(path: Path, most: int) -> bytes:
    """The content of a gzip file; no more of it than that is ever unpacked."""
    with open_regular(path) as file, gzip.GzipFile(fileobj=file) as packed:
        content = _up_to(packed, most)
    if len(content) > most:
        raise DataError(f"{path.name}: expected at most {in_words(most)} when unpacked, received more")
    return content


def npz(path: Path, names: Collection[str], most: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """(the arrays of these names that an .npz has, the names of all). Its own word on their size is checked first."""
    with open_regular(path) as file:
        arrays, found = arrays_of(file, most, names)
    return arrays, found


def arrays_of(
    file: IO[bytes], most: int, names: Collection[str] | None = None
) -> tuple[dict[str, np.ndarray], list[str]]:
    """The same for an open file; without names, all of its arrays."""
    if not zipfile.is_zipfile(file):
        raise DataError("damaged or unreadable (not a zip file, as every .npz is)")
    file.seek(0)
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    found = sorted(member.filename.removesuffix(".npy") for member in members)
    if any(not member.filename.endswith(".npy") for member in members) or len(set(found)) < len(found):
        raise DataError(f"expected arrays, each once, received {short([member.filename for member in members])}")
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise DataError("expected arrays that are stored plainly or deflated, as NumPy does")
    wanted = [name for name in found if names is None or name in names]
    check_size("its arrays", sum(member.file_size for member in members if member.filename[:-4] in wanted), most)
    file.seek(0)
    with np.load(file, allow_pickle=False) as arrays:
        return {name: arrays[name] for name in wanted}, found


def tar_members(path: Path, names: Collection[str], most: int) -> dict[str, bytes]:
    """The files of these names, wherever they lie inside a tar archive, which is never unpacked to disk."""
    found: dict[str, bytes] = {}
    with open_regular(path) as file:
        magic = file.read(2)
        file.seek(0)
        content: Any = gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file
        bounded = _Bounded(content, path.name, most)
        with tarfile.open(fileobj=bounded, mode="r:") as archive:
            for member in _members(archive):
                name = Path(member.name).name
                if member.isfile() and not member.issparse() and name in names:
                    check_size(f"{name} inside it", member.size, most)
                    part = archive.extractfile(member)
                    with bounded.reading_content():
                        found[name] = b"" if part is None else _up_to(part, most)
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Its members, which the archive does not keep in mind: there may be millions."""
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]
        yield member


_MOST_NAMES = 16 * 2**20  # bytes of an archive that are no file's content


class _Bounded(io.RawIOBase):
    """A file of which no large piece is ever asked for at once, such as a name of gigabytes, nor too much in all."""

    def __init__(self, file: Any, name: str, most: int) -> None:
        self._file, self._name, self._most = file, name, most
        self._left = _MOST_NAMES
        self._is_content = False

    @contextmanager
    def reading_content(self) -> Iterator[None]:
        """While a file's content is read, whose size has been checked."""
        self._is_content = True
        yield
        self._is_content = False

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes."""
        if size < 0 or size > _PIECE:
            raise DataError(f"{self._name}: expected names of files, received one of more than {in_words(_PIECE)}")
        if not self._is_content:
            self._left -= size
            if self._left < 0:
                raise DataError(f"{self._name}: expected at most {in_words(_MOST_NAMES)} of names and the like")
        return self._file.read(size)  # type: ignore[no-any-return]

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Moves to this place."""
        if whence != os.SEEK_SET or offset > self._most:
            raise DataError(f"{self._name}: expected at most {in_words(self._most)} when unpacked, received more")
        return self._file.seek(offset)  # type: ignore[no-any-return]

    def tell(self) -> int:
        """The place."""
        return self._file.tell()  # type: ignore[no-any-return]

    def readable(self) -> bool:
        """Yes."""
        return True

    def seekable(self) -> bool:
        """Yes."""
        return True
