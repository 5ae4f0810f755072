"""A run's records: config.json, rounds.jsonl, and the checkpoint's, from which all logs can be made again."""

from __future__ import annotations

import dataclasses
import functools
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

from fedmatch_tf.base.atomic import not_through_links, write_text
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.program import VERSION
from fedmatch_tf.base.typed import plain
from fedmatch_tf.config import Config
from fedmatch_tf.federation.records import RoundRecord, read_round

Self = TypeVar("Self", bound="Sink")


class Sink:
    """Who sees a run's rounds as they end."""

    def on_round(self, record: RoundRecord) -> None:
        """A round has ended."""
        raise NotImplementedError

    def close(self, failed: bool) -> None:
        """No more rounds come in this sitting; `failed`: as it ended with an exception."""

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(failed=kind is not None)


def encode(record: RoundRecord) -> bytes:
    """The record as a line of what a checkpoint has of them."""
    return json.dumps(plain(record)).encode() + b"\n"


def decode(content: bytes, num_rounds: int, num_clients: int) -> list[RoundRecord]:
    """The records of so many rounds that a checkpoint has; raises DataError if they are not that."""
    lines = content.splitlines()
    if len(lines) != num_rounds:
        raise DataError(f"records: expected {num_rounds} rounds, received {len(lines)} lines")
    return [_record(line, number, num_clients) for number, line in enumerate(lines)]


def _record(line: bytes, number: int, num_clients: int) -> RoundRecord:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"records: line {number + 1}: expected JSON ({str(error)[:100]})") from error
    return read_round(fields, number, num_clients)


def append(path: Path, content: bytes, size: int) -> None:
    """Writes behind the first `size` bytes of a file; if that fails (a full disk), it has `size` bytes again."""
    with open(path, "ab", buffering=0, opener=not_through_links) as file:  # no buffer that a later close would write
        try:
            file.truncate(size)
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except BaseException:
            file.truncate(size)
            raise


class RoundLog(Sink):
    """config.json and rounds.jsonl of a run, complete after every round: a pure function of settings and records."""

    def __init__(self, folder: Path, config: Config, records: Sequence[RoundRecord]) -> None:
        """Writes the files for the rounds so far."""
        self._path = folder / ROUNDS
        settings = {"settings": dataclasses.asdict(config), "versions": versions()}
        write_text(folder / "config.json", json.dumps(settings, indent=1) + "\n")
        text = "".join(map(_line, records))
        self._size = len(text.encode())
        if records or self._path.exists():
            write_text(self._path, text)

    def on_round(self, record: RoundRecord) -> None:
        """Writes the round's line."""
        line = _line(record).encode()
        append(self._path, line, self._size)
        self._size += len(line)


ROUNDS = "rounds.jsonl"


def _line(record: RoundRecord) -> str:
    return json.dumps(record.line(), allow_nan=False) + "\n"


class CurveFile(Sink):
    """curve.png, drawn when a sitting ends."""

    def __init__(self, folder: Path, config: Config, records: Sequence[RoundRecord]) -> None:
        self._folder, self._config, self._lines = folder, config, [record.line() for record in records]

    def on_round(self, record: RoundRecord) -> None:
        """Takes in the round."""
        self._lines.append(record.line())

    def close(self, failed: bool) -> None:
        """Draws what there is."""
        if self._lines:
            from fedmatch_tf.runs.curve import draw_curve, title_of  # matplotlib takes half a second to load

            draw_curve(self._lines, title_of(dataclasses.asdict(self._config)), self._folder / "curve.png")


@functools.cache
def versions() -> Mapping[str, str]:
    """What the run was made with; tensorflow-addons or tf-keras tell the base (docs/INSTALL.md)."""
    found = {}
    for name in ("tensorflow", "tensorflow-addons", "tf-keras", "numpy", "scikit-learn"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return {"fedmatch_tf": VERSION, "python": platform.python_version(), "platform": sys.platform, **found}
