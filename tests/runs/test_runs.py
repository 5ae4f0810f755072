"""Runs that are killed, interrupted, damaged or starved of disk, and then go on, with a worker that needs no network.

Every run that goes on must end with the same bits as one that was never disturbed.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.config import ConfigError, make_config
from fedmatch_tf.config.resume import continued
from fedmatch_tf.core import schedule
from fedmatch_tf.core.params import Params
from fedmatch_tf.report import results
from fedmatch_tf.runs import folders
from fedmatch_tf.simulation import server
from fedmatch_tf.simulation.store import Held
from tests.conftest import ROOT, kill, session
from tests.runs.test_checkpoint import put, rewrite

SETTINGS = {
    "lc": (
        "task=lc-biid-digits",
        "num_rounds=8",
        "num_clients=6",
        "frac_clients=0.5",
        "helper_interval=2",
        "keep_best=1",
    ),
    "ls": ("task=ls-simb-digits", "num_rounds=8", "num_steps=4", "num_clients=4", "helper_interval=2"),
}


def start(cwd: Path, *arguments: str, seconds: float = 0.0, **how: Any) -> subprocess.Popen[str]:
    """The stand-in's training in a session of its own, so that all its processes can be found."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stand_in", str(cwd), *arguments],
        cwd=ROOT,
        env={**os.environ, "FEDMATCH_SECONDS": str(seconds), "MPLBACKEND": "Agg"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        **how,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) once it has ended; nothing of its session may be left."""
    out, errors = process.communicate(timeout=240)
    for _ in range(50):
        if not session(process.pid):
            break
        time.sleep(0.1)
    assert session(process.pid) == []
    return process.returncode, out, errors


def run(cwd: Path, *arguments: str, **how: Any) -> Path:
    code, out, errors = finish(start(cwd, *arguments, **how))
    assert code == 0, errors
    return cwd / out.splitlines()[-1]


def content(folder: Path) -> dict[str, Any]:
    """All that a run has written, but for times and settings of the machine."""
    check_pts = folder.parent.parent / "check_pts" / folder.name
    found: dict[str, Any] = {}
    for path in folder.glob("*.txt"):
        log = json.loads(path.read_text())
        found[path.name] = {key: value for key, value in log.items() if key != "options"}
    found["rounds"] = [{**json.loads(line), "seconds": 0} for line in (folder / "rounds.jsonl").open()]
    with np.load(check_pts / "state.npz") as state:
        found.update({name: state[name].tolist() for name in state.files if name not in ("about", "clients")})
        clients = state["clients"].tolist()
        about = json.loads(state["about"].tobytes())
    found.update({name: about[name] for name in ("plateau", "best")})
    for client, (version, _, crc, *plateau) in ((client, row) for client, row in enumerate(clients) if row[0]):
        held = np.load(check_pts / "clients" / f"{client}-{version}.npy")
        found[f"held by {client}"] = (crc, plateau, held.tolist())
    return found


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Partitions, made once."""
    return tmp_path_factory.mktemp("data")


def settings_and_end(scenario: str, datasets: Path, cwd: Path) -> tuple[list[str], Any]:
    settings = [*SETTINGS[scenario], f"dataset_path={datasets}"]
    return settings, content(run(cwd, *settings, "backend=inline"))


@pytest.fixture(scope="module")
def undisturbed(datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    """(the settings, what a run with them leaves if nothing happens), labels-at-client."""
    return settings_and_end("lc", datasets, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="module", params=["lc", "ls"])
def either(request: Any, datasets: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], Any]:
    """The same for both scenarios; labels-at-server streams."""
    return settings_and_end(request.param, datasets, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture
def lc(datasets: Path) -> list[str]:
    return [*SETTINGS["lc"], f"dataset_path={datasets}"]


@pytest.mark.parametrize(
    "how", [("workers=1",), ("workers=3", "store=disk"), ("workers=2", "store=memory", "checkpoint_every=3")]
)
def test_the_result_does_not_depend_on_workers_or_store(
    how: tuple[str, ...], either: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = either
    got = content(run(tmp_path, *settings, *how))
    assert got == expected


def only_run(cwd: Path) -> Path:
    (folder,) = (cwd / "outputs" / "logs").iterdir()
    return folder


def wait_for(process: subprocess.Popen[str], condition: Any) -> None:
    while process.poll() is None and not condition():
        time.sleep(0.005)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2, 3))])
