"""Scalars and client embeddings for TensorBoard, written without TensorFlow."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.atomic import not_through_links, write_text
from fedmatch_tf.base.errors import DataError

NAME = "events.out.tfevents.0000000000.fedmatch"


class ScalarLog:
    """The scalars of a run, one event per round."""

    def __init__(self, folder: Path, lines: Sequence[Mapping[str, Any]]) -> None:
        """Writes the rounds so far anew, each with the time that it had."""
        folder.mkdir(exist_ok=True)
        self._folder = folder
        times = _times(folder / NAME)
        with open(
            folder / NAME, "wb", opener=not_through_links
        ) as file:  # in place, as a TensorBoard that is watching goes on reading there
            file.write(_record(Event(file_version="brain.Event:2")))
            for line in lines:
                file.write(_event(line, times.get(line["round"] + 1, time.time())))

    def add(self, line: Mapping[str, Any]) -> None:
        """Appends a round, which has just ended."""
        with open(self._folder / NAME, "ab", opener=not_through_links) as file:
            file.write(_event(line, time.time()))

    def embeddings(self, embeddings: Mapping[int, np.ndarray]) -> None:
        """Writes the clients' embeddings for the projector."""
        if not embeddings:
            return
        rows = ["\t".join(f"{value:.6g}" for value in embeddings[client]) for client in sorted(embeddings)]
        write_text(self._folder / "clients.tsv", "\n".join(rows) + "\n")
        write_text(self._folder / "names.tsv", "\n".join(f"client {client}" for client in sorted(embeddings)) + "\n")
        text = 'embeddings {\n  tensor_name: "clients"\n  tensor_path: "clients.tsv"\n  metadata_path: "names.tsv"\n}\n'
        write_text(self._folder / "projector_config.pbtxt", text)


def _event(line: Mapping[str, Any], wall_time: float) -> bytes:
    values = [Summary.Value(tag=tag, simple_value=value) for tag, value in scalars(line)]
    return _record(Event(step=line["round"] + 1, wall_time=wall_time, summary=Summary(value=values)))


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


def scalars(line: Mapping[str, Any]) -> list[tuple[str, float]]:
    """The figures of a round that are followed over time, by name."""
    found = [
        ("accuracy/global", line["test_acc"]),
        ("accuracy/clients", line["local_test_acc"]),
        ("accuracy/sigma_only", line.get("test_acc_sigma")),
        ("accuracy/psi_only", line.get("test_acc_psi")),
        ("loss/test", line["test_loss"]),
        ("loss/valid", line["valid_loss"]),
        ("pseudo_labels/confident", line["confident"]),
        ("pseudo_labels/right", line["pseudo_label_acc"]),
        ("learning_rate", line["lr"]),
        ("learning_rate_server", line.get("server_lr")),
        ("seconds", line["seconds"]),
        *((f"{way}/{part}", line[way][part]) for way in ("s2c", "c2s") for part in ("sum", "sigma", "psi", "helpers")),
        *((f"labeled_acc/{when}", line["labeled_acc"][when]) for when in ("before", "after") if "labeled_acc" in line),
    ]
    return [(tag, float(value)) for tag, value in found if value is not None]


def _record(event: Event) -> bytes:
    """The event as one record of an event file: length, content, and a checksum of each."""
    content: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(content))
    return length + struct.pack("<I", masked_crc32c(length)) + content + struct.pack("<I", masked_crc32c(content))
