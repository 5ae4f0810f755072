"""Records with large arrays between two processes, through shared memory.

A record is pickled without its large arrays; each of those, and the rest, goes into memory that has no name. What
crosses the pipe are the memories' descriptors, in one piece, so a process that stops half-way can't keep the other
waiting. The memory lives as long as a process holds it: nothing can be left behind, whoever dies.

Memory is used again: the system takes ten times as long to make it as a copy takes. Its first page has a mark for
every message that is being read; the receiver removes the mark when its last array of that message is gone.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import struct
import tempfile
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

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
    """What was made of arrays that go to several receivers in a row, so that it is made once."""

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
            if len(self._made) == _RECENT:
                self._drop_oldest()
            self._made[id(array)] = array, self._make(buffer)
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


class _Memory:
    """Shared memory of the sender: a page of marks, then room for so many bytes of content."""

    def __init__(self, size: int) -> None:
        self.size, self.descriptor = size, _new_descriptor(_MARKS + size)
        weakref.finalize(self, os.close, self.descriptor)
        self._map = mmap.mmap(self.descriptor, _MARKS + size)
        self.in_hand = True  # whether the sender may still send what is in it

    def is_free(self) -> bool:
        """Whether nobody needs its content."""
        return not self.in_hand and self._map.find(b"\1", 0, _MARKS) < 0

    def fill(self, content: memoryview) -> None:
        """Puts the content there."""
        self._map[_MARKS : _MARKS + len(content)] = content

    def mark(self) -> int:
        """A place among the marks, which a receiver will clear."""
        place = self._map.find(b"\0", 0, _MARKS)
        if place < 0:
            raise RuntimeError(f"expected at most {_MARKS} readers of one array")
        self._map[place] = 1
        return place

    def unmark(self, place: int) -> None:
        """As a receiver does it."""
        self._map[place] = 0


_MARKS = mmap.PAGESIZE


class Part(NamedTuple):
    """One of a message's memories."""

    memory: _Memory
    num_bytes: int
    mark: int


class Packer:
    """Copies records into shared memory, which it uses again when nobody reads it any more."""

    def __init__(self) -> None:
        self._memories: list[_Memory] = []
        self._recent = Recent(lambda buffer: self._filled(buffer.raw()), self._let_go)

    def pack(self, record: Any) -> list[Part]:
        """The record's parts: to be sent once, or dropped."""
        body, arrays = split(record)
        rest = self._filled(memoryview(body))
        self._let_go(rest)  # free when it has been read
        parts = [Part(rest, len(body), rest.mark())]
        for array in arrays:
            memory = self._recent.get(array)
            parts.append(Part(memory, array.raw().nbytes, memory.mark()))
        return parts

    def drop(self, parts: Sequence[Part]) -> None:
        """These are not sent."""
        for part in parts:
            part.memory.unmark(part.mark)

    def forget(self) -> None:
        """Lets go of the arrays that were copied."""
        self._recent.forget()

    def renew(self) -> None:
        """Uses none of its memory again: a receiver died, which would never remove its marks."""
        self._recent.forget()
        self._memories = []

    def _filled(self, content: memoryview) -> _Memory:
        """Memory with this content: the smallest free one that has room, if it is not much too large."""
        size = len(content)
        fitting = [memory for memory in self._memories if size <= memory.size <= 2 * size + _SMALL]
        found = next((memory for memory in sorted(fitting, key=lambda memory: memory.size) if memory.is_free()), None)
        if found is None:
            found = _Memory(max(size, _SMALL))
            self._memories.append(found)
        found.in_hand = True
        found.fill(content)
        return found

    @staticmethod
    def _let_go(memory: _Memory) -> None:
        memory.in_hand = False


_SMALL = 2**16  # bytes; memory is never smaller


_PART = struct.Struct("<QH")  # how many bytes, and which mark


def send(connection: Connection, parts: Sequence[Part]) -> None:
    """Gives the receiver its own descriptors of a packed record."""
    what = b"".join(_PART.pack(part.num_bytes, part.mark) for part in parts)
    with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
        socket.send_fds(pipe, [what], [part.memory.descriptor for part in parts])


class Receiver:
    """Reads records; what it has mapped stays mapped for a while, as the same memory comes again and again."""

    def __init__(self) -> None:
        self._mapped: OrderedDict[int, _Mapped] = OrderedDict()  # by inode, which is taken as long as it is mapped

    def receive(self, connection: Connection) -> Any:
        """The next record. Its large arrays are the shared memory itself, and can't be written to."""
        with socket.socket(fileno=os.dup(connection.fileno())) as pipe:
            message, descriptors, flags, _ = socket.recv_fds(pipe, _PART.size * (1 + _MOST), 1 + _MOST)
        if not message:
            raise EOFError
        try:
            if flags & socket.MSG_CTRUNC:
                raise RuntimeError("too many open files: expected a higher limit, see `ulimit -n`")
            parts = zip(descriptors, _PART.iter_unpack(message))
            body, *arrays = [self._map(descriptor).read(*part) for descriptor, part in parts]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return pickle.loads(body.data, buffers=arrays)

    def _map(self, descriptor: int) -> _Mapped:
        inode = os.fstat(descriptor).st_ino
        if inode not in self._mapped:
            self._mapped[inode] = _Mapped(descriptor)
        self._mapped.move_to_end(inode)
        if len(self._mapped) > _MAPPED:
            self._mapped.popitem(last=False)
        return self._mapped[inode]


_MAPPED = 64  # memories that a receiver keeps mapped


class _Mapped:
    """A sender's memory, as a receiver sees it."""

    def __init__(self, descriptor: int) -> None:
        self._map = mmap.mmap(descriptor, 0)

    def read(self, num_bytes: int, mark: int) -> np.ndarray:
        """The content; the mark is removed when nothing refers to it any more."""
        content = np.frombuffer(self._map, np.uint8, num_bytes, _MARKS)
        content.flags.writeable = False
        weakref.finalize(content, self._map.__setitem__, mark, 0)
        return content


def _new_descriptor(size: int) -> int:
    """Of new memory with no name, all of it there: too little is an error now, not a crash when it is written."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("fedmatch")
    else:
        with tempfile.TemporaryFile() as file:  # no name either
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, size)
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, 0, size)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
