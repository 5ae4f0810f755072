"""Experiments: every table and figure of the paper, what they cost, and that what is done is not done again."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from parser import parse
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import Config, ConfigError, make_config
from fedmatch_tf.results.names import run_words
from fedmatch_tf.results.time_left import total_hours
from study import records, reproduction
from study.experiments import EXPERIMENTS, PAPER_EXPERIMENTS, configs
from study.values import reported
from tests.command_server import CommandServer
from tests.conftest import ROOT, assert_refused, made_up_images, run_main, save_npz
from tests.results.made_up_runs import write_run


def test_tables_have_all_their_models_tasks_and_seeds() -> None:
    batch = configs("batch", (1, 2, 3), {})
    assert len(batch) == 4 * 7 * 3
    assert {config.seed for config in batch} == {1, 2, 3}
    assert all(config.num_rounds == 200 and config.num_clients == 100 for config in batch)
    assert len(configs("streaming", (1,), {})) == 3 + 2 * 4
    assert {config.labels_per_class for config in configs("ablation-labels", (1,), {})} == {1, 5, 10, 20}
    alexnet = {(config.arch, config.frac_clients) for config in configs("alexnet", (1,), {})}
    assert alexnet == {("alexnet", share) for share in (0.05, 0.1, 0.2, 1.0)}
    assert any(config.no_icc for config in configs("ablation-icc", (1,), {}))


@pytest.mark.parametrize("name", ["batch", "streaming", "covid", "alexnet", "ablation-labels"])
def test_every_run_of_a_table_has_its_value_in_the_paper(name: str) -> None:
    for config in configs(name, (1,), {}):
        assert reported(dataclasses.asdict(config)) is not None, config


def known_hours(runs: list[Config]) -> float:
    total = total_hours(runs)
    assert total is not None
    return total


def test_settings_given_scale_an_experiment_down() -> None:
    small = configs("batch", (1,), {"num_rounds": 2, "arch": "alexnet"})
    assert all((config.num_rounds, config.arch) == (2, "alexnet") for config in small)
    assert known_hours(small) < 0.01 * known_hours(configs("batch", (1,), {}))
    with pytest.raises(ConfigError, match="decided by the experiment"):
        configs("batch", (1,), {"seed": 4})
    with pytest.raises(ConfigError, match="expected one of batch, streaming"):
        configs("table9", (1,), {})


def test_a_setting_without_meaning_for_a_run_is_left_out_of_it_and_that_is_said() -> None:
    small = reproduction.plan("communication", (1,), {"num_rounds": 4, "num_steps": 2})
    assert {(config.kind, config.num_rounds, config.num_steps) for config in small.configs} == {
        ("bimb", 4, 1),
        ("simb", 4, 2),
    }
    assert small.notes == ["--num-steps is left out of some runs: the task is not streaming (simb)"]
    short = reproduction.plan("communication", (1,), {"num_rounds": 3})
    assert {config.num_steps for config in short.configs if config.kind == "simb"} == {3}
    assert short.notes == ["streaming tasks: 3 steps, one per round"]
    local = reproduction.plan("streaming", (1,), {"drop_rate": 0.5, "eval_clients": "valid", "labeled_clients": 2})
    for config in local.configs:
        shares = config.model.startswith("local")
        assert (config.drop_rate, config.eval_clients) == ((0.0, "auto") if shares else (0.5, "valid"))
        no_labels = config.scenario == "ls" or config.model in ("local-uda", "local-fixmatch")
        assert config.labeled_clients == (None if no_labels else 2)


def test_a_setting_that_a_run_never_looks_at_is_left_out_of_it() -> None:
    planned = reproduction.plan("alexnet", (1,), {"no_icc": True, "mu": 0.5})
    assert {(config.model, config.no_icc) for config in planned.configs if config.no_icc} == {("fedmatch", True)}
    assert {config.algorithm for config in planned.configs if config.mu == 0.5} == {"fedprox"}
    assert planned.notes == [
        "--no-icc is left out of some runs: only fedmatch reads it",
        "--mu is left out of some runs: only fedprox reads it",
    ]
    for device in ({"profile": "official"}, {"lr_memory": "device"}):
        planned = reproduction.plan("batch", (1,), {**device, "lr_devices": 3})
        assert {(config.lr_memory, config.lr_devices) for config in planned.configs} == {("device", 3)}
        assert planned.notes == []
    gpus = reproduction.plan("covid", (1,), {"gpu": (0, 1), "clients_per_gpu": 2})
    assert {config.clients_per_gpu for config in gpus.configs} == {2}


def test_runs_with_other_partitions_use_other_folders() -> None:
    folders: dict[tuple[str, str], Config] = {}
    for name in EXPERIMENTS:
        for config in reproduction.plan(name, (1, 2), {}).configs:
            other = folders.setdefault((config.dataset_path, config.task), config)
            for field in ("seed", "labels_per_class", "num_clients", "num_test"):
                assert getattr(other, field) == getattr(config, field)
    assert len({config.dataset_path for config in reproduction.plan("curves", (1,), {}).configs}) == 4


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_dry_run_prints_commands_that_make_the_same_runs(name: str) -> None:
    for config in reproduction.plan(name, (1,), {"num_rounds": 12} if name in PAPER_EXPERIMENTS else {}).configs:
        words = shlex.split(reproduction.command(config))
        assert words[:2] == ["python", "main.py"]
        assert parse(words[2:]).arguments["config"] == config


def test_a_dry_run_says_how_many_runs_are_done(tmp_path: Path) -> None:
    result = run_main("--work-type=reproduce", "--experiment=field-server", "--dry-run", cwd=tmp_path)
    assert result.stderr == "main.py: note: done already: 2 of 2 runs\n", "both ship with the code"
    assert [line.endswith("  # done") for line in result.stdout.splitlines()] == [True, True]
    result = run_main("--work-type=reproduce", "--experiment=ablation-parts", "--dry-run", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert "# done" not in result.stdout


def test_seeds_of_runs_that_ship_are_fixed(tmp_path: Path) -> None:
    result = run_main("--work-type=reproduce", "--experiment=evidence", "--seeds=2", "--dry-run", cwd=tmp_path)
    assert_refused(result, "--seeds: the runs of --experiment evidence have the seeds of its records; leave it out")


def test_runs_of_one_model_are_told_apart() -> None:
    names = [", ".join(run_words(config)) for config in configs("results-ablations", (1,), {})]
    first = ["fedmatch", "fedmatch, profile official", "fedmatch, no-icc", "fedmatch, no-decomposition"]
    assert names == [
        *first,
        "fedmatch, lambda-a 0.0, no-icc",
        "fedmatch, helper-interval 1",
        "fedmatch, num-helpers 4",
    ]


def test_the_list_and_its_refusals(tmp_path: Path, commands: CommandServer) -> None:
    def reproduce(*arguments: str) -> subprocess.CompletedProcess[str]:
        return commands.run("--work-type=reproduce", *arguments, cwd=tmp_path)

    result = reproduce("--list", "--seeds=1")
    assert result.returncode == 0
    for name in EXPERIMENTS:
        assert f"\n{name} " in result.stdout
    assert_refused(reproduce(), "--experiment: expected a name")
    for seeds in ("0", "²", "1001", "9" * 5000):
        refused = reproduce("--experiment=batch", f"--seeds={seeds}")
        assert_refused(refused, "--seeds: expected a number of seeds from 1 to 1000")
    for seeds in ("1,1", "1,x", "1,", "1,4294967296", "-1,2"):
        assert_refused(reproduce("--experiment=batch", f"--seeds={seeds}"), "--seeds: expected")
    for flag in ("--experiment=batch", "--dry-run"):
        assert_refused(commands.run("--task=lc-biid-c10", flag, cwd=tmp_path), "is for --work-type reproduce")
    assert "not with these settings: --image-size" in reproduce("--list", "--image-size=16").stdout


SMALL = (
    "--source=small.npz --arch=alexnet --image-size=20 --num-clients=3 --frac-clients=0.7 --num-rounds=1 --num-test=30 "
    "--num-valid=20 --labels-per-class=2 --backend=inline --threads-per-worker=1"
)


def test_a_reproduction_does_what_is_missing_and_reports(tmp_path: Path, commands: CommandServer) -> None:
    x, y = made_up_images(300, num_classes=5, size=20)
    save_npz(tmp_path / "small.npz", x, y)
    for seeds in (1, 2):
        flags = ("--experiment=ablation-parts", f"--seeds={seeds}", *SMALL.split())
        done = commands.run("--work-type=reproduce", *flags, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "seed 1: done" in done.stderr
    assert "seed 2: starting" in done.stderr
    assert len(list((tmp_path / "outputs" / "logs").iterdir())) == 2
    folder = tmp_path / done.stdout.splitlines()[-1]
    (row,) = csv.DictReader((folder / "tables" / "accuracy.csv").open())
    assert (row["seeds"], row["rounds"]) == ("2", "1")
    for kind in ("parts", "confusion", "classes"):
        assert list((folder / "figures").glob(f"{kind}-*.png"))


def test_the_page_has_every_task_of_every_experiment_with_its_settings() -> None:
    """The settings are typed in on the page, from the paper; the runs must have them, and no other."""
    page = (ROOT / "docs" / "REPORTS.md").read_text().split("as the paper states it")[1].split("## While")[0]
    stated: set[tuple[Any, ...]] = set()
    for row in page.splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) != 8 or not cells[0].startswith("`"):
            continue
        names, tasks = (cell.replace("`", "").split(", ") for cell in cells[:2])
        numbers = [[float(number) for number in cell.split(",")] for cell in cells[2:7]]
        stated |= set(itertools.product(names, tasks, *numbers))
    fields = ("task", "num_clients", "num_rounds", "frac_clients", "labels_per_class", "num_steps")
    run = {
        (name, *(getattr(config, field) for field in fields))
        for name in PAPER_EXPERIMENTS
        for config in configs(name, (1,), {})
    }
    assert run == stated
    assert {config.profile for name in PAPER_EXPERIMENTS for config in configs(name, (1,), {})} == {"paper"}
    assert configs("covid", (1,), {"profile": "official"})[0].profile == "official"


def test_the_page_has_the_runs_and_hours_of_every_experiment() -> None:
    page = (ROOT / "docs" / "REPORTS.md").read_text()
    parts = {"-parts": "ablation-parts", "-labeled-acc": "ablation-labeled-acc", "-labels": "ablation-labels"}
    stated: dict[str, tuple[str, str]] = {}
    for row in page.split("| experiment | of the paper |")[1].split("The estimate")[0].splitlines():
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            names = [parts.get(name.strip("` "), name.strip("` ")) for name in cells[0].split(",")]
            hours_of = cells[3].removesuffix(" h").split(", ") if cells[3] else [""] * len(names)
            stated.update(zip(names, zip(cells[2].split(", "), hours_of)))
    assert set(stated) == set(PAPER_EXPERIMENTS)
    for name, (runs, taken) in stated.items():
        found = configs(name, (1, 2, 3), {})
        assert runs == str(len(found))
        assert not taken or int(taken) == round(known_hours(found))


ENTRY = """
    Experiment("mine", "a question of my own", (run("lc-biid-digits", num_rounds=3, **ALEXNET),), RESULTS),
)


