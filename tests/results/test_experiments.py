"""Experiments: every table and figure of the paper, what they cost, and that what is done is not done again."""

from __future__ import annotations

import csv
import dataclasses
import itertools
import shlex
import subprocess
from parser import parse
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import Config, ConfigError, make_config
from fedmatch_tf.results import reproduce, results
from fedmatch_tf.results.experiments import EXPERIMENTS, PAPER_EXPERIMENTS, configs, hours, run_words
from fedmatch_tf.results.paper import reported
from fedmatch_tf.results.time_left import TimeLeft
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
    assert {(config.arch, config.frac_clients) for config in configs("alexnet", (1,), {})} == {
        ("alexnet", 0.05),
        ("alexnet", 0.1),
        ("alexnet", 0.2),
        ("alexnet", 1.0),
    }
    assert any(config.no_icc for config in configs("ablation-icc", (1,), {}))


@pytest.mark.parametrize("name", ["batch", "streaming", "covid", "alexnet", "ablation-labels"])
def test_every_run_of_a_table_has_its_value_in_the_paper(name: str) -> None:
    for config in configs(name, (1,), {}):
        assert reported(dataclasses.asdict(config)) is not None, config


def test_settings_given_scale_an_experiment_down() -> None:
    small = configs("batch", (1,), {"num_rounds": 2, "arch": "alexnet"})
    assert all((config.num_rounds, config.arch) == (2, "alexnet") for config in small)
    assert sum(map(hours, small)) < 0.01 * sum(map(hours, configs("batch", (1,), {})))
    with pytest.raises(ConfigError, match="decided by the experiment"):
        configs("batch", (1,), {"seed": 4})
    with pytest.raises(ConfigError, match="expected one of batch, streaming"):
        configs("table9", (1,), {})


def test_a_setting_without_meaning_for_a_run_is_left_out_of_it_and_that_is_said() -> None:
    small = reproduce.plan("communication", (1,), {"num_rounds": 4, "num_steps": 2})
    assert {(config.kind, config.num_rounds, config.num_steps) for config in small.configs} == {
        ("bimb", 4, 1),
        ("simb", 4, 2),
    }
    assert small.notes == ["--num-steps is left out where the task is not streaming"]
    short = reproduce.plan("communication", (1,), {"num_rounds": 3})
    assert {config.num_steps for config in short.configs if config.kind == "simb"} == {3}
    assert short.notes == ["streaming tasks: 3 steps, one per round"]
    local = reproduce.plan("streaming", (1,), {"drop_rate": 0.5, "eval_clients": "valid", "labeled_clients": 2})
    for config in local.configs:
        shares = config.model.startswith("local")
        assert (config.drop_rate, config.eval_clients) == ((0.0, "auto") if shares else (0.5, "valid"))
        no_labels = config.scenario == "ls" or config.model in ("local-uda", "local-fixmatch")
        assert config.labeled_clients == (None if no_labels else 2)


def test_a_setting_that_a_run_never_looks_at_is_left_out_of_it() -> None:
    planned = reproduce.plan("alexnet", (1,), {"no_icc": True, "mu": 0.5})
    assert {(config.model, config.no_icc) for config in planned.configs if config.no_icc} == {("fedmatch", True)}
    assert {config.algorithm for config in planned.configs if config.mu == 0.5} == {"fedprox"}
    assert planned.notes == [
        "--no-icc is left out where it has no effect",
        "--mu is left out where it has no effect",
    ]
    for device in ({"profile": "official"}, {"lr_memory": "device"}):
        planned = reproduce.plan("batch", (1,), {**device, "lr_devices": 3})
        assert {(config.lr_memory, config.lr_devices) for config in planned.configs} == {("device", 3)}
        assert planned.notes == []
    gpus = reproduce.plan("covid", (1,), {"gpu": (0, 1), "clients_per_gpu": 2})
    assert {config.clients_per_gpu for config in gpus.configs} == {2}


def test_the_time_left_learns_from_the_runs_that_are_done() -> None:
    config = make_config("lc-biid-c10", num_rounds=10)
    estimate, left = 3600 * hours(config), TimeLeft()
    assert left.of([(config, None)]) == pytest.approx(estimate + 30)
    left.learn(config, num_rounds=5, seconds=estimate, wall=estimate + 100)  # twice as slow as thought
    assert left.of([(config, None)] * 2) == pytest.approx(2 * (2 * estimate + 100))
    half = results.Result("", results.PARTIAL, "", {}, [{}] * 5)
    whole = half._replace(state=results.FINISHED)
    assert left.of([(config, half), (config, whole)]) == pytest.approx(estimate + 100)


def test_runs_with_other_partitions_use_other_folders() -> None:
    folders: dict[tuple[str, str], Config] = {}
    for name in EXPERIMENTS:
        for config in reproduce.plan(name, (1, 2), {}).configs:
            other = folders.setdefault((config.dataset_path, config.task), config)
            for field in ("seed", "labels_per_class", "num_clients", "num_test"):
                assert getattr(other, field) == getattr(config, field)
    assert len({config.dataset_path for config in reproduce.plan("curves", (1,), {}).configs}) == 4


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_dry_run_prints_commands_that_make_the_same_runs(name: str) -> None:
    for config in reproduce.plan(name, (1,), {"num_rounds": 12} if name in PAPER_EXPERIMENTS else {}).configs:
        words = shlex.split(reproduce.command(config))
        assert words[:2] == ["python", "main.py"]
        assert parse(words[2:]).config == config


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
    assert names == ["fedmatch", "fedmatch, profile official", "fedmatch, no-icc", "fedmatch, no-decomposition"]


