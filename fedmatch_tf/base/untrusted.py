"""Files that others may have written: only regular files are read, and nothing grows beyond what was asked for.

A pipe would keep the reader waiting, a device would never end, and a few bytes of an archive can stand for gigabytes.
"""

from __future__ import annotations

import gzip
import io
import math
import os
import stat
import struct
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

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
        size = os.fstat(file.fileno()).st_size
        check_size(str(path), size, most)
        content = file.read(size + 1)  # room is made for all of it at once
    check_size(str(path), len(content), size)  # it may grow meanwhile
    return content


def read_beginning(path: Path, most: int) -> bytes:
    """The first bytes of a regular file."""
    with open_regular(path) as file:
        return file.read(most)


_PIECE = 2**20  # bytes


def fill(file: IO[bytes], array: np.ndarray) -> None:
    """Reads the array's bytes, piece by piece; DataError if the file has fewer."""
    left = array.reshape(-1).view(np.uint8).data
    while left:
        count = file.readinto(left[:_PIECE])  # type: ignore[attr-defined]
        if not count:
            raise DataError(f"truncated: expected {len(left)} bytes more")
        left = left[count:]


@contextmanager
def open_unpacked(path: Path) -> Iterator[IO[bytes]]:
    """A regular file to read; what one that ends in .gz stands for."""
    with open_regular(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield cast("IO[bytes]", unpacked)


def lines(path: Path, most: int, most_in_line: int) -> Iterator[bytes]:
    """The lines of a file, which may be packed by gzip, one after the other; DataError once there are more bytes."""
    with open_unpacked(path) as file:
        while line := file.readline(most_in_line + 1):
            most -= len(line)
            if len(line) > most_in_line or most < 0:
                raise DataError(f"{path.name}: expected at most {in_words(most_in_line)} in a line, or less in all")
            yield line


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


class StoredArray:
    """An array in an .npz, of which only the header has been read."""

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        self._archive, self._member = archive, member
        with archive.open(member) as file:
            self.shape, self._is_fortran, self.dtype, self._begin = _header(file)
        expected = self._begin + math.prod(self.shape) * self.dtype.itemsize
        if expected != member.file_size:
            raise DataError(
                f"{member.filename}: expected {expected} bytes for {self.dtype} {list(self.shape)}, "
                f"has {member.file_size}"
            )

    def num_bytes(self) -> int:
        """What reading it takes; numbers in the other order are read first and then put in order."""
        return math.prod(self.shape) * self.dtype.itemsize * (2 if self._is_fortran else 1)

    def read(self) -> np.ndarray:
        """The array."""
        array = np.empty(self.shape, self.dtype)
        self.read_into(array)
        return array

    def read_into(self, array: np.ndarray) -> None:
        """Puts it into an array of its shape and type."""
        content = np.empty(self.shape[::-1], self.dtype) if self._is_fortran else array
        with self._archive.open(self._member) as file:
            file.read(self._begin)
            fill(file, content)
        if self._is_fortran:
            array[...] = content.T


_LONGEST_HEADER = 10_000  # bytes


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """(shape, whether the first index runs fastest, type, where the numbers begin) of an .npy file."""
    start = file.read(8)
    length, kind = (4, "<I") if start[6:7] == b"\x02" else (2, "<H")
    start += file.read(length)
    if not start.startswith(b"\x93NUMPY") or len(start) < 8 + length:
        raise DataError("expected an array as NumPy stores it")
    (size,) = struct.unpack(kind, start[8:])
    if size > _LONGEST_HEADER:
        raise DataError(f"expected an array with a header of at most {_LONGEST_HEADER} bytes, received {size}")
    header = io.BytesIO(start[8:] + file.read(size))
    read = np.lib.format.read_array_header_2_0 if length == 4 else np.lib.format.read_array_header_1_0
    shape, is_fortran, dtype = read(header)
    if dtype.hasobject:
        raise DataError("expected plain arrays, received one of objects")
    return shape, is_fortran and len(shape) > 1, dtype, len(start) + size


@contextmanager
def stored_arrays(
    file: IO[bytes], most: int, names: Collection[str] | None = None
) -> Iterator[tuple[dict[str, StoredArray], list[str]]]:
    """(the arrays of these names that an .npz has, the names of all); without names, all. They have `most` bytes."""
    if not zipfile.is_zipfile(file):
        raise DataError("damaged or unreadable (not a zip file, as every .npz is)")
    with zipfile.ZipFile(cast("IO[bytes]", _InPieces(file))) as archive:
        members = archive.infolist()
        found = sorted(member.filename.removesuffix(".npy") for member in members)
        if any(not member.filename.endswith(".npy") for member in members) or len(set(found)) < len(found):
            raise DataError(f"expected arrays, each once, received {short([member.filename for member in members])}")
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise DataError("expected arrays that are stored plainly or deflated, as NumPy does")
        wanted = [member for member in members if names is None or member.filename[:-4] in names]
        arrays = {member.filename[:-4]: StoredArray(archive, member) for member in wanted}
        check_size("its arrays", sum(array.num_bytes() for array in arrays.values()), most)
        yield arrays, found


def arrays_of(file: IO[bytes], most: int, names: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of these names that an .npz has; without names, all."""
    with stored_arrays(file, most, names) as (arrays, _):
        return {name: array.read() for name, array in arrays.items()}


class _InPieces:
    """A file of which no large piece is ever asked for at once, such as a list of files of gigabytes."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size if 0 <= size <= _PIECE else _PIECE + 1)
        if len(content) > _PIECE:
            raise DataError(f"expected an archive that lists its files in at most {in_words(_PIECE)}")
        return content

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


def tar_members(path: Path, names: Collection[str], most: int) -> Iterator[tuple[str, bytes]]:
    """The files of these names, wherever they lie inside a tar archive, which is never unpacked to disk.

    Args:
        most: bytes that they may have in all; half of it, each.
    """
    with open_regular(path) as file:
        magic = file.read(2)
        file.seek(0)
        content: Any = gzip.GzipFile(fileobj=file) if magic == b"\x1f\x8b" else file
        bounded: Any = _Bounded(content, path.name, most)
        left = most
        with tarfile.open(fileobj=bounded, mode="r:") as archive:
            for member in _members(archive):
                name = Path(member.name).name
                if member.isfile() and not member.issparse() and name in names:
                    check_size(f"{name} inside it", member.size, min(left, most // 2))
                    left -= member.size
                    with bounded.reading_content():
                        payload = _content(archive, member)
                    yield name, payload
                    del payload


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    content, part = np.empty(member.size, np.uint8), archive.extractfile(member)
    if part is not None:
        fill(part, content)
    return content.tobytes()


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Its members, which the archive does not keep in mind: there may be millions."""
    while (member := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]
        yield member


_MOST_NAMES = 16 * 2**20  # bytes of an archive that are no file's content


class _Bounded(_InPieces):
    """An archive of which no large piece is ever asked for at once, such as a long name, nor too much in all."""

    def __init__(self, file: Any, name: str, most: int) -> None:
        super().__init__(file)
        self._name, self._most, self._left = name, most, _MOST_NAMES
        self._is_content = False

    @contextmanager
    def reading_content(self) -> Iterator[None]:
        """While a file's content is read, whose size has been checked."""
        self._is_content = True
        yield
        self._is_content = False

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _PIECE:
            raise DataError(f"{self._name}: expected names of files, received one of more than {in_words(_PIECE)}")
        if not self._is_content:
            self._left -= size
            if self._left < 0:
                raise DataError(f"{self._name}: expected at most {in_words(_MOST_NAMES)} of names and the like")
        return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or offset > self._most:
            raise DataError(f"{self._name}: expected at most {in_words(self._most)} when unpacked, received more")
        return super().seek(offset)
