"""A setting is added as one field of Config: all else follows from it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, assert_refused, run

FIELDS = """
    warmup: int = rounds(
        "rounds whose lr rises", 2, rules.NOT_NEGATIVE, rules.LABELED_SERVER, by={"ls": 4}, refuse=True
    )
    nap: float | None = worked_on("seconds of sleep after a round", None, rules.POSITIVE)
"""
TASK = ("--task", "ls-biid-digits")
RUN = ("task=ls-biid-digits", "num_clients=2", "num_rounds=2", "frac_clients=1", "backend=inline")


class Project:
    """A copy of the project with two more settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("fedmatch_tf", "tests"):
            shutil.copytree(ROOT / name, folder / name)
        record = folder / "fedmatch_tf" / "config" / "record.py"
        text = record.read_text()
        record.write_text(text.replace("\n    lr: float = ", f"{FIELDS}\n    lr: float = ", 1))

    def main(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return python(self.folder, self.folder, "-m", "fedmatch_tf", *arguments)

    def train(self, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return python(self.folder, self.folder, "-m", "tests.stand_in", str(cwd), *arguments)


def python(root: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, *arguments, cwd=cwd, PYTHONPATH=str(root))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("project"))


def settings_of(cwd: Path, result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """Those in config.json of the run that is printed last."""
    assert result.returncode == 0, result.stderr
    about = json.loads((cwd / result.stdout.splitlines()[-1] / "config.json").read_text())
    return dict(about["settings"])


def test_its_flag_help_and_checks_follow_from_the_field(project: Project) -> None:
    shown = " ".join(project.main("--help").stdout.split())
    assert "--warmup N rounds whose lr rises; default: by task" in shown
    assert "--nap X seconds of sleep after a round" in shown
    assert "rounds whose lr rises; default: 4" in " ".join(project.main(*TASK, "--help").stdout.split())
    assert "--warmup" not in project.main("report", "--help").stdout
    refused = project.main(*TASK, "--warmup=-1")
    assert_refused(refused, "--warmup: expected a whole number 0 or greater, received -1")
    assert_refused(project.main(*TASK, "--warmp=1"), "did you mean --warmup?")
    without = project.main("--task=lc-biid-digits", "--warmup=1")
    assert_refused(without, "--warmup: has no meaning here: the server has no labels; leave it out")


def test_it_is_recorded_and_a_run_goes_on_with_it(project: Project, tmp_path: Path) -> None:
    first = project.train(tmp_path, *RUN, "warmup=1")
    recorded = settings_of(tmp_path, first)
    assert (recorded["warmup"], recorded["nap"]) == (1, None)
    resume = f"resume={first.stdout.splitlines()[-1]}"
    assert_refused(project.train(tmp_path, resume, "warmup=3"), "--warmup: the run has 1, received 3")
    recorded = settings_of(tmp_path, project.train(tmp_path, resume, "num_rounds=3", "nap=0.5"))
    assert (recorded["warmup"], recorded["nap"], recorded["num_rounds"]) == (1, 0.5, 3)


def test_a_run_from_before_it_was_added_goes_on_with_its_default(project: Project, tmp_path: Path) -> None:
    before = python(ROOT, ROOT, "-m", "tests.stand_in", str(tmp_path), *RUN)
    assert "warmup" not in settings_of(tmp_path, before)
    resume = f"resume={before.stdout.splitlines()[-1]}"
    recorded = settings_of(tmp_path, project.train(tmp_path, resume, "num_rounds=3"))
    assert (recorded["warmup"], recorded["nap"], recorded["num_rounds"]) == (4, None, 3)
