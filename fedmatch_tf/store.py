"""What every client last held: its parameters after its last upload, and its learning-rate state."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
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
        vector = np.concatenate(held.params)
        version = self._entries[client].version + 1 if client in self._entries else 0
        entry = Entry(version, len(held.params.sigma), zlib.crc32(vector), held.plateau)
        with replacing(self._folder / file_name(client, entry)) as file:
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(vector))
            file.write(vector.data)  # NumPy's own writing hides that a disk is full
        if client in self._entries and (old := file_name(client, self._entries[client])) not in self._named:
            (self._folder / old).unlink()
        self._entries[client] = entry

    def flush(self) -> Mapping[int, Entry]:
        """Everything is on the disk afterwards, as these entries say."""
        return dict(self._entries)

    def prune(self, checkpoints: Iterable[Mapping[int, Entry]]) -> None:
        """Removes the files that none of these checkpoints names."""
        self._named = {file_name(client, entry) for entries in checkpoints for client, entry in entries.items()}
        for path in self._folder.iterdir():
            if path.name not in self._named:
                path.unlink()


class MemoryStore:
    """Keeps everything in memory: two vectors a client that has taken part."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""
        return self._held.get(client)

    def put(self, client: int, held: Held) -> None:
        """Replaces what is kept of the client."""
        self._held[client] = held


class BufferedStore:
    """Keeps everything in memory, and writes what has changed when a checkpoint asks for it."""

    def __init__(self, disk: DiskStore) -> None:
        self._disk, self._memory, self._changed = disk, MemoryStore(), set[int]()
        for client in disk.flush():
            held = disk.get(client)
            assert held is not None
            self._memory.put(client, held._replace(params=Params(*(part.copy() for part in held.params))))

    def get(self, client: int) -> Held | None:
        """What the client held after its last round; None before its first."""
        return self._memory.get(client)

    def put(self, client: int, held: Held) -> None:
        """Replaces what is kept of the client."""
        self._memory.put(client, held)
        self._changed.add(client)

    def flush(self) -> Mapping[int, Entry]:
        """Everything is on the disk afterwards, as these entries say."""
        for client in sorted(self._changed):
            held = self._memory.get(client)
            assert held is not None
            self._disk.put(client, held)
            self._changed.remove(client)
        return self._disk.flush()

    def prune(self, checkpoints: Iterable[Mapping[int, Entry]]) -> None:
        """Removes the files that none of these checkpoints names."""
        self._disk.prune(checkpoints)


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
