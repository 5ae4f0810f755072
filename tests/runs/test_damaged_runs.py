"""Runs whose files were damaged, edited, replaced or moved, with a worker that needs no network.

What can go on ends with the same bits as a run that was never disturbed; what can't is refused and left as it is.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runs.stand_in_run import call, content, run
from tests.runs.test_checkpoint import put, rewrite


def damage(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    elif how == "short":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "empty":
        os.truncate(path, 0)
    else:  # one bit, in the middle
        payload = bytearray(path.read_bytes())
        payload[len(payload) // 2] ^= 16
        path.write_bytes(bytes(payload))


@pytest.mark.parametrize("how", ["bit", "short", "empty", "gone"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    how: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    damage(check_pts / "state.npz", how)
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 0, errors
    assert "note: The newest checkpoint is damaged" in errors
    assert "Going on after 4 of 8 rounds" in errors
    assert content(folder) == expected


@pytest.mark.parametrize("how", ["bit", "gone"])
def test_a_damaged_client_file_falls_back_too(how: str, copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy
    client = expected["rounds"][4]["clients"][0]
    newest = max((check_pts / "clients").glob(f"{client}-*.npy"), key=lambda path: int(path.stem.split("-")[1]))
    damage(newest, how)
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 0, errors
    assert newest.name in errors
    assert "Going on after 4 of 8 rounds" in errors
    assert content(folder) == expected


def test_without_a_whole_checkpoint_the_run_is_refused(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    for name in ("state.npz", "previous.npz"):
        damage(check_pts / name, "bit")
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2
    assert "expected a whole checkpoint, found none" in errors
    assert "Traceback" not in errors


def test_lost_logs_are_written_again(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, _, expected = copy
    shutil.rmtree(folder)
    assert content(run(tmp_path, f"resume={folder}")) == expected


def outside(tmp_path: Path) -> Path:
    """A folder of the user's that no run has anything to do with."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"mine")
    (folder / "3-1.npy").write_bytes(b"mine, though it looks like a client's")
    return folder


