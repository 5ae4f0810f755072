"""Runs that are killed, interrupted or starved of disk, and then go on, with a worker that needs no network.

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
from fedmatch_tf.federation import server
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import folders
from fedmatch_tf.runs.partition_folder import DataAbout
from tests.command_server import CommandServer
from tests.conftest import ROOT, assert_refused, kill, session
from tests.runs.stand_in_run import call, content, finish, only_run, run, start, wait_for, wait_for_line


@pytest.mark.parametrize(
    "how", [("workers=1",), ("workers=3", "store=disk"), ("workers=2", "store=memory", "checkpoint_every=3")]
)
def test_the_result_does_not_depend_on_workers_or_store(
    how: tuple[str, ...], either: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = either
    got = content(run(tmp_path, *settings, *how))
    assert got == expected


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
    assert finish(start(tmp_path, *lc, "workers=2"))[0] == 0
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


@pytest.mark.slow
def test_partitions_that_are_replaced_in_mid_run_end_it_instead_of_changing_its_result(
    lc: list[str], datasets: Path, tmp_path: Path, commands: CommandServer
) -> None:
    ours, task = tmp_path / "data", "lc-biid-digits"
    shutil.copytree(datasets, ours)
    gen_data = ("--work-type=gen_data", f"--task={task}", "--num-clients=6", "--seed=2", "--quiet")
    for client in range(6):
        (tmp_path / f"fault-1-{client}").write_text("hang")  # so that it does not end meanwhile
    process = start(tmp_path, *lc[:-1], f"dataset_path={ours}", "workers=1")
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/rounds.jsonl")))
    refused = commands.run(*gen_data, f"--dataset-path={ours}", "--force", cwd=tmp_path)
    assert_refused(refused, f"{ours / task}: a run is using these partitions")
    assert commands.run(*gen_data, f"--dataset-path={tmp_path}", cwd=tmp_path).returncode == 0
    (ours / task).rename(tmp_path / "before")
    (tmp_path / task).rename(ours / task)
    kill(session(process.pid, b"spawn_main"))
    code, _, errors = finish(process)
    assert code == 2, errors
    assert f"{ours / task}: expected the partitions of this run" in errors
    # Nobody uses them now.
    assert commands.run(*gen_data, f"--dataset-path={ours}", "--force", cwd=tmp_path).returncode == 0


def test_a_task_that_fails_for_good_stops_the_run_which_can_go_on(
    undisturbed: tuple[list[str], Any], tmp_path: Path
) -> None:
    settings, expected = undisturbed
    client = expected["rounds"][4]["clients"][0]
    fault = tmp_path / f"fault-4-{client}"
    fault.write_text("raise always")
    code, _, errors = call(tmp_path, *settings, "workers=2")
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
    expected = content(run(longer, *settings, "num_rounds=6", "backend=inline"))
    folder = run(tmp_path, *settings, "num_rounds=3", "backend=inline")
    assert content(run(tmp_path, f"resume={folder}", "num_rounds=6", "backend=process", "workers=2")) == expected
    assert json.loads((folder / "config.json").read_text())["settings"]["num_rounds"] == 6
    code, out, errors = call(tmp_path, f"resume={folder}")
    assert (code, Path(out.splitlines()[-1])) == (0, folder)
    assert "Nothing to do: all 6 rounds are done" in errors
    (folder / "confusion.json").unlink()  # as if it had been killed behind its last round
    run(tmp_path, f"resume={folder}")
    assert json.loads((folder / "confusion.json").read_text())["matrix"] == np.eye(10, dtype=int).tolist()
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
    folder = run(tmp_path, *lc, "backend=inline")
    before = {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()}
    code, _, errors = call(tmp_path, f"resume={folder}", "lr=0.5")
    assert code == 2
    assert "--lr: the run has 0.001, received 0.5" in errors
    assert {path: path.read_bytes() for path in (tmp_path / "outputs").rglob("*") if path.is_file()} == before


def test_a_month_is_a_time_limit_like_any_other(lc: list[str], tmp_path: Path) -> None:
    run(tmp_path, *lc, "task_timeout=3000000", "num_rounds=2", "workers=1")


def test_a_run_that_is_being_trained_cannot_be_resumed_as_well(lc: list[str], tmp_path: Path) -> None:
    process = start(tmp_path, *lc, "backend=inline", seconds=30)
    wait_for(process, lambda: list(tmp_path.glob("outputs/logs/*/config.json")))
    code, _, errors = call(tmp_path, f"resume={only_run(tmp_path)}")
    process.kill()
    finish(process)
    assert code == 2
    assert "is being trained by another process" in errors


def test_what_was_changed_on_resuming_is_kept_if_the_run_stops_again(
    copy: tuple[Path, Path, Any], tmp_path: Path
) -> None:
    folder, _, _ = copy
    process = start(tmp_path, f"resume={folder}", "num_rounds=20", seconds=30)
    wait_for_line(process, "Going on")
    time.sleep(1)
    process.kill()
    finish(process)
    code, _, errors = call(tmp_path, f"resume={folder}")
    assert code == 0
    assert "Going on after 5 of 20 rounds" in errors
    assert len((folder / "rounds.jsonl").read_text().splitlines()) == 20


def test_versions_that_no_checkpoint_names_do_not_pile_up(lc: list[str], tmp_path: Path) -> None:
    folder = run(tmp_path, *lc, "backend=inline", "store=disk", "checkpoint_every=8", "num_rounds=7")
    process = start(tmp_path, f"resume={folder}", "num_rounds=40", "checkpoint_every=33", seconds=0.02)
    wait_for(process, lambda: len((folder / "rounds.jsonl").read_text().splitlines()) > 25)
    files = list((tmp_path / "outputs" / "check_pts" / folder.name / "clients").glob("*.npy"))
    process.kill()
    finish(process)
    assert len(files) <= 3 * 6  # at most two checkpoints' and the newest of six clients


LIMIT = 4_500  # bytes of a file: less than a checkpoint of the stand-in has


def test_a_write_that_fails_keeps_the_last_whole_checkpoint(undisturbed: tuple[list[str], Any], tmp_path: Path) -> None:
    settings, expected = undisturbed
    process = start(tmp_path, *settings, "backend=inline", seconds=0.2)
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
    run = folders.create(config, server.initial_state(config, params), "", DataAbout((8, 8, 3), ("cat", "dog")))
    run.finish()  # what was begun is written
    (check_pts,) = tmp_path.glob("check_pts/*")
    shutil.rmtree(check_pts)
    check_pts.touch()  # so that no file can be written below it
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
    code, _, errors = call(tmp_path, *settings, "backend=inline", f"output_path={small_disk}")
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


TURNS_READ_ONLY = """
"$@" &
until ls outputs/logs/*/rounds.jsonl > /dev/null 2>&1; do sleep 0.1; done
mount --bind outputs outputs && mount -o remount,ro,bind outputs
wait $!
"""


def test_a_file_system_that_turns_read_only_in_mid_run_keeps_the_last_checkpoint(
    undisturbed: tuple[list[str], Any], tmp_path: Path
) -> None:
    alone = ["unshare", "--mount"]  # mounts that nobody else sees, and that end with the process
    if shutil.which("unshare") is None or subprocess.run([*alone, "true"], check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    settings, expected = undisturbed
    command = [sys.executable, "-m", "tests.stand_in", str(tmp_path), *settings, "backend=inline"]
    result = subprocess.run(
        [*alone, "sh", "-c", TURNS_READ_ONLY, "sh", *command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "FEDMATCH_SECONDS": "0.5", "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert "Read-only file system" in result.stderr
    assert "The last checkpoint is after" in result.stderr
    assert "Traceback" not in result.stderr
    assert content(run(tmp_path, f"resume={only_run(tmp_path)}")) == expected
