"""What every client last held, in memory and on disk: parameters after its last upload, learning-rate state."""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.atomic import DIRECT, PAGE, replacing
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.federation.store import Held
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params

# What is known of the clients' files, one row per client. A table, as every checkpoint has it and there may be many.
FILES = np.dtype(
    [
        ("version", "<i8"),  # from 1; 0: no file. A new version is a new file, so that older checkpoints stay whole
        ("num_sigma", "<i8"),  # the file holds sigma, then psi
        ("crc", "<u4"),
        ("lr", "<f8"),
        ("lowest", "<f8"),
        ("patience", "<i8"),  # of its Plateau
    ]
)


def no_files(num_clients: int) -> np.ndarray:
    """The table before anybody took part."""
    return np.zeros(num_clients, FILES)


class DamagedFile(ValueError):
    """A client's file that isn't what was written; says which."""


class ClientStore:
    """Keeps one file per client, which `get` reads, so memory does not grow with the clients.

    Files are written in another thread, while this one goes on. A file is never changed: what a client holds after a
    round is a new version, which takes the place of the old one when the round ends.

    Args:
        files: what the last checkpoint names.
        submit: has something done in the other thread, in the order of the calls.
        in_memory: memory has all clients, too.
    """

    def __init__(self, folder: Path, files: np.ndarray, submit: Submit, in_memory: bool = False) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._files, self._submit = folder, files.copy(), submit
        self._kept: tuple[np.ndarray, ...] = (files,)  # what checkpoints name
        self._tidy = False  # whether the folder holds nothing else
        self._new: dict[int, tuple[int, Future[int]]] = {}  # this round's: how many of sigma, and the file's checksum
        self._writing: deque[Future[int]] = deque()
        self._memory: dict[int, Params | None] | None = None
        self._new_in_memory: dict[int, Params | None] = {}
        if in_memory:
            self._memory = {client: _copy(self._params_on_disk(client)) for client in _with_file(files)}

    def get(self, client: int) -> Held | None:
        """What the client held before this round; None before its first."""
        version, _, _, *plateau = self._files[client].item()
        if not version:
            return None
        params = self._params_on_disk(client) if self._memory is None else self._memory[client]
        return Held(params, Plateau(*plateau))

    def _params_on_disk(self, client: int) -> Params | None:
        version, num_sigma, *_ = self._files[client].item()
        vector = _read(self._folder / file_name(client, version))
        if not len(vector):
            return None
        return Params(vector[:num_sigma], vector[num_sigma:] if len(vector) > num_sigma else None)

    def put(self, client: int, params: Params | None) -> None:
        """Begins to write a new version of the client's file; waits while there are several to be written."""
        if self._memory is not None:
            params = self._new_in_memory[client] = _copy(params)
        path = self._folder / file_name(client, self._files[client]["version"] + 1)
        writing = self._submit(_write, path, params)
        self._new[client] = 0 if params is None else len(params.sigma), writing
        self._writing.append(writing)
        if len(self._writing) > _AHEAD:
            self._writing.popleft().result()

    def end_round(self, plateaus: Mapping[int, Plateau]) -> None:
        """The round's clients hold what was put, and these learning rates."""
        for client, (num_sigma, writing) in self._new.items():
            before = int(self._files[client]["version"])
            self._files[client] = (before + 1, num_sigma, writing.result(), *plateaus[client])
            if before:
                self._submit(self._drop, client, before)
        if self._memory is not None:
            self._memory.update(self._new_in_memory)
        self._new, self._new_in_memory = {}, {}
        self._writing.clear()

    def _drop(self, client: int, version: int) -> None:
        """In the other thread: removes a file that no checkpoint names."""
        if all(files[client]["version"] != version for files in self._kept):
            (self._folder / file_name(client, version)).unlink(missing_ok=True)

    def files(self) -> np.ndarray:
        """The table as it is now."""
        return self._files.copy()

    def keep(self, *checkpoints: np.ndarray) -> None:
        """In the other thread: from now on these tables are what checkpoints name; removes the files of older ones.

        What a killed process left goes with the first call. Files that we did not name stay.
        """
        if not self._tidy:
            named = {
                file_name(client, files[client]["version"]) for files in checkpoints for client in _with_file(files)
            }
            for path in self._folder.iterdir():
                if path.name not in named and _OURS.fullmatch(path.name):
                    path.unlink()
        else:
            for files in self._kept:
                old = files["version"]
                needed = [table["version"] == old for table in checkpoints]
                for client in np.flatnonzero((old > 0) & ~np.any(needed, axis=0)):
                    (self._folder / file_name(client, old[client])).unlink(missing_ok=True)
        self._kept, self._tidy = checkpoints, True


