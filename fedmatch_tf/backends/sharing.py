"""Records with large arrays between two processes: the record through a pipe, its arrays through shared memory.

The memory has no name. It lives as long as a process holds its descriptor, so nothing can be left behind, whoever dies.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np


class Message(NamedTuple):
    """A record ready to be sent."""

    head: bytes  # the record without its arrays, and their sizes
    memory: int | None  # descriptor of the arrays' memory


def pack(record: Any) -> Message:
    """Copies the record's arrays into shared memory."""
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(record, protocol=5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    sizes = [part.nbytes for part in parts]
    memory = None
    if any(sizes):
        memory = _new_memory()
        try:
            _write(memory, parts)
        except BaseException:
            os.close(memory)
            raise
    return Message(pickle.dumps((body, sizes)), memory)


def discard(message: Message) -> None:
    """Gives back the memory of a message, sent or not."""
    if message.memory is not None:
        os.close(message.memory)


def send(connection: Connection, message: Message) -> None:
    """Sends a packed message; the receiver gets its own descriptor of the memory."""
    connection.send_bytes(message.head)
    if message.memory is not None:
        reduction.send_handle(connection, message.memory, None)


def receive(connection: Connection) -> Any:
    """The next record, its arrays in memory of its own."""
    body, sizes = pickle.loads(connection.recv_bytes())
    buffers: list[np.ndarray] = [np.empty(size, np.uint8) for size in sizes]
    if any(sizes):
        memory = reduction.recv_handle(connection)
        try:
            _read(memory, buffers)
        finally:
            os.close(memory)
    return pickle.loads(body, buffers=buffers)


def _new_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedmatch")
    with tempfile.TemporaryFile() as file:  # no name either
        return os.dup(file.fileno())


def _write(memory: int, parts: Sequence[memoryview]) -> None:
    for part in parts:
        while part:
            part = part[os.write(memory, part) :]


def _read(memory: int, buffers: Sequence[np.ndarray]) -> None:
    offset = 0
    for buffer in buffers:
        view = buffer.data
        while view:
            count = os.preadv(memory, [view], offset)
            if count == 0:
                raise EOFError("shared memory ended before its arrays did")
            view, offset = view[count:], offset + count
