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


def refused(cwd: Path, folder: Path, *settings: str) -> str:
    """What a resume says that is refused, and that changes nothing."""
    before = {path: path.read_bytes() for path in folder.parent.parent.rglob("*") if path.is_file()}
    code, _, errors = call(cwd, f"resume={folder}", *settings)
    assert (code, "Traceback" in errors) == (2, False), errors
    assert {path: path.read_bytes() for path in folder.parent.parent.rglob("*") if path.is_file()} == before
    return errors


def resumed(cwd: Path, folder: Path, expected: Any) -> str:
    """What a resume says that ends with what was expected."""
    code, _, errors = call(cwd, f"resume={folder}")
    assert code == 0, errors
    assert content(folder) == expected
    return errors


@pytest.mark.parametrize("how", ["bit", "short", "empty", "gone"])
def test_a_damaged_file_falls_back_to_the_checkpoint_before(
    how: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    damage(check_pts / "state.npz", how)
    errors = resumed(tmp_path, folder, expected)
    assert "note: The newest checkpoint is damaged" in errors
    assert "state.npz" in errors
    assert "Going on after 4 of 8 rounds" in errors


@pytest.mark.parametrize("how", ["bit", "gone"])
def test_a_damaged_file_of_a_client_has_a_copy_whichever_checkpoints_share_it(
    how: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    files = list((check_pts / "clients").glob("*.npy"))
    for path in files:
        damage(path, how)
    errors = resumed(tmp_path, folder, expected)
    assert errors.count("its copy is used") == len({path.name.split("-")[0] for path in files})
    assert "Going on after 5 of 8 rounds" in errors


def test_a_clients_file_without_a_copy_falls_back_if_only_the_newest_checkpoint_has_it(
    copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    taking_part = expected["rounds"][4]["clients"][0]
    newest = max((check_pts / "clients").glob(f"{taking_part}-*.npy"), key=lambda path: int(path.stem.split("-")[1]))
    for path in (newest, newest.parent / "copies" / newest.name):
        damage(path, "bit")
    assert f"The newest checkpoint is damaged ({newest}: its content" in resumed(tmp_path, folder, expected)


def test_lost_logs_are_written_again(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, _, expected = copy
    shutil.rmtree(folder)
    resumed(tmp_path, folder, expected)


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
    assert f"{path} is a symbolic link" in refused(tmp_path, folder)
    assert {each: each.read_bytes() for each in mine.iterdir()} == before


def test_a_pipe_in_the_place_of_a_checkpoint_keeps_nobody_waiting(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    (check_pts / "state.npz").unlink()
    os.mkfifo(check_pts / "state.npz")
    assert "state.npz is no file" in refused(tmp_path, folder)


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
        (put("device_lrs", [0.1] * 9), "expected rates of"),
        (put("arrays.rounds_done", np.array(99)), "rounds_done: expected a whole number from 0 to"),
    ],
)
def test_an_edit_of_a_checkpoint_is_refused(
    edit: Any, message: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, _ = copy
    for name in ("state.npz", "previous.npz"):
        rewrite(check_pts / name, edit)
    assert message in refused(tmp_path, folder)


def test_nothing_is_rewritten_before_the_network_is_found_to_fit(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy
    (folder / "rounds.jsonl").unlink()
    damage(check_pts / "state.npz", "bit")
    (tmp_path / "fault-start").write_text("data always")
    refused(tmp_path, folder)
    (tmp_path / "fault-start").unlink()
    resumed(tmp_path, folder, expected)


def test_a_folder_in_the_place_of_a_clients_file_is_refused(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    (check_pts / "clients" / "4-99.npy").mkdir()
    assert "4-99.npy is a folder" in refused(tmp_path, folder)


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
        assert "--lr: the run has 0.001" in refused(tmp_path, folder, "lr=0.5")
    assert "The newest checkpoint is damaged" in resumed(tmp_path, folder, expected)
    assert (check_pts / "damaged.npz").exists()


def test_a_run_that_was_made_with_the_other_base_goes_on_with_a_note(
    copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    versions = {"tensorflow": "2.99", "tf-keras": "2.99", "numpy": "1\x1b[31m", "scikit-learn": "1" * 5000}
    for name, version in versions.items():
        rewrite(check_pts / "state.npz", put(f"versions.{name}", version))
    errors = resumed(tmp_path, folder, expected)
    for note in ("tensorflow 2.99, now 2.", "tf-keras 2.99, now ", "numpy 1\\x1b[31m, now", "(5000 characters), now"):
        assert note in errors
    assert "results may differ" in errors
    assert "\x1b" not in errors
