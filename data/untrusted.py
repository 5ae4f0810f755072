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
from pathlib import Path
from typing import IO, Any

import numpy as np

from data.errors import DataError

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
        content = file.read(most + 1)
    check_size(str(path), len(content), most)
    return content


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
        content = packed.read(most + 1)
    if len(content) > most:
        raise DataError(f"{path.name}: expected at most {in_words(most)} when unpacked, received more")
    return content


def npz(path: Path, names: Collection[str], most: int) -> tuple[dict[str, np.ndarray], list[str]]:
    """(the arrays of these names that an .npz has, the names of all). Its own word on their size is checked first."""
    with open_regular(path) as file:
        if not zipfile.is_zipfile(file):
            raise DataError("damaged or unreadable (not a zip file, as every .npz is)")
        file.seek(0)
        with zipfile.ZipFile(file) as archive:
            sizes = {info.filename: info.file_size for info in archive.infolist()}
        check_size("its arrays", sum(sizes.get(f"{name}.npy", 0) for name in names), most)
        file.seek(0)
        with np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in names if name in arrays}, sorted(arrays.files)


def tar_members(path: Path, names: Collection[str], most: int) -> dict[str, bytes]:
    """The files of these names, wherever they lie inside a tar archive, which is never unpacked to disk."""
    found: dict[str, bytes] = {}
    with open_regular(path) as file:
        magic = file.read(2)
        file.seek(0)
        content: Any = gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file
        with tarfile.open(fileobj=_Bounded(content, path.name, most), mode="r:") as archive:
            for member in _members(archive):
                name = Path(member.name).name
                if member.isfile() and name in names:
                    check_size(f"{name} inside it", member.size, most)
                    part = archive.extractfile(member)
                    found[name] = b"" if part is None else b"".join(iter(lambda: part.read(_PIECE), b""))  # noqa: B023
    return found


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Its members, which the archive does not keep in mind: there may be millions."""
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]
        yield member


_PIECE = 2**20  # bytes


class _Bounded(io.RawIOBase):
    """A file of which no large piece is ever asked for at once, such as a name of gigabytes, nor too much in all."""

    def __init__(self, file: Any, name: str, most: int) -> None:
        self._file, self._name, self._most = file, name, most

    def read(self, size: int = -1) -> bytes:
        """Up to so many bytes."""
        if size < 0 or size > _PIECE:
            raise DataError(f"{self._name}: expected names of files, received one of more than {in_words(_PIECE)}")
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
