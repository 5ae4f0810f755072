"""Records with large arrays between two processes, through shared memory.

A record is pickled without its large arrays; each of those, and the rest, goes into memory that has no name. What
crosses the pipe are the memories' descriptors, in one piece, so a process that stops half-way can't keep the other
waiting. The memory lives as long as a process holds it: nothing can be left behind, whoever dies.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

_LARGE = 2**11  # bytes; smaller arrays are part of the pickle
_MOST = 64  # large arrays of one record; more than that travel with the rest


def split(record: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """A record pickled without its large arrays, and those."""
    arrays: list[pickle.PickleBuffer] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        """Whether the pickle keeps the array itself."""
        if buffer.raw().nbytes < _LARGE or len(arrays) == _MOST:
            return True
        arrays.append(buffer)
        return False

    return pickle.dumps(record, protocol=5, buffer_callback=take), arrays


class Recent:
    """What was made of arrays that go to several receivers in a row, so that it is made once.

    Args:
        make: of an array's buffer.
        drop: lets go of what was made.
    """

    def __init__(
        self, make: Callable[[pickle.PickleBuffer], Any], drop: Callable[[Any], None] = lambda made: None
    ) -> None:
        self._make, self._drop = make, drop
        self._made: OrderedDict[int, tuple[Any, Any]] = OrderedDict()  # by identity: the array, what was made of it

    def get(self, buffer: pickle.PickleBuffer) -> Any:
        """What was made of the array, now or before."""
        with memoryview(buffer) as view:
            array = view.obj
        if id(array) not in self._made:
            self._made[id(array)] = array, self._make(buffer)
            if len(self._made) > _RECENT:
                self._drop_oldest()
        self._made.move_to_end(id(array))
        return self._made[id(array)][1]

    def forget(self) -> None:
        """Lets go of everything."""
        while self._made:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        _, (_, made) = self._made.popitem(last=False)
        self._drop(made)


_RECENT = 8  # arrays: sigma and psi of the global model, and a few helpers


class Packer:
    """Copies records into shared memory."""

    def __init__(self) -> None:
        self._recent = Recent(lambda buffer: _filled(buffer.raw()), os.close)

    def pack(self, record: Any) -> list[int]:
        """The record's descriptors, to be closed by the caller."""
        memories: list[int] = []
        body, arrays = split(record)
        try:
            memories.append(_filled(memoryview(body)))
            for array in arrays:
                memories.append(os.dup(self._recent.get(array)))
        except BaseException:
            close(memories)
            raise
        return memories

    def forget(self) -> None:
        """Lets go of the arrays that were copied."""
        self._recent.forget()


def send(connection: Connection, memories: Sequence[int]) -> None:
    """Gives the receiver its own descriptors of a packed record."""
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
        socket.send_fds(pipe, [b"\0"], memories)


def receive(connection: Connection) -> Any:
    """The next record. Its large arrays are the shared memory itself: nothing is copied unless it is written to."""
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
        message, memories, flags, _ = socket.recv_fds(pipe, 1, 1 + _MOST)
    if not message:
        raise EOFError
    try:
        if flags & socket.MSG_CTRUNC:
            raise RuntimeError("too many open files: expected a higher limit, see `ulimit -n`")
        body, *arrays = [memoryview(mmap.mmap(memory, 0, access=mmap.ACCESS_COPY)) for memory in memories]
    finally:
        close(memories)
    return pickle.loads(body, buffers=arrays)


def close(memories: Sequence[int]) -> None:
    """Gives up these descriptors."""
    for memory in memories:
        os.close(memory)


def _filled(content: memoryview) -> int:
    memory = _new_memory()
    try:
        while content:
            content = content[os.write(memory, content) :]
    except BaseException:
        os.close(memory)
        raise
    return memory


def _new_memory() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("fedmatch")
    with tempfile.TemporaryFile() as file:  # no name either
        return os.dup(file.fileno())
