"""What every client last held, in memory and on disk: parameters after its last upload, learning-rate state."""

from __future__ import annotations

import io
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.atomic import read_large, replacing, write_large
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config
from fedmatch_tf.federation.server import Held
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


COPIES = "copies"  # a folder in that of the files


def no_files(num_clients: int) -> np.ndarray:
    """The table before anybody took part."""
    return np.zeros(num_clients, FILES)


IN_MEMORY_UP_TO = 2**30  # bytes of all clients' parameters; beyond, they are on disk


def is_on_disk(config: Config, size: int) -> bool:
    """Whether clients' parameters, of so many bytes each, are on disk alone."""
    return config.num_clients * size > IN_MEMORY_UP_TO if config.store == "auto" else config.store == "disk"


class Damaged(DataError):
    """A file of a checkpoint that isn't what was written; says which."""


class ClientStore:
    """Keeps one file per client, which `get` reads, so memory does not grow with the clients; and a copy of it.

    Files are written in another thread, while this one goes on. A file is never changed: what a client holds after a
    round is a new version, which takes the place of the old one when the round ends. All checkpoints share the file of
    a client that takes no part: without its copy, damage there would be the end of all of them.

    Args:
        files: what the last checkpoint names.
        submit: has something done in the other thread, in the order of the calls.
        in_memory: memory has all clients, too.
        lost: clients of whom only the copy is whole; it takes the file's place.
    """

    def __init__(
        self,
        folder: Path,
        files: np.ndarray,
        submit: Submit,
        in_memory: bool = False,
        lost: Collection[int] = (),
    ) -> None:
        (folder / COPIES).mkdir(parents=True, exist_ok=True)
        for client in _with_file(files):
            name = file_name(client, files[client]["version"])
            if client in lost:
                _copy(folder / COPIES / name, folder / name)
            elif not (folder / COPIES / name).exists():
                _copy(folder / name, folder / COPIES / name)
        self._folder, self._files, self._submit = folder, files.copy(), submit
        self._named: tuple[np.ndarray, ...] = (files,)  # by checkpoints
        self._in_memory = in_memory
        self._memory = {client: self._read(client) for client in _with_file(files)} if in_memory else {}
        # for memory, size of sigma, file's checksum
        self._new: dict[int, tuple[Params | None, int, Future[int]]] = {}

    def get(self, client: int) -> Held | None:
        """What the client held before this round; None before its first."""
        version, _, _, *plateau = self._files[client].item()
        return Held(self._memory.get(client) or self._read(client), Plateau(*plateau)) if version else None

    def _read(self, client: int) -> Params | None:
        vector, num_sigma = _read(self._folder, self._files, client)[0], self._files[client]["num_sigma"]
        if not len(vector):
            return None
        return Params(vector[:num_sigma], vector[num_sigma:] if len(vector) > num_sigma else None)

    def put(self, client: int, params: Params | None) -> None:
        """Begins to write a new version of the client's file; waits while one of before is to be written."""
        path = self._folder / file_name(client, self._files[client]["version"] + 1)
        copied = None
        if self._in_memory and params is not None:
            copied = Params(*(part.copy() for part in params.parts))  # no view of shared memory
        size = 0 if params is None else len(params.sigma)
        self._new[client] = copied, size, self._submit(_write, path, copied or params)
        waiting = [writing for _, _, writing in self._new.values()]
        if len(waiting) > _AHEAD:
            waiting[-_AHEAD - 1].result()

    def end_round(self, plateaus: Mapping[int, Plateau]) -> None:
        """The round's clients hold what was put, and these learning rates."""
        for client, (params, num_sigma, writing) in self._new.items():
            self._files[client] = (self._files[client]["version"] + 1, num_sigma, writing.result(), *plateaus[client])
            if params is not None:
                self._memory[client] = params
        self._new = {}
        self._submit(self._tidy, self.files())

    def files(self) -> np.ndarray:
        """The table as it is now."""
        return self._files.copy()

    def keep(self, *checkpoints: np.ndarray) -> None:
        """In the other thread: from now on these tables, the last one of now, are what checkpoints name."""
        self._named = checkpoints
        self._tidy()

    def _tidy(self, *now: np.ndarray) -> None:
        """In the other thread: removes files that no checkpoint and no client needs, as a killed process leaves them.

        Files that we did not name stay.
        """
        needed = {file_name(*row) for files in (*self._named, *now) for row in enumerate(files["version"].tolist())}
        for path in (*self._folder.iterdir(), *(self._folder / COPIES).iterdir()):
            if path.name not in needed and _OURS.fullmatch(path.name):
                path.unlink()


