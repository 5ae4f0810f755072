"""Folders of temporary files: kept while somebody uses them, swept when nobody does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedmatch_tf.base import temporary
from tests.conftest import ROOT, kill

HOLD = "import sys; from pathlib import Path; from fedmatch_tf.base import temporary"


@pytest.fixture
def user(tmp_path: Path) -> subprocess.Popen[str]:
    """A process that uses the folder `fedmatch-x` until it is killed."""
    text = f"{HOLD}; lock = temporary.hold(Path({str(tmp_path / 'fedmatch-x')!r})); print(lock, flush=True); input()"
    process = subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def test_a_folder_goes_when_its_last_user_was_killed(user: subprocess.Popen[str], tmp_path: Path) -> None:
    folder = tmp_path / "fedmatch-x"
    lock = temporary.hold(folder)
    temporary.sweep(tmp_path)
    assert folder.is_dir()
    kill([user.pid])
    user.communicate()
    temporary.sweep(tmp_path)
    assert folder.is_dir()  # this process uses it, too
    os.close(lock)
    temporary.sweep(tmp_path)
    assert not folder.exists()


def test_a_folder_that_only_has_such_a_name_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "fedmatch-data").mkdir()
    (tmp_path / "fedmatch-data" / "images.npy").write_text("precious")
    (tmp_path / "fedmatch-notes.txt").write_text("precious")
    temporary.sweep(tmp_path)
    assert len(list(tmp_path.rglob("*"))) == 3


def test_a_new_folder_is_removed_with_what_is_in_it_and_sweeps_others(
    user: subprocess.Popen[str], tmp_path: Path
) -> None:
    kill([user.pid])
    user.communicate()
    with temporary.new_folder("y-", str(tmp_path)) as folder:
        assert [path.name[:11] for path in tmp_path.iterdir()] == ["fedmatch-y-"]
        (Path(folder) / "left").mkdir()
        temporary.sweep(tmp_path)
        assert Path(folder).is_dir()
    assert list(tmp_path.iterdir()) == []
