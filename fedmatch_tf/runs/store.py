"""What every client last held, in memory and on disk: parameters after its last upload, learning-rate state."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import numpy as np

from data import untrusted
from data.errors import DataError
from fedmatch_tf.core.params import Params
from fedmatch_tf.core.schedule import Plateau
from fedmatch_tf.runs.atomic import replacing
from fedmatch_tf.simulation.store import Held

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


class DiskStore:
    """Keeps one file per client; what `get` gives is mapped from it, so memory does not grow with the clients."""

    def __init__(self, folder: Path, files: np.ndarray) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._files = folder, files.copy()
        self._kept: tuple[np.ndarray, ...] = (files,)  # what checkpoints name
        self._tidy = False  # whether the folder holds nothing else

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""
        version, num_sigma, _, *plateau = self._files[client].item()
        if not version:
            return None
        vector = _mapped(self._folder / file_name(client, version))
        return Held(Params(vector[:num_sigma], vector[num_sigma:]), Plateau(*plateau))

    def put(self, client: int, held: Held) -> None:
        """Writes a new version of the client's file."""
        sigma, psi = held.params
        before = int(self._files[client]["version"])
        with replacing(self._folder / file_name(client, before + 1)) as file:
            file.write(_header(len(sigma) + len(psi)))
            file.write(sigma.data)  # NumPy's own writing hides that a disk is full
            file.write(psi.data)
        if before and all(files[client]["version"] != before for files in self._kept):
            (self._folder / file_name(client, before)).unlink()
        crc = zlib.crc32(psi.data, zlib.crc32(sigma.data))
        self._files[client] = (before + 1, len(sigma), crc, *held.plateau)

    def files(self) -> np.ndarray:
        """The table as it is now."""
        return self._files.copy()

    def keep(self, *checkpoints: np.ndarray) -> None:
        """From now on these tables are what checkpoints name; removes the files of older ones.

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


class WriteBehind:
    """A disk store whose files are written later, in another thread if need be; until then, memory has them.

    Args:
        keep_all: memory goes on having what was written.
    """

    def __init__(self, disk: DiskStore, keep_all: bool) -> None:
        self._disk, self._keep_all = disk, keep_all
        self._memory: dict[int, Held] = {}
        self._changed: dict[int, Held] = {}
        self._lock = Lock()  # of memory, between one who puts and one who writes
        for client in _with_file(disk.files()) if keep_all else ():
            held = disk.get(client)
            assert held is not None
            self._memory[client] = held._replace(params=Params(*(part.copy() for part in held.params)))

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""
        held = self._memory.get(client)
        return self._disk.get(client) if held is None else held

    def put(self, client: int, held: Held) -> None:
        """Replaces what is kept of the client."""
        if self._keep_all:  # for long: not as a view of something larger, or of memory that is shared
            held = held._replace(params=Params(*(part.copy() for part in held.params)))
        with self._lock:
            self._memory[client] = self._changed[client] = held

    def take_changed(self) -> Mapping[int, Held]:
        """What has not been handed out for writing yet."""
        changed, self._changed = self._changed, {}
        return changed

    def write(self, changed: Mapping[int, Held]) -> None:
        """Writes what was handed out."""
        for client, held in sorted(changed.items()):
            self._disk.put(client, held)
            with self._lock:
                if not self._keep_all and self._memory[client] is held:
                    del self._memory[client]


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