def test_a_run_is_found_again_by_what_it_is(tmp_path: Path) -> None:
    config = make_config("lc-biid-c10", num_rounds=3, output_path=str(tmp_path), seed=2)
    assert reproduce.find_run(config) is None
    (tmp_path / "logs" / "no run").mkdir(parents=True)
    write_run(tmp_path / "logs" / "other", [0.1] * 3, seed=1)
    write_run(tmp_path / "logs" / "other-lr", [0.1] * 3, seed=2, lr=0.1)
    assert reproduce.find_run(config) is None
    write_run(tmp_path / "logs" / "partial", [0.1], seed=2, num_rounds=3, workers=7)
    write_run(tmp_path / "logs" / "further", [0.1, 0.2], seed=2, num_rounds=3)
    assert reproduce.find_run(config) is None, "without a checkpoint it can't go on"
    for name in ("partial", "further"):
        (tmp_path / "check_pts" / name).mkdir(parents=True)
    found = reproduce.find_run(config)
    assert found is not None
    assert (found.name, found.state) == ("further", "partial")
    write_run(tmp_path / "logs" / "whole", [0.1] * 3, seed=2)
    found = reproduce.find_run(config)
    assert found is not None
    assert (found.name, found.state) == ("whole", "finished")


def test_the_list_and_its_refusals(tmp_path: Path) -> None:
    result = run_main("--work-type=reproduce", "--list", "--seeds=1", cwd=tmp_path)
    assert result.returncode == 0
    for name in EXPERIMENTS:
        assert f"\n{name} " in result.stdout
    assert_refused(run_main("--work-type=reproduce", cwd=tmp_path), "--experiment: expected a name")
    for seeds in ("0", "²", "1001", "9" * 5000):
        result = run_main("--work-type=reproduce", "--experiment=batch", f"--seeds={seeds}", cwd=tmp_path)
        assert_refused(result, "--seeds: expected a number of seeds from 1 to 1000")
    for seeds in ("1,1", "1,x", "1,", "1,4294967296", "-1,2"):
        result = run_main("--work-type=reproduce", "--experiment=batch", f"--seeds={seeds}", cwd=tmp_path)
        assert_refused(result, "--seeds: expected")
    assert_refused(run_main("--task=lc-biid-c10", "--experiment=batch", cwd=tmp_path), "are for --work-type reproduce")
    assert_refused(run_main("--task=lc-biid-c10", "--dry-run", cwd=tmp_path), "is for --work-type reproduce")
    short = run_main("--work-type=reproduce", "--list", "--image-size=16", cwd=tmp_path)
    assert "not with these settings: --image-size" in short.stdout
    other = make_config("lc-biid-c10", num_rounds=3, output_path=str(tmp_path), source="elsewhere.npz")
    assert reproduce.find_run(other) is None


def test_a_reproduction_does_what_is_missing_and_reports(tmp_path: Path, commands: CommandServer) -> None:
    x, y = made_up_images(300, num_classes=5, size=20)
    save_npz(tmp_path / "small.npz", x, y)

    def go(seeds: int) -> subprocess.CompletedProcess[str]:
        return commands.run(
            "--work-type=reproduce",
            "--experiment=ablation-parts",
            f"--seeds={seeds}",
            "--source=small.npz",
            "--arch=alexnet",
            "--image-size=20",
            "--num-clients=3",
            "--frac-clients=0.7",
            "--num-rounds=1",
            "--num-test=30",
            "--num-valid=20",
            "--labels-per-class=2",
            "--backend=inline",
            "--threads-per-worker=1",
            cwd=tmp_path,
        )

    first = go(1)
    assert first.returncode == 0, first.stderr
    second = go(2)
    assert second.returncode == 0, second.stderr
    assert "seed 1: done" in second.stderr
    assert "seed 2: starting" in second.stderr
    assert len(list((tmp_path / "outputs" / "logs").iterdir())) == 2
    folder = tmp_path / second.stdout.splitlines()[-1]
    (row,) = csv.DictReader((folder / "tables" / "accuracy.csv").open())
    assert (row["seeds"], row["rounds"]) == ("2", "1")
    assert list((folder / "figures").glob("parts-*.png"))
    assert list((folder / "figures").glob("confusion-*.png"))
    assert list((folder / "figures").glob("classes-*.png"))


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
    run = {
        (
            name,
            config.task,
            config.num_clients,
            config.num_rounds,
            config.frac_clients,
            config.labels_per_class,
            config.num_steps,
        )
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
        assert not taken or int(taken) == round(sum(map(hours, found)))


@pytest.mark.parametrize("num_clients", [10, 100])
def test_the_papers_streaming_values_of_alexnet_hold_for_both_readings_of_their_caption(num_clients: int) -> None:
    config = make_config("lc-simb-fmnist", arch="alexnet", num_clients=num_clients, frac_clients=1.0, profile="paper")
    value = reported(dataclasses.asdict(config))
    assert value is not None
    assert value.accuracy == 63.84
    resnet9 = make_config("lc-simb-fmnist", num_clients=100, frac_clients=1.0, profile="paper")
    assert reported(dataclasses.asdict(resnet9)) is None, "table 2 says 10"
