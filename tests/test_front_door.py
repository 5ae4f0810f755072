"""`import fedmatch_tf`: what a script or a notebook can do, and what it is told when it can't."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedmatch_tf as fm
from tests.conftest import ROOT
from tests.results.made_up_runs import line, write_run


def python(script: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    (cwd / "script.py").write_text(script)
    command = [sys.executable, "script.py"]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(cwd), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.timeout(300)
def test_what_trains_in_this_process_passes_in_one_of_its_own() -> None:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "tests/inline_front_door.py"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
    assert result.stdout.startswith("........"), "eight tests"


def test_a_frame_has_a_column_for_each_part_and_says_if_pandas_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = fm.load_run(write_run(tmp_path / "logs" / "run", [0.25, 0.5]))
    frame = result.frame()
    assert frame["test_acc"].tolist() == [0.25, 0.5]
    assert frame["s2c.sum"].tolist() == [line(n, 0.5)["s2c"]["sum"] for n in range(2)]
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(fm.ConfigError, match="pip install 'pandas<3'"):
        result.frame()


@pytest.mark.parametrize("run", [None, 3, b"outputs/logs/run", ["run"], "a\0b"], ids=repr)
def test_what_is_no_path_of_a_run_is_refused_with_what_was_received(run: Any) -> None:
    for function in (fm.load_run, fm.load_model, fm.resume):
        with pytest.raises(
            fm.ConfigError, match=r"^run: expected the folder of a run, as a path, or a result; received"
        ):
            function(run)


def test_a_plot_is_a_figure_that_a_notebook_shows(tmp_path: Path) -> None:
    figure = fm.load_run(write_run(tmp_path / "logs" / "run", [0.25, 0.5])).plot()
    assert [axes.get_title() for axes in figure.axes] == ["test accuracy", "pseudo-labels", "communication cost"]
    (curve,) = figure.axes[0].get_lines()
    assert np.asarray(curve.get_ydata()).tolist() == [25.0, 50.0]
    assert figure._repr_png_()[1:4] == b"PNG"  # type: ignore[attr-defined]


def test_neither_the_import_nor_a_finished_run_loads_tensorflow(tmp_path: Path) -> None:
    write_run(tmp_path / "logs" / "run", [0.25, 0.5])
    script = """
import sys
import fedmatch_tf as fm
assert not {"numpy", "matplotlib", "tensorflow"} & set(sys.modules), "an import costs nothing"
assert fm.load_run("logs/run").test_acc == 0.5
fm.make_config("lc-biid-c10")
assert "tensorflow" not in sys.modules
"""
    result = python(script, tmp_path)
    assert result.returncode == 0, result.stderr


GUARDED = """
import fedmatch_tf as fm
if __name__ == "__main__":
    settings = {"model": "fedavg-sl", "arch": "alexnet", "num_rounds": 1, "num_clients": 2, "frac_clients": 0.5}
    result = fm.train("lc-biid-digits", workers=1, **settings)
    print(len(result.rounds))
"""


def test_a_script_with_a_guard_trains_in_worker_processes(tmp_path: Path) -> None:
    result = python(GUARDED, tmp_path)
    assert (result.returncode, result.stdout, result.stderr) == (0, "1\n", "")


def test_a_script_without_a_guard_is_told_so_before_anything_starts(tmp_path: Path) -> None:
    result = python(GUARDED.replace('if __name__ == "__main__":', "if True:"), tmp_path)
    assert result.returncode == 1
    error = result.stderr.splitlines()[-1]
    assert "script.py, line 5: expected the training inside `if __name__" in error
    assert 'backend="inline"' in error
    assert not (tmp_path / "outputs").exists()


def test_a_script_on_standard_input_is_told_what_to_do(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    script = "import fedmatch_tf as fm\nfm.train('lc-biid-digits', arch='alexnet', num_rounds=1)\n"
    command = [sys.executable, "-"]
    result = subprocess.run(
        command, input=script, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert "received one on standard input" in result.stderr.splitlines()[-1]
    assert not (tmp_path / "outputs").exists()


@pytest.mark.parametrize(
    ("script", "fine"),
    [
        ("def go():\n    check_script()\nif __name__ == '__main__':\n    go()\n", True),
        ("try:\n    if __name__ == '__main__':\n        check_script()\nfinally:\n    pass\n", True),
        ("import sys\nif __name__ != '__main__':\n    sys.exit()\ncheck_script()\n", True),
        ("check_script()\n", False),
        ("if __name__ == '__main__':\n    pass\ncheck_script()\n", False),
        ("with open(__file__):\n    check_script()\n", False),
    ],
)
def test_a_guard_is_recognised_wherever_it_stands(script: str, fine: bool, tmp_path: Path) -> None:
    result = python(f"from fedmatch_tf.workers.own_code import check_script\n{script}", tmp_path)
    assert (result.returncode == 0) == fine, result.stderr
    assert fine or "expected the training inside" in result.stderr