Submit = Callable[..., "Future[Any]"]
_AHEAD = 1  # files that may wait to be written while the next one is put


def _write(path: Path, params: Params | None) -> int:
    """Writes a client's file and its copy; their content's checksum."""
    parts, crc = () if params is None else params.parts, 0
    for each in (path, path.parent / COPIES / path.name):
        with replacing(each) as file:
            write_large(file, _header(sum(map(len, parts))), *(part.data for part in parts))
    for part in parts:
        crc = zlib.crc32(part.data, crc)
    return crc


def _copy(source: Path, target: Path) -> None:
    with untrusted.open_regular(source) as given, replacing(target) as file:
        write_large(file, read_large(given).data)


def _read(folder: Path, files: np.ndarray, client: int) -> tuple[np.ndarray, str]:
    """(the vector of the client's file, or of its copy if that is damaged; the damage). Damaged if both are."""
    name, damage = file_name(client, files[client]["version"]), ""
    for path in (folder / name, folder / COPIES / name):
        try:
            return _read_file(path, files[client]["crc"]), damage
        except (OSError, DataError) as error:
            damage += f"; {error}" if damage else str(error)
    raise Damaged(damage)


def _read_file(path: Path, crc: int) -> np.ndarray:
    """The vector. The header must be the one that was written, so that it need not be parsed."""
    with untrusted.open_regular(path) as file:
        content = read_large(file)
    vector = content[_HEADER : _HEADER + (len(content) - _HEADER) // 4 * 4].view(np.float32)
    is_whole = content[:_HEADER].tobytes() == _header(len(vector)) and len(content) == _HEADER + vector.nbytes
    if not is_whole or zlib.crc32(vector.data) != crc:
        raise DataError(f"{path}: its content is not what was written")
    return vector


def _header(size: int) -> bytes:
    """How an .npy file of so many float32 begins."""
    begin = io.BytesIO()
    np.lib.format.write_array_header_1_0(begin, {"descr": "<f4", "fortran_order": False, "shape": (size,)})
    return begin.getvalue()


_HEADER = len(_header(0))  # the same for every size: it is filled up with blanks
_OURS = re.compile(r"[0-9]+-[0-9]+\.npy|\.[0-9]+-[0-9]+\.npy\.partial")


def file_name(client: int, version: int) -> str:
    """The file of this version."""
    return f"{client}-{version}.npy"


def _with_file(files: np.ndarray) -> list[int]:
    """The clients that have a file."""
    return np.flatnonzero(files["version"]).tolist()  # type: ignore[no-any-return]


def check_files(folder: Path, files: np.ndarray, size: int) -> dict[int, str]:
    """What is wrong with files of which only the copy is whole, by client. Raises Damaged if a copy is none, either.

    Args:
        size: numbers of one whole set of parameters; a client's file has as many, or none.
    """
    found = {}
    for client in _with_file(files):
        vector, damage = _read(folder, files, client)
        if len(vector) != (size if files[client]["num_sigma"] else 0) or not np.isfinite(vector).all():
            path = folder / file_name(client, files[client]["version"])
            raise Damaged(f"{path}: expected {size} finite numbers, one set of parameters, or none")
        if damage:
            found[client] = damage
    return found
