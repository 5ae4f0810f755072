"""The project as a package: what an installation brings along, its doors, and the notebook."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement

from data.loader import load_client, load_test, open_partitions
from fedmatch_tf import __version__
from tests.conftest import ROOT, run


def test_every_version_is_the_same() -> None:
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def pins(name: str, python: str) -> dict[str, str]:
    """Package -> version that the file has for a Python, each at most once."""
    lines = [line for line in (ROOT / name).read_text().splitlines() if line[:1] not in ("", " ", "#")]  # no hashes
    wanted = [Requirement(line.rstrip("\\ ")) for line in lines]
    about = {"python_version": python, "python_full_version": f"{python}.1", "platform_machine": "x86_64"}
    fitting = [one for one in wanted if one.marker is None or one.marker.evaluate({**about, "sys_platform": "linux"})]
    assert len({one.name for one in fitting}) == len(fitting)
    return {one.name: str(one.specifier) for one in fitting}


@pytest.mark.parametrize("python", ["3.9", "3.10", "3.11", "3.12", "3.13"])
def test_a_python_gets_the_packages_of_its_base_and_the_lock_has_them_all(python: str) -> None:
    second = python in ("3.12", "3.13")
    found = pins("requirements.txt", python)
    assert found["tensorflow"] == ("==2.21.0" if second else "==2.15.1")
    assert ("tensorflow-addons" in found, "tf-keras" in found) == (not second, second)
    assert len(found) == 11
    locked = pins("requirements/lock.txt", python)
    assert found.items() <= locked.items()
    assert len(locked) > 2 * len(found)  # and what they need
    assert {*pins("requirements/gpu.txt", python).items()} == {("tensorflow", found["tensorflow"])}
    assert "ray" in pins("requirements/ray.txt", python)


def test_every_file_of_the_lock_has_a_hash() -> None:
    entries = re.split(r"\n(?=[a-z])", (ROOT / "requirements" / "lock.txt").read_text().split("\n", 2)[2])
    assert all("--hash=sha256:" in entry for entry in entries)


class Installed(NamedTuple):
    """What the wheel brings, and a directory with none of our files."""

    folder: Path
    elsewhere: Path

    def python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        own = {"PYTHONPATH": str(self.folder), "KERAS_HOME": str(self.elsewhere)}
        return run(sys.executable, *arguments, cwd=self.elsewhere, **own)


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "README.md", "LICENSE", "requirements.txt", "requirements", "fedmatch_tf"):
        path, copy = ROOT / name, folder / "source" / name
        copy.parent.mkdir(exist_ok=True)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, copy)
    target = ["--target", str(folder / "installed"), str(folder / "source")]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", *target]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    shutil.rmtree(folder / "source")
    return folder / "installed"


@pytest.fixture
def installed(installation: Path, tmp_path: Path) -> Installed:
    return Installed(installation, tmp_path)


@pytest.mark.slow
def test_the_wheel_has_one_package_with_all_its_files(installed: Installed) -> None:
    tops = {path.name for path in installed.folder.iterdir() if not path.name.endswith(".dist-info")}
    assert tops == {"bin", "fedmatch_tf"}
    assert [path.name for path in (installed.folder / "bin").iterdir()] == ["fedmatch"]
    package = ROOT / "fedmatch_tf"
    ours = {path.relative_to(package) for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    assert {Path("py.typed"), Path("results/template.html")} < ours
    assert all((installed.folder / "fedmatch_tf" / path).is_file() for path in ours)
    (about,) = installed.folder.glob("*.dist-info/METADATA")
    text = about.read_text()
    assert f"\nVersion: {__version__}\n" in text
    needs = {Requirement(line) for line in re.findall(r"Requires-Dist: (.*)", text) if "extra ==" not in line}
    lines = (ROOT / "requirements.txt").read_text().splitlines()
    assert needs == {Requirement(line) for line in lines if not line.startswith("#")}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_installed_command_works_from_anywhere(installed: Installed) -> None:
    fedmatch = str(installed.folder / "bin" / "fedmatch")
    assert installed.python(fedmatch, "--version").stdout == f"fedmatch_tf {__version__}\n"
    tiny = ("--arch=alexnet", "--num-clients=2", "--num-rounds=1", "--workers=2", "--quiet")
    trained = installed.python(fedmatch, "--task=lc-biid-digits", *tiny)
    assert trained.returncode == 0, trained.stderr
    report = installed.python("-m", "fedmatch_tf", "--work-type", "report", "--runs", "outputs/logs/*", "--quiet")
    assert report.returncode == 0, report.stderr
    assert (installed.elsewhere / report.stdout.splitlines()[-1] / "report.html").is_file()


MINE = """
import data.loader, main, parser
assert data.loader.MINE == main.MINE == parser.MINE == 7
import fedmatch_tf as fm
if __name__ == "__main__":
    tiny = dict(arch="alexnet", num_clients=2, num_rounds=1, workers=2)
    assert len(fm.train("lc-biid-digits", **tiny).rounds) == 1
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_package", [True, False], ids=["data with __init__.py", "data without"])
def test_a_users_own_data_main_and_parser_live_beside_the_installed_package(
    is_package: bool, installed: Installed
) -> None:
    (installed.elsewhere / "data").mkdir()
    for name in ("data/loader.py", "main.py", "parser.py", *(["data/__init__.py"] if is_package else [])):
        (installed.elsewhere / name).write_text("MINE = 7\n")
    (installed.elsewhere / "mine.py").write_text(MINE)
    done = installed.python("mine.py")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("door", "name"),
    [
        (["main.py"], "main.py"),
        (["-m", "fedmatch_tf"], "fedmatch_tf"),
        (["-m", "data.generator"], "data.generator"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_door_says_its_own_name_and_exits_as_the_command_does(door: list[str], name: str, tmp_path: Path) -> None:
    shown = run(sys.executable, *door, "--help", COLUMNS="200")
    assert shown.returncode == 0
    assert shown.stdout.startswith(f"usage: python {' '.join(door)} [-h]")
    refused = run(sys.executable, *door, "--task", "nothing")
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"{name}: error: --task: expected")


def test_the_doors_to_the_data_make_partitions_and_read_them(tmp_path: Path) -> None:
    tiny = ["--num-clients=2", "--num-test=20", "--num-valid=20", "--labels-per-class=1", f"--dataset-path={tmp_path}"]
    command = [sys.executable, "-m", "data.generator", "--task=lc-biid-digits", *tiny]
    for outcome in ("written", "unchanged: every file is as its manifest says"):
        made = run(*command)
        assert made.returncode == 0, made.stderr
        assert made.stdout.splitlines()[-2:] == [outcome, str(tmp_path / "lc-biid-digits")]
    partitions = open_partitions(tmp_path, "lc-biid-digits")
    assert partitions.num_clients == 2
    assert load_client(partitions, 1).unlabeled.x.shape[1:] == (32, 32, 3)
    assert load_test(partitions).x.shape == (20, 32, 32, 3)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = nbformat.read(ROOT / "examples" / "quickstart.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept in the repository"
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=800, kernel_name="python3", resources=where).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    text = "".join(output.get("text", "") for output in outputs)
    assert "test accuracy" in text
    data = [output.get("data", {}) for output in outputs]
    assert sum("image/png" in each for each in data) == 2, "a run's curves and the comparison's"
    (table,) = ["".join(each["text/markdown"]) for each in data if "text/markdown" in each]
    row = dict(zip(*(line.strip("| ").split(" | ") for line in (table.splitlines()[0], table.splitlines()[2]))))
    assert (row["model"], row["compared with"], row["seeds"]) == ("fedmatch", "fedavg-fixmatch", "3")
    assert "Fewer than 5 seeds in 1 of 1 rows" in table
    truth = re.search(r"truth +\[(.*)\]", text)
    assert truth is not None
    assert truth[1].split() == ["0", "1", "2", "3", "4", "5", "6", "7"]
    right = re.search(r"right +(\d+) %", text)
    assert right is not None
    assert int(right[1]) > 20, "twice what guessing has"
