"""Scalars and client embeddings for TensorBoard, written without TensorFlow."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.atomic import not_through_links, write_text
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.federation.records import RoundRecord, scalars
from fedmatch_tf.runs.records import Sink

NAME = "events.out.tfevents.0000000000.fedmatch"


class ScalarLog(Sink):
    """The scalars of a run, one event per round; and in the end all clients' embeddings, for the projector."""

    def __init__(self, folder: Path, records: Sequence[RoundRecord], embeddings: Callable[[], Embeddings]) -> None:
        """Writes the rounds so far anew, each with the time that it had."""
        folder.mkdir(exist_ok=True)
        self._folder, self._embeddings = folder, embeddings
        times = _times(folder / NAME)
        # In place, as a TensorBoard that is watching goes on reading there.
        with open(folder / NAME, "wb", opener=not_through_links) as file:
            file.write(_framed(Event(file_version="brain.Event:2")))
            for record in records:
                file.write(_event(record, times.get(record.round + 1, time.time())))

    def on_round(self, record: RoundRecord) -> None:
        """Appends a round, which has just ended."""
        with open(self._folder / NAME, "ab", opener=not_through_links) as file:
            file.write(_event(record, time.time()))

    def close(self, failed: bool) -> None:
        """Writes the embeddings."""
        embeddings = self._embeddings()
        if not embeddings:
            return
        rows = ["\t".join(f"{value:.6g}" for value in embeddings[client]) for client in sorted(embeddings)]
        write_text(self._folder / "clients.tsv", "\n".join(rows) + "\n")
        write_text(self._folder / "names.tsv", "\n".join(f"client {client}" for client in sorted(embeddings)) + "\n")
        text = 'embeddings {\n  tensor_name: "clients"\n  tensor_path: "clients.tsv"\n  metadata_path: "names.tsv"\n}\n'
        write_text(self._folder / "projector_config.pbtxt", text)


Embeddings = Mapping[int, np.ndarray]


def _event(record: RoundRecord, wall_time: float) -> bytes:
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(record.line()).items()]
    return _framed(Event(step=record.round + 1, wall_time=wall_time, summary=Summary(value=values)))


def _times(path: Path) -> dict[int, float]:
    """When the rounds of an earlier sitting ended, by step, as far as its file can be read."""
    found: dict[int, float] = {}
    with suppress(OSError, DataError, DecodeError, struct.error):
        content = untrusted.read_bytes(path, MAX_BYTES)
        place = 0
        while place + 12 <= len(content):
            (length,) = struct.unpack_from("<Q", content, place)
            event = Event.FromString(content[place + 12 : place + 12 + length])
            found[event.step] = event.wall_time
            place += length + 16
    return found


MAX_BYTES = 200 * 2**20  # of an earlier sitting's file


def _framed(event: Event) -> bytes:
    """The event as one record of an event file: length, content, and a checksum of each."""
    content: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))