@pytest.mark.parametrize("how", [("workers=2", "store=disk"), ("workers=2", "store=memory", "checkpoint_every=3")])
def test_a_run_killed_at_any_moment_goes_on_to_the_same_end(
    seed: int, how: tuple[str, ...], either: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = either
    rng = random.Random(seed)
    process = start(tmp_path, *settings, *how, seconds=0.05)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*")))
    kills = 0
    while True:
        time.sleep(rng.uniform(0, 1.2))
        still_running = process.poll() is None
        kill(session(process.pid))
        code, _, errors = finish(process)
        assert not still_running or code == -signal.SIGKILL
        if not still_running:
            assert code == 0, errors
            break
        kills += 1
        process = start(tmp_path, f"resume={only_run(tmp_path)}", seconds=0.05 if kills < 3 else 0)
        if kills < 3:
            wait_for_line(process, "Going on", "Nothing to do")  # so that the next kill meets it at work
        else:
            process.wait()
    assert content(only_run(tmp_path)) == expected
    assert kills >= 1


def wait_for_line(process: subprocess.Popen[str], *texts: str) -> None:
    """Until it has said one of these, or ended."""
    assert process.stderr is not None
    while (line := process.stderr.readline()) and not any(text in line for text in texts):
        pass


def test_the_parent_alone_killed_takes_its_workers_along(
    lc: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    process = start(tmp_path, *lc, "workers=2", seconds=30)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/config.json")))
    time.sleep(0.5)
    assert len(session(process.pid)) >= 3
    stuck = session(process.pid, b"spawn_main")[0]
    os.kill(stuck, signal.SIGSTOP)  # not even one that can't run any code any more is left
    process.kill()
    code, _, _ = finish(process)  # checks that nothing is left
    assert code == -signal.SIGKILL
    assert len(list(temporary.iterdir())) == 1  # nobody was there to remove it
    run(tmp_path, *lc, "workers=2")
    assert list(temporary.iterdir()) == []


def test_a_worker_killed_from_outside_in_mid_round_is_replaced(
    undisturbed: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = undisturbed
    process = start(tmp_path, *settings, "workers=2", seconds=0.3)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/rounds.jsonl")))
    workers = session(process.pid, b"spawn_main")
    assert len(workers) == 2
    kill(workers)
    code, out, errors = finish(process)
    assert code == 0, errors
    assert "was killed by SIGKILL (out of memory?)" in errors
    assert content(tmp_path / out.splitlines()[-1]) == expected


def test_a_task_that_fails_for_good_stops_the_run_which_can_go_on(
    undisturbed: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = undisturbed
    client = expected["rounds"][4]["clients"][0]
    fault = tmp_path / f"fault-4-{client}"
    fault.write_text("raise always")
    code, _, errors = finish(start(tmp_path, *settings, "workers=2"))
    assert code == 1
    assert f"round 5, client {client} failed 3 times" in errors
    assert 'raise ValueError("a fault that was asked for")' in errors
    assert "The last checkpoint is after 4 of 8 rounds" in errors
    assert f"python main.py --resume {only_run(tmp_path).relative_to(tmp_path)}" in errors
    fault.unlink()
    assert content(run(tmp_path, f"resume={only_run(tmp_path)}")) == expected


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_ctrl_c_once_finishes_the_round_and_says_how_to_go_on(
    backend: str, undisturbed: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = undisturbed
    process = start(tmp_path, *settings, f"backend={backend}", "checkpoint_every=5", seconds=0.3)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/rounds.jsonl")))
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
    code, _, errors = finish(process)
    assert code == 130, errors
    assert "Traceback" not in errors
    assert "Stopping after this round; Ctrl-C again stops at once" in errors
    done = len((only_run(tmp_path) / "rounds.jsonl").read_text().splitlines())
    assert 1 <= done < 8
    assert f"The last checkpoint is after {done} of 8 rounds" in errors
    command = errors.splitlines()[-1].split()
    assert command[:3] == ["python", "main.py", "--resume"]
    assert content(run(tmp_path, f"resume={command[3]}")) == expected


@pytest.mark.parametrize(
    ("signals", "pause"),
    [
        ((signal.SIGINT,) * 2, 0.5),
        ((signal.SIGTERM,), 0.5),
        ((signal.SIGINT,) * 5, 0.01),
        ((signal.SIGTERM,) * 3, 0.01),
    ],
)
def test_ctrl_c_twice_and_sigterm_stop_at_once(
    signals: tuple[int, ...], pause: float, lc: list[str], tmp_path: Path
) -> None:
    process = start(tmp_path, *lc, "workers=2", seconds=40)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/config.json")))
    time.sleep(1)
    for number in signals:
        os.killpg(process.pid, number) if number == signal.SIGINT else process.send_signal(number)
        time.sleep(pause)
    code, _, errors = finish(process)  # long before a task would end
    assert code == 130, errors
    assert "Traceback" not in errors
    assert "The last checkpoint is after 0 of 8 rounds" in errors


def test_more_rounds_end_where_a_longer_run_would(lc: list[str], tmp_path: Path) -> None:
    longer = tmp_path / "longer"
    longer.mkdir()
    settings = [setting for setting in lc if "num_rounds" not in setting]
    expected = content(run(longer, *settings, "num_rounds=6", "workers=1"))
    folder = run(tmp_path, *settings, "num_rounds=3", "workers=1")
    assert content(run(tmp_path, f"resume={folder}", "num_rounds=6", "workers=2")) == expected
    assert json.loads((folder / "config.json").read_text())["settings"]["num_rounds"] == 6
    code, out, errors = finish(start(tmp_path, f"resume={folder}"))
    assert (code, Path(out.splitlines()[-1])) == (0, folder)
    assert "Nothing to do: all 6 rounds are done" in errors
    (folder / "confusion.json").unlink()  # as if it had been killed behind its last round
    run(tmp_path, f"resume={folder}")
    assert json.loads((folder / "confusion.json").read_text())["matrix"] == np.eye(10, dtype=int).tolist()
    assert content(folder) == expected
    assert content(folder) == expected


def test_resuming_with_other_settings_is_refused_with_the_difference() -> None:
    recorded = make_config("lc-biid-digits", num_rounds=8, threads_per_worker=1, workers=2)
    with pytest.raises(ConfigError) as error:
        continued(recorded, {"lr": 0.5, "num_rounds": 7, "workers": 3, "seed": 1, "task": "ls-biid-digits"})
    lines = str(error.value).splitlines()[1:-1]
    assert lines == [
        "  --lr: the run has 0.001, received 0.5",
        "  --num-rounds: the run has 8, received 7; it may only grow",
        "  --task: the run has lc-biid-digits, received ls-biid-digits",
    ]
    changed = continued(recorded, {"num_rounds": 9, "workers": 3, "lr": 0.001, "task_timeout": 5.0})
    assert (changed.num_rounds, changed.workers, changed.task_timeout) == (9, 3, 5.0)
    assert continued(recorded, {}) == recorded
    with pytest.raises(ConfigError, match="threads-per-worker: the run has 1, received 2"):
        continued(recorded, {"threads_per_worker": 2})
    with pytest.raises(ConfigError, match="gpu: the run has None, received"):
        continued(recorded, {"gpu": (0,)})
    streaming = make_config("lc-simb-digits")
    with pytest.raises(ConfigError, match="rounds are spread over the streaming steps"):
        continued(streaming, {"num_rounds": 200})


def test_a_refused_resume_changes_nothing(lc: list[str], tmp_path: Path) -> None:
    folder = run(tmp_path, *lc, "workers=1")
    before = {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()}
    code, _, errors = finish(start(tmp_path, f"resume={folder}", "lr=0.5"))
    assert code == 2
    assert "--lr: the run has 0.001, received 0.5" in errors
    assert {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()} == before


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


@pytest.fixture(scope="module")
def stopped(undisturbed: tuple[list[str], Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """(a run that stopped after 5 of 8 rounds, what it would have ended with)."""
    (settings, expected), cwd = undisturbed, tmp_path_factory.mktemp("stopped")
    for client in expected["rounds"][5]["clients"]:
        (cwd / f"fault-5-{client}").write_text("data")
    assert finish(start(cwd, *settings, "workers=1"))[0] == 2
    for fault in cwd.glob("fault-*"):
        fault.unlink()
    return only_run(cwd), expected


@pytest.fixture
def copy(stopped: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Path, Any]:
    """(run folder, checkpoint folder, expected end) of a copy elsewhere: a run may be moved."""
    folder, expected = stopped
    shutil.copytree(folder.parent.parent, tmp_path / "moved")
    return tmp_path / "moved" / "logs" / folder.name, tmp_path / "moved" / "check_pts" / folder.name, expected


@pytest.mark.parametrize("how", ["bit", "short", "empty", "gone"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    how: str, copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    damage(check_pts / "state.npz", how)
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
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
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 0, errors
    assert newest.name in errors
    assert "Going on after 4 of 8 rounds" in errors
    assert content(folder) == expected


@pytest.mark.parametrize("name", ["state.npz and previous.npz", "records.jsonl"])
def test_without_a_whole_checkpoint_the_run_is_refused(name: str, copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    for part in name.split(" and "):
        damage(check_pts / part, "bit" if part.endswith("npz") else "empty")
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 2
    assert "expected a whole checkpoint, found none" in errors
    assert "Traceback" not in errors


def test_lost_logs_are_written_again(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, _, expected = copy
    shutil.rmtree(folder)
    assert content(run(tmp_path, f"resume={folder}")) == expected


def test_a_run_of_an_earlier_version_goes_on_and_is_reported(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy

    def as_before(settings: dict[str, Any]) -> dict[str, Any]:
        return {"track_forgetting" if name == "labeled_acc" else name: value for name, value in settings.items()}

    recorded = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**recorded, "settings": as_before(recorded["settings"])}))
    assert results.read(folder).settings["labeled_acc"] is False
    with np.load(check_pts / "state.npz") as state:
        arrays = {name: state[name] for name in state.files}
    about = json.loads(arrays["about"].tobytes())
    about["settings"] = as_before(about["settings"])
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(check_pts / "state.npz", **arrays)
    assert content(run(tmp_path, f"resume={folder}")) == expected
    assert "labeled_acc" in json.loads((folder / "config.json").read_text())["settings"]


def outside(tmp_path: Path) -> Path:
    """A folder of the user's that no run has anything to do with."""
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "photo.jpg").write_bytes(b"mine")
    (folder / "3-1.npy").write_bytes(b"mine, though it looks like a client's")
    return folder


@pytest.mark.parametrize("place", ["clients", "tensorboard", "state.npz", "records.jsonl", "a client's file", "events"])
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
            "records.jsonl": check_pts / "records.jsonl",
            "a client's file": next((check_pts / "clients").glob("*.npy")),
            "events": next((folder / "tensorboard").glob("events*")),
        }[place]
        path.replace(mine / path.name)
        path.symlink_to(mine / path.name)
    before = {each: each.read_bytes() for each in mine.iterdir()}
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 2
    assert f"{path} is a symbolic link" in errors
    assert {each: each.read_bytes() for each in mine.iterdir()} == before


def test_a_pipe_in_the_place_of_a_checkpoint_keeps_nobody_waiting(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    (check_pts / "state.npz").unlink()
    os.mkfifo(check_pts / "state.npz")
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
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
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 2
    assert "rounds_done: expected a whole number from 0 to" in errors
    assert "Traceback" not in errors
    assert {path: path.read_bytes() for path in folder.parent.parent.rglob("*") if path.is_file()} == before
    rewrite(check_pts / "state.npz", put("arrays.rounds_done", np.array(1)))
    rewrite(check_pts / "state.npz", put("settings.lr", 10**400))
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
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
        (put("settings.lr", None), "expected the setting lr, found none"),
        (put("settings.dataset_path", "a\0b"), "--dataset-path: expected a text without the character 0"),
        (put("records", [2**50, 1]), "are not what was written"),
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
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
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
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 2, errors
    assert files_of(folder) == before
    (tmp_path / "fault-start").unlink()
    assert content(run(tmp_path, f"resume={folder}")) == expected


def test_a_folder_in_the_place_of_a_clients_file_is_refused(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, _ = copy
    (check_pts / "clients" / "4-99.npy").mkdir()
    before = files_of(folder)
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 2
    assert "4-99.npy is a folder" in errors
    assert files_of(folder) == before


def test_a_month_is_a_time_limit_like_any_other(lc: list[str], tmp_path: Path) -> None:
    run(tmp_path, *lc, "task_timeout=3000000", "num_rounds=2", "workers=1")


def test_a_run_that_was_made_with_the_other_base_goes_on_with_a_note(
    copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, check_pts, expected = copy
    rewrite(check_pts / "state.npz", put("versions.tensorflow", "2.99"))
    rewrite(check_pts / "state.npz", put("versions.tf-keras", "2.99"))
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 0
    assert "tensorflow 2.99, now 2." in errors
    assert "tf-keras 2.99, now " in errors
    assert "results may differ" in errors
    assert content(folder) == expected


def test_a_run_that_is_being_trained_cannot_be_resumed_as_well(lc: list[str], tmp_path: Path) -> None:
    process = start(tmp_path, *lc, "workers=1", seconds=30)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/config.json")))
    code, _, errors = finish(start(tmp_path, f"resume={only_run(tmp_path)}"))
    process.kill()
    finish(process)
    assert code == 2
    assert "is being trained by another process" in errors


@pytest.mark.parametrize("where", ["nowhere/logs/x", "moved/check_pts/{}", "moved/typo/{}", "moved/logs", "."])
def test_what_is_not_a_run_is_refused(where: str, copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    code, _, errors = finish(start(tmp_path, f"resume={where.format(copy[0].name)}"))
    assert code == 2
    assert "expected the folder of a run, <output-path>/logs/<name>" in errors
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_is_resumed_from_inside_its_own_folder(copy: tuple[Path, Path, Any]) -> None:
    folder, _, expected = copy
    code, out, errors = finish(start(folder, "resume=."))
    assert (code, Path(out.splitlines()[-1])) == (0, folder), errors
    assert content(folder) == expected


def test_a_damaged_checkpoint_stays_until_the_resume_is_accepted(copy: tuple[Path, Path, Any], tmp_path: Path) -> None:
    folder, check_pts, expected = copy
    damage(check_pts / "state.npz", "bit")
    for _ in range(2):
        code, _, errors = finish(start(tmp_path, f"resume={folder}", "lr=0.5"))
        assert code == 2
        assert "--lr: the run has 0.001" in errors
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert "The newest checkpoint is damaged" in errors
    assert (check_pts / "damaged.npz").exists()
    assert content(folder) == expected


def test_what_was_changed_on_resuming_is_kept_if_the_run_stops_again(
    copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, _, _ = copy
    process = start(tmp_path, f"resume={folder}", "num_rounds=20", seconds=30)
    wait_for_line(process, "Going on")
    time.sleep(1)
    process.kill()
    finish(process)
    code, _, errors = finish(start(tmp_path, f"resume={folder}"))
    assert code == 0
    assert "Going on after 5 of 20 rounds" in errors
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 20


def test_versions_that_no_checkpoint_names_do_not_pile_up(lc: list[str], tmp_path: Path) -> None:
    folder = run(tmp_path, *lc, "workers=1", "store=disk", "checkpoint_every=8", "num_rounds=7")
    process = start(tmp_path, f"resume={folder}", "num_rounds=40", "checkpoint_every=33", seconds=0.02)
    wait_for(process, lambda: len((folder / "rounds.jsonl").read_text().splitlines()) > 25)
    files = list((tmp_path / "outputs" / "check_pts" / folder.name / "clients").glob("*.npy"))
    process.kill()
    finish(process)
    assert len(files) <= 3 * 6  # at most two checkpoints' and the newest of six clients


LIMIT = 4_500  # bytes of a file: less than a checkpoint of the stand-in has


def test_a_write_that_fails_keeps_the_last_whole_checkpoint(undisturbed: tuple[list[str], Any], tmp_path: Path) -> None:
    settings, expected = undisturbed
    process = start(tmp_path, *settings, "workers=1", seconds=0.2)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/rounds.jsonl")))
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (LIMIT, LIMIT))
    code, _, errors = finish(process)
    assert code == 1
    assert "File too large" in errors
    assert "Traceback" not in errors
    assert "The last checkpoint is after" in errors
    assert list((tmp_path / "outputs").rglob(".*")) == [], "nothing half-written"
    assert content(run(tmp_path, f"resume={only_run(tmp_path)}")) == expected


def test_a_checkpoint_that_could_not_be_written_is_told_of(tmp_path: Path) -> None:
    config = make_config("lc-biid-digits", output_path=str(tmp_path), workers=1, threads_per_worker=1)
    params = Params(np.zeros(3, np.float32), np.zeros(3, np.float32))
    run = folders.create(config, server.initial_state(config, params), "")
    run.finish()  # what was begun is written
    (clients,) = tmp_path.glob("check_pts/*/clients")
    clients.rmdir()
    clients.touch()  # so that no file can be written below it
    run.store.put(0, Held(params, schedule.start(0.1, 1)))
    run.state = run.state._replace(rounds_done=1)
    run.save()
    message = run.resume_command()
    assert message.startswith("Writing the checkpoint failed: [Errno 20] Not a directory")
    assert "The last checkpoint is after 0 of 100 rounds" in message
    with pytest.raises(NotADirectoryError):
        run.finish()
    with pytest.raises(NotADirectoryError), run:
        pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 100 kB: room for some rounds."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a small file system can't be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_keeps_the_last_whole_checkpoint(
    small_disk: Path, undisturbed: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = undisturbed
    code, _, errors = finish(start(tmp_path, *settings, "workers=1", f"output_path={small_disk}"))
    assert code == 1
    assert "No space left on device" in errors
    assert "Traceback" not in errors
    assert "The last checkpoint is after" in errors
    (folder,) = (small_disk / "logs").iterdir()
    for line in (folder / "rounds.jsonl").read_text().splitlines():
        json.loads(line)
    roomy = tmp_path / "roomy"
    shutil.copytree(small_disk, roomy)
    assert content(run(tmp_path, f"resume={roomy / 'logs' / folder.name}")) == expected
