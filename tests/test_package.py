"""The project as a package: what an installation brings along, and the notebook."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from fedmatch_tf import __version__
from tests.conftest import ROOT


def test_every_version_is_the_same() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    for path in re.findall(r'file = \["(.*?)"\]', text):
        assert (ROOT / path).is_file()
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("python", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_an_installation_takes_the_base_of_its_python(python: str) -> None:
    def pins(lines: Iterable[str]) -> set[str]:
        wanted = [Requirement(line) for line in lines]
        of_python = {"python_version": python}
        return {f"{one.name}{one.specifier}" for one in wanted if one.marker is None or one.marker.evaluate(of_python)}

    text = (ROOT / "pyproject.toml").read_text()
    listed = re.findall(r'"([^"]+)"', text.split("\ndependencies = [")[1].split("\n]")[0])
    name = "requirements-current.txt" if python in ("3.12", "3.13") else "requirements.txt"
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    assert pins(listed) == pins(lines)
    assert len(pins(listed)) >= 10


@pytest.mark.parametrize("name", ["requirements", "requirements-current"])
def test_a_lock_file_has_every_pin_and_hashes_for_all(name: str) -> None:
    lock = (ROOT / f"{name}.lock.txt").read_text()
    entries = re.split(r"\n(?=[a-z])", lock.split("\n", 2)[2])
    assert all("--hash=sha256:" in entry for entry in entries)
    locked = {entry.split(" ")[0] for entry in entries}
    pins = [line for line in (ROOT / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    assert {line.split(";")[0].strip() for line in pins} <= locked
    assert len(locked) > 2 * len(pins)  # and what they need


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_installed_command_works_from_anywhere(tmp_path: Path) -> None:
    source = tmp_path / "source"
    wanted = ("pyproject.toml", "README.md", "LICENSE", "fedmatch_tf")
    source.mkdir()
    for path in [*(ROOT / name for name in wanted), *ROOT.glob("requirements*.txt")]:
        (shutil.copytree if path.is_dir() else shutil.copy)(path, source / path.name)
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(source)]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    shutil.rmtree(source)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    def fedmatch(*arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(target), "KERAS_HOME": str(tmp_path)}
        command = [sys.executable, str(target / "bin" / "fedmatch"), *arguments]
        return subprocess.run(command, cwd=elsewhere, env=environment, capture_output=True, text=True, check=False)

    assert fedmatch("--version").stdout == f"fedmatch_tf {__version__}\n"
    tiny = ("--arch=alexnet", "--num-clients=2", "--num-rounds=1", "--workers=2", "--quiet")
    trained = fedmatch("--task=lc-biid-digits", *tiny)
    assert trained.returncode == 0, trained.stderr
    report = fedmatch("--work-type", "report", "--runs", "outputs/logs/*", "--quiet")
    assert report.returncode == 0, report.stderr
    assert (elsewhere / report.stdout.splitlines()[-1] / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert "test accuracy" in text
    assert "fedavg-fixmatch" in text
    assert any("image/png" in output.get("data", {}) for output in outputs), "the curves are drawn"
    truth = re.search(r"truth +\[(.*)\]", text)
    assert truth is not None
    assert truth[1].split() == ["0", "1", "2", "3", "4", "5", "6", "7"]
    assert (tmp_path / "two-methods.png").is_file()
