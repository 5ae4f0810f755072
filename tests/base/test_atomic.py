"""Large files, written past the system's cache: whole or not at all, whatever the pieces."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmatch_tf.base import atomic
from fedmatch_tf.base.atomic import read_large, replacing, write_large

SMALL = 2 * atomic.PAGE  # of the buffer, so that it fills up


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 3 * SMALL), max_size=5), direct=st.booleans())
def test_a_large_file_has_what_was_written_in_whatever_pieces(
    sizes: list[int], direct: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("large") / "file"
    pieces = [os.urandom(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "_BUFFER", SMALL)
        if not direct:
            patch.setattr(atomic, "DIRECT", 0)
        with replacing(path) as file:
            write_large(file, *pieces)
        with path.open("rb") as file:
            assert read_large(file).tobytes() == path.read_bytes() == b"".join(pieces)
    assert [found.name for found in path.parent.iterdir()] == ["file"]


def test_a_file_system_that_has_no_way_past_its_cache_is_written_through_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, usual = [], fcntl.fcntl

    def refusing(descriptor: int, what: int, flags: int = 0) -> int:
        if what == fcntl.F_SETFL:
            asked.append(flags & atomic.DIRECT)
            raise OSError(errno.EINVAL, "Invalid argument")
        return usual(descriptor, what, flags)

    monkeypatch.setattr(fcntl, "fcntl", refusing)
    with replacing(tmp_path / "file") as file:
        write_large(file, b"abc" * 5000)
    with (tmp_path / "file").open("rb") as file:
        assert read_large(file).tobytes() == (tmp_path / "file").read_bytes() == b"abc" * 5000
    assert asked == [atomic.DIRECT] * 2


def test_a_write_that_stops_short_goes_on_and_ends_with_the_systems_own_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, most = os.write, [1000, 3000, 9000, 0]

    def short(descriptor: int, content: Any) -> int:
        """As a full file system does it: a part of what was asked for, of any length."""
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~atomic.DIRECT)
        length = most.pop(0)
        if not length:
            raise OSError(errno.ENOSPC, "No space left on device")
        return usual(descriptor, content[:length])

    monkeypatch.setattr(os, "write", short)
    content = os.urandom(9000)
    with replacing(tmp_path / "whole") as file:
        write_large(file, content)
    assert (tmp_path / "whole").read_bytes() == content
    with pytest.raises(OSError, match="No space left on device"), replacing(tmp_path / "full") as file:
        write_large(file, content)
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def test_a_large_file_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "others").touch()
    (tmp_path / ".file.partial").symlink_to(tmp_path / "others")
    with pytest.raises(OSError, match="symbolic links"), replacing(tmp_path / "file") as file:
        write_large(file, b"x")
    assert (tmp_path / "others").read_bytes() == b""
