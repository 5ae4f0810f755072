"""Records with large arrays between two processes, through shared memory.

A record is pickled without its arrays; both go into memory that has no name. What crosses the pipe is the memory's
descriptor, in one piece, so a process that stops half-way can't keep the other waiting. The memory lives as long as a
process holds a descriptor of it: nothing can be left behind, whoever dies.
"""

from __future__ import annotations

import os
import pickle
import struct
import tempfile
from collections.abc import Iterable
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_SIZE = struct.Struct("<q")


def pack(record: Any) -> int:
    """Copies the record into shared memory; its descriptor, to be closed by the caller."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(record, protocol=5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    head = pickle.dumps((body, [part.nbytes for part in parts]))
    memory = _new_memory()
    try:
        _write(memory, [memoryview(_SIZE.pack(len(head))), memoryview(head), *parts])
    except BaseException:
        os.close(memory)
        raise
    return memory


def send(connection: Connection, memory: int) -> None:
    """Gives the receiver its own descriptor of a packed record."""
    reduction.send_handle(connection, memory, None)


def receive(connection: Connection) -> Any:
    """The next record, its arrays in memory of its own."""
    memory = reduction.recv_handle(connection)
    try:
        (size,) = _SIZE.unpack(_read(memory, np.empty(_SIZE.size, np.uint8), 0).data)
        body, sizes = pickle.loads(_read(memory, np.empty(size, np.uint8), _SIZE.size).data)
        offset, arrays = _SIZE.size + size, []
        for num_bytes in sizes:
            arrays.append(_read(memory, np.empty(num_bytes, np.uint8), offset))
            offset += num_bytes
    finally:
        os.close(memory)
    return pickle.loads(body, buffers=arrays)


def _new_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedmatch")
    with tempfile.TemporaryFile() as file:  # no name either
        return os.dup(file.fileno())


def _write(memory: int, parts: Iterable[memoryview]) -> None:
    for part in parts:
        while part:
            part = part[os.write(memory, part) :]


def _read(memory: int, buffer: np.ndarray, offset: int) -> np.ndarray:
    """Fills the buffer."""
    view = buffer.data
    while view:
        count = os.preadv(memory, [view], offset)
        if count == 0:
            raise EOFError("shared memory ended before its record did")
        view, offset = view[count:], offset + count
    return buffer
