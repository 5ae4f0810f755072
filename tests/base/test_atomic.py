"""Files whole or not at all: large ones past the system's cache, and those that a user names."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmatch_tf.base import atomic
from fedmatch_tf.base.atomic import read_large, replacing, write_large, writing_to
from fedmatch_tf.base.errors import DataError

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
    usual, most = os.write, [1000, 3000, 9000, -errno.EINVAL, -errno.ENOSPC]

    def short(descriptor: int, content: Any) -> int:
        """As a full file system does it: a part of what was asked for, of any length; past the cache, only EINVAL."""
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~atomic.DIRECT)
        length = most.pop(0)
        if length < 0:
            raise OSError(-length, os.strerror(-length))
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


def written(path: Path) -> None:
    with writing_to(path, "--output", b"file,class") as file:
        file.write(b"file,class\nx,1\n")


@pytest.mark.parametrize("before", [None, b"", b"file,class\nold,2\n"])
def test_a_new_file_or_one_of_its_kind_is_written_where_a_link_leads(before: bytes | None, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    if before is not None:
        target.write_bytes(before)
    link.symlink_to(target)
    written(link)
    assert link.is_symlink()
    assert target.read_bytes() == b"file,class\nx,1\n"


def test_what_is_no_file_of_its_kind_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "passwd").write_bytes(b"root:x:0:0\n")
    (tmp_path / "folder").mkdir()
    for name, message in (("passwd", "begins with b'root:x:0:0'; not replacing it"), ("folder", "which is none")):
        with pytest.raises(DataError, match=message):
            written(tmp_path / name)
    assert (tmp_path / "passwd").read_bytes() == b"root:x:0:0\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder", "passwd"]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append((tmp_path / "pipe").read_bytes()))
    reader.start()
    written(tmp_path / "pipe")
    reader.join(10)
    assert received == [b"file,class\nx,1\n"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes a device")
def test_a_device_stays_one(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "nothing", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        (tmp_path / "nothing").read_bytes()
    except PermissionError:
        pytest.skip("devices are not for this file system or container")
    written(tmp_path / "nothing")
    assert stat.S_ISCHR((tmp_path / "nothing").stat().st_mode)
