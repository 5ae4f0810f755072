"""What every client last held: its parameters after its last upload, and its learning-rate state."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from threading import Lock
from typing import NamedTuple, Protocol

import numpy as np

from fedmatch_tf.atomic import replacing
from fedmatch_tf.params import Params
from fedmatch_tf.schedule import Plateau


class Held(NamedTuple):
    """What is kept of a client between its rounds."""

    params: Params
    plateau: Plateau


class Store(Protocol):
    """Where the simulation keeps and finds what clients held."""

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""

    def put(self, client: int, held: Held) -> None:
        """Replaces what is kept of the client."""


class Entry(NamedTuple):
    """What is known of a client's file. A new version is a new file, so an older checkpoint stays whole."""

    version: int
    num_sigma: int  # the file holds sigma, then psi
    crc: int
    plateau: Plateau


class DamagedFile(ValueError):
    """A client's file that isn't what was written; says which."""


class DiskStore:
    """Keeps a file a client; what `get` gives is mapped from it, so memory does not grow with the clients."""

    def __init__(self, folder: Path, entries: Mapping[int, Entry]) -> None:
        folder.mkdir(exist_ok=True)
        self._folder, self._entries = folder, dict(entries)
        self._named = {file_name(client, entry) for client, entry in entries.items()}  # by checkpoints

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""
        entry = self._entries.get(client)
        if entry is None:
            return None
        vector = _mapped(self._folder / file_name(client, entry))
        return Held(Params(vector[: entry.num_sigma], vector[entry.num_sigma :]), entry.plateau)

    def put(self, client: int, held: Held) -> None:
        """Writes a new version of the client's file."""
        sigma, psi = held.params
        version = self._entries[client].version + 1 if client in self._entries else 0
        entry = Entry(version, len(sigma), zlib.crc32(psi.data, zlib.crc32(sigma.data)), held.plateau)
        with replacing(self._folder / file_name(client, entry)) as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (len(sigma) + len(psi),)}
            np.lib.format.write_array_header_1_0(file, header)
            file.write(sigma.data)  # NumPy's own writing hides that a disk is full
            file.write(psi.data)
        if client in self._entries and (old := file_name(client, self._entries[client])) not in self._named:
            (self._folder / old).unlink()
        self._entries[client] = entry

    def entries(self) -> Mapping[int, Entry]:
        """All files as they are now."""
        return dict(self._entries)

    def prune(self, checkpoints: Iterable[Mapping[int, Entry]]) -> None:
        """Removes the files that none of these checkpoints names."""
        self._named = {file_name(client, entry) for entries in checkpoints for client, entry in entries.items()}
        for path in self._folder.iterdir():
            if path.name not in self._named:
                path.unlink()


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
        for client in disk.entries() if keep_all else ():
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


def file_name(client: int, entry: Entry) -> str:
    """The file of this version."""
    return f"{client}-{entry.version}.npy"


def _mapped(path: Path) -> np.ndarray:
    """The vector, read as it is used; an empty one can't be mapped."""
    mapped = np.load(path, mmap_mode="r" if path.stat().st_size > _HEADER else None)
    return np.asarray(mapped)


_HEADER = 128  # bytes of an .npy file of an empty vector


def check_files(folder: Path, entries: Mapping[int, Entry]) -> None:
    """Raises DamagedFile unless every file is there and is what was written."""
    for client, entry in entries.items():
        path = folder / file_name(client, entry)
        try:
            vector = _mapped(path)
            whole = vector.dtype == np.float32 and vector.ndim == 1 and zlib.crc32(vector.data) == entry.crc
        except (FileNotFoundError, ValueError, EOFError) as error:
            raise DamagedFile(f"{path}: {error}") from error
        if not whole:
            raise DamagedFile(f"{path}: its content is not what was written")