Submit = Callable[..., "Future[Any]"]
_AHEAD = 2  # files that may wait to be written


def _copy(params: Params | None) -> Params | None:
    """To be kept for long: not a view of something larger, or of memory that is shared."""
    return params and Params(*(part.copy() for part in params.parts))


def _write(path: Path, params: Params | None) -> int:
    """Writes a client's file; its content's checksum."""
    parts, crc = () if params is None else params.parts, 0
    with replacing(path, large=True) as file:
        file.write(_header(sum(map(len, parts))))
        for part in parts:
            file.write(part.data)  # NumPy's own writing hides that a disk is full
            crc = zlib.crc32(part.data, crc)
    return crc


_OURS = re.compile(r"[0-9]+-[0-9]+\.npy|\.[0-9]+-[0-9]+\.npy\.partial")


def file_name(client: int, version: int) -> str:
    """The file of this version."""
    return f"{client}-{version}.npy"


def _with_file(files: np.ndarray) -> list[int]:
    """The clients that have a file."""
    return np.flatnonzero(files["version"]).tolist()  # type: ignore[no-any-return]


def _header(size: int) -> bytes:
    """How an .npy file of so many float32 begins."""
    begin = io.BytesIO()
    np.lib.format.write_array_header_1_0(begin, {"descr": "<f4", "fortran_order": False, "shape": (size,)})
    return begin.getvalue()


_HEADER = len(_header(0))  # the same for every size: it is filled up with blanks


def _mapped(path: Path) -> np.ndarray:
    """The vector, read as it is used. The header must be the one that was written, so that it need not be parsed."""
    size = (path.stat().st_size - _HEADER) // 4
    with untrusted.open_regular(path) as file:
        if size < 0 or file.read(_HEADER) != _header(size):
            raise DamagedFile(f"{path}: its header is not what was written")
    if not size:  # nothing can't be mapped
        return np.zeros(0, np.float32)
    return np.asarray(np.memmap(path, np.float32, "r", _HEADER, (size,)))


def _read(path: Path) -> np.ndarray:
    """The vector, past the system's cache where the file system lets us; else mapped."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | DIRECT)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return _mapped(path)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedFile(f"{path}: it is no file")
        num_bytes = os.fstat(descriptor).st_size
        room = np.empty(num_bytes + 2 * PAGE, np.uint8)
        begin = -room.ctypes.data % PAGE
        whole, done = room.data[begin : begin + -(-num_bytes // PAGE) * PAGE], 0
        while done < num_bytes and (count := os.preadv(descriptor, [whole[done:]], done)):
            done += count
    finally:
        os.close(descriptor)
    size = (num_bytes - _HEADER) // 4
    if done != num_bytes or size < 0 or bytes(whole[:_HEADER]) != _header(size):
        raise DamagedFile(f"{path}: its header is not what was written")
    return room[begin + _HEADER : begin + num_bytes].view(np.float32)


def check_files(folder: Path, files: np.ndarray, size: int) -> None:
    """Raises DamagedFile unless every file is there and is what was written.

    Args:
        size: numbers of one whole set of parameters; a client's file has as many, or none.
    """
    for client in _with_file(files):
        path = folder / file_name(client, files[client]["version"])
        try:
            vector = _mapped(path)
        except (OSError, DataError) as error:
            raise DamagedFile(f"{path}: {error}") from error
        if zlib.crc32(vector.data) != files[client]["crc"]:
            raise DamagedFile(f"{path}: its content is not what was written")
        if len(vector) != (size if files[client]["num_sigma"] else 0) or not np.isfinite(vector).all():
            raise DamagedFile(f"{path}: expected {size} finite numbers, one set of parameters, or none")