def shown_on("""


def test_an_experiment_is_one_entry_and_its_page_follows(tmp_path: Path) -> None:
    """In a copy of the study, whose entry's run has a record: nothing is left to train."""
    shutil.copytree(ROOT / "study", tmp_path / "study", ignore=shutil.ignore_patterns("results", "__pycache__"))
    shutil.copy(ROOT / "main.py", tmp_path)
    path = tmp_path / "study" / "experiments.py"
    before, after = path.read_text().split("\n)\n\n\ndef shown_on(")
    path.write_text(before + ENTRY + after)
    settings = {"arch": "alexnet", "profile": "paper"}
    logged = write_run(tmp_path / "logs" / "run", [0.25, 0.5, 0.375], "lc-biid-digits", **settings)
    (logged / "server.txt").write_text("{}")
    records.keep(logged, make_config("lc-biid-digits", num_rounds=3, **settings), tmp_path)

    def do(*arguments: str) -> str:
        command = [sys.executable, str(tmp_path / "main.py"), "--work-type=reproduce", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout

    assert re.search(r"^mine +1 .* a question of my own$", do("--list"), re.M)
    (line,) = do("--experiment=mine", "--dry-run").splitlines()
    assert "--task lc-biid-digits --model fedmatch --profile paper " in line
    assert line.endswith("  # done")
    assert do("--experiment=mine").splitlines() == [str(tmp_path / "docs" / "RESULTS.md")]
    section = (tmp_path / "docs" / "RESULTS.md").read_text().split("## a question of my own\n")[1]
    assert "| fedmatch, num-rounds 3 | 1 | 37.50 | 37.50 |" in section
    assert (tmp_path / "docs" / "figures" / "mine.png").stat().st_size > 5000


def test_without_the_study_a_reproduction_says_in_one_line_what_it_needs(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedmatch_tf", "--work-type=reproduce", "--list"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert_refused(result, "needs a checkout of the project")
    assert len(result.stderr.splitlines()) == 1
