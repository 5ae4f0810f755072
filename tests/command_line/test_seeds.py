"""Several seeds: each has partitions of its own, and one command trains them all."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from tests.command_server import CommandServer
from tests.conftest import assert_refused, made_up_images, run_main, save_npz
from tests.runs.test_training import TINY

FLAGS = (
    *(flag for flag in TINY.split() if not flag.startswith(("--seed", "--num-rounds"))),
    "--num-rounds=1",
    "--model=fedavg-sl",
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save_npz(tmp_path / "own.npz", *made_up_images(300, num_classes=5, size=24))


def seed_of(folder: Path) -> int:
    return int(json.loads((folder / "config.json").read_text())["settings"]["seed"])


def test_a_second_seed_works_and_says_where_its_partitions_are(
    source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    command = ("--task=lc-biid-own", f"--source={source}", *FLAGS)
    assert commands.run(*command, "--seed=1", cwd=tmp_path).returncode == 0
    first = {path: path.read_bytes() for path in (tmp_path / "datasets" / "lc-biid-own").iterdir()}
    second = commands.run(*command, "--seed=2", cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    (own,) = (tmp_path / "datasets").glob("seed2-*")
    assert f"seed: found 1, wanted 2); this run's are in {own / 'lc-biid-own'}" in second.stderr
    assert {path: path.read_bytes() for path in (tmp_path / "datasets" / "lc-biid-own").iterdir()} == first
    run = second.stdout.splitlines()[-1]
    more = commands.run("--resume", run, "--num-rounds=2", "--quiet", cwd=tmp_path)
    assert more.returncode == 0, more.stderr
    assert sorted(path.name for path in (tmp_path / "datasets").iterdir()) == ["lc-biid-own", own.name]


def test_other_images_have_partitions_of_their_own_too(source: Path, tmp_path: Path, commands: CommandServer) -> None:
    x, y = made_up_images(300, num_classes=5, size=24)
    other = save_npz(tmp_path / "other.npz", 255 - x, y)
    for name in (source, other, other):
        result = commands.run("--task=lc-biid-own", f"--source={name}", *FLAGS, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert ("source: found npz with checksum" in result.stderr) == (name == other)
    assert len(list((tmp_path / "datasets").iterdir())) == 2


def test_one_command_trains_every_seed_and_tells_mean_and_deviation(
    source: Path, tmp_path: Path, commands: CommandServer
) -> None:
    command = ("--task=lc-biid-own", f"--source={source}", *FLAGS)
    first = commands.run(*command, "--seeds=1", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    both = commands.run(*command, "--seeds=1,3", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert "seed 1: done" in both.stderr
    assert "seed 3: starting" in both.stderr
    folders = [tmp_path / line for line in both.stdout.splitlines()[-2:]]
    assert [seed_of(folder) for folder in folders] == [1, 3]
    assert len(list((tmp_path / "outputs" / "logs").iterdir())) == 2
    final = [100 * json.loads((folder / "rounds.jsonl").read_text().splitlines()[-1])["test_acc"] for folder in folders]
    assert "mean of 2 seeds     (seeds 1, 3; " in both.stdout
    assert f"{statistics.mean(final):.2f} ± {statistics.stdev(final):.2f} % at the end" in both.stdout


def test_seeds_without_meaning_are_refused(tmp_path: Path) -> None:
    task = "--task=lc-biid-digits"
    assert_refused(run_main(task, "--seeds=2", "--seed=1", cwd=tmp_path), "give --seeds or --seed, not both")
    assert_refused(run_main("--resume=x", "--seeds=2", cwd=tmp_path), "--resume goes on with one run")
    assert_refused(
        run_main("--work-type=gen_data", task, "--seeds=2", cwd=tmp_path),
        "--seeds: is for --work-type train, reproduce",
    )