@pytest.mark.parametrize("place", ["clients", "tensorboard", "state.npz", "a client's file", "events"])
def test_a_link_in_a_runs_folders_is_refused_and_leads_nowhere(
    place: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, _ = copy
    mine = outside(tmp_path)
    if place in ("clients", "tensorboard"):
        path = (check_pts if place == "clients" else folder) / place
        shutil.rmtree(path)
        path.symlink_to(mine)
    else:
        path = {
            "state.npz": check_pts / "state.npz",
            "a client's file": next((check_pts / "clients").glob("*.npy")),
            "events": next((folder / "tensorboard").glob("events*")),
        }[place]
        path.replace(mine / path.name)
        path.symlink_to(mine / path.name)
    before = {each: each.read_bytes() for each in mine.iterdir()}
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2
    assert f"{path} is a symbolic link" in errors
    assert {each: each.read_bytes() for each in mine.iterdir()} == before


def test_a_pipe_in_the_place_of_a_checkpoint_keeps_nobody_waiting(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    (check_pts / "state.npz").unlink()
    os.mkfifo(check_pts / "state.npz")
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2
    assert "state.npz is no file" in errors


def test_files_that_a_run_did_not_write_stay(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy
    (check_pts / "clients" / "notes.txt").write_text("mine")
    (check_pts / "clients" / "3-999.npy").write_text("left by a process that was killed")
    (folder / "client-notes.md").write_text("mine")
    (folder / "client-notes.txt").write_text("{}")
    (folder / "client-99.txt").write_text("a log of a client that no round knows")
    run(tmp_path, f"resume={folder}")
    assert (folder / "client-notes.txt").read_text() == "{}"
    (folder / "client-notes.txt").unlink()
    assert content(folder) == expected
    assert (folder / "client-notes.md").read_text() == "mine"
    assert (check_pts / "clients" / "notes.txt").read_text() == "mine"
    assert not (check_pts / "clients" / "3-999.npy").exists()


def test_an_edited_checkpoint_is_one_message(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    rewrite(check_pts / "state.npz", put("arrays.rounds_done", np.array(99)))
    before = {path: path.read_bytes() for path in folder.parent.parent.rglob("*") if path.is_file()}
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2
    assert "rounds_done: expected a whole number from 0 to" in errors
    assert "Traceback" not in errors
    assert {path: path.read_bytes() for path in folder.parent.parent.rglob("*") if path.is_file()} == before
    rewrite(check_pts / "state.npz", put("arrays.rounds_done", np.array(1)))
    rewrite(check_pts / "state.npz", put("settings.lr", 10**400))
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2
    assert "Traceback" not in errors


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.parent.parent.rglob("*") if path.is_file()}


def of_another_size(about: dict[str, Any], arrays: dict[str, Any]) -> None:
    arrays["clients"]["num_sigma"][arrays["clients"]["version"] > 0] = 7


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (put("settings.lr", 10**400), "was edited, or is of another version"),
        (put("settings.task", None), "settings.task: expected a text"),
        (put("settings.dataset_path", "a\0b"), "--dataset-path: expected a text without the character 0"),
        (put("format", 2), "expected a checkpoint of format 3, received 2"),
        (of_another_size, "clients: expected versions, sizes and learning rates"),
        (put("versions.numpy", "1\x1b[31m"), "numpy 1\\x1b[31m, now"),
        (put("versions.numpy", "1" * 5000), "(5000 characters), now"),
        (put("device_lrs", [0.1] * 9), "expected rates of"),
    ],
)
def test_an_edit_of_a_checkpoint_shows_no_traceback_and_changes_nothing(
    edit: Any, message: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, _ = copy
    for name in ("state.npz", "previous.npz"):
        rewrite(check_pts / name, edit)
    before = files_of(folder)
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert message in errors
    assert "Traceback" not in errors
    assert "\x1b" not in errors
    if code != 0:  # another version is a note
        assert code == 2
        assert files_of(folder) == before


def test_nothing_is_rewritten_before_the_network_is_found_to_fit(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy
    (folder / "rounds.jsonl").unlink()
    damage(check_pts / "state.npz", "bit")
    (tmp_path / "fault-start").write_text("data always")
    before = files_of(folder)
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2, errors
    assert files_of(folder) == before
    (tmp_path / "fault-start").unlink()
    assert content(run(tmp_path, f"resume={folder}")) == expected


def test_a_folder_in_the_place_of_a_clients_file_is_refused(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    (check_pts / "clients" / "4-99.npy").mkdir()
    before = files_of(folder)
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 2
    assert "4-99.npy is a folder" in errors
    assert files_of(folder) == before


@pytest.mark.parametrize("where", ["nowhere/logs/x", "moved/check_pts/{}", "moved/typo/{}", "moved/logs", "."])
def test_what_is_not_a_run_is_refused(where: str, copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, _, errors = call(tmp_path, f"resume={where.format(copy[0].name)}")
    assert code == 2
    assert "expected the folder of a run, <output-path>/logs/<name>" in errors
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_is_resumed_from_inside_its_own_folder(copy: tuple[Path, Path, Any]) -> None:
    folder, _, expected = copy
    code, out, errors = call(folder, "resume=.")
    assert (code, Path(out.splitlines()[-1])) == (0, folder), errors
    assert content(folder) == expected


def test_a_damaged_checkpoint_stays_until_the_resume_is_accepted(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy
    damage(check_pts / "state.npz", "bit")
    for _ in range(2):
        code, _, errors = call(tmp_path, f"resume={folder}", "lr=0.5")
        assert code == 2
        assert "--lr: the run has 0.001" in errors
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert "The newest checkpoint is damaged" in errors
    assert (check_pts / "damaged.npz").exists()
    assert content(folder) == expected


def test_a_run_that_was_made_with_the_other_base_goes_on_with_a_note(
    copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    rewrite(check_pts / "state.npz", put("versions.tensorflow", "2.99"))
    rewrite(check_pts / "state.npz", put("versions.tf-keras", "2.99"))
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 0
    assert "tensorflow 2.99, now 2." in errors
    assert "tf-keras 2.99, now " in errors
    assert "results may differ" in errors
    assert content(folder) == expected
