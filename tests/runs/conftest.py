"""What a run of the stand-in leaves if nothing happens to it, for all modules that do something to it."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runs.stand_in_run import SETTINGS, call, content, only_run, run


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


@pytest.fixture(scope="module")
def stopped(undisturbed: tuple[list[str], Any], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """(a run that stopped after 5 of 8 rounds, what it would have ended with)."""
    (settings, expected), cwd = undisturbed, tmp_path_factory.mktemp("stopped")
    for client in expected["rounds"][5]["clients"]:
        (cwd / f"fault-5-{client}").write_text("data")
    assert call(cwd, *settings, "backend=inline")[0] == 2
    for fault in cwd.glob("fault-*"):
        fault.unlink()
    return only_run(cwd), expected


@pytest.fixture
def copy(stopped: tuple[Path, Any], tmp_path: Path) -> tuple[Path, Path, Any]:
    """(run folder, checkpoint folder, expected end) of a copy elsewhere: a run may be moved."""
    folder, expected = stopped
    shutil.copytree(folder.parent.parent, tmp_path / "moved")
    return tmp_path / "moved" / "logs" / folder.name, tmp_path / "moved" / "check_pts" / folder.name, expected
