"""Reports on what is odd: many classes, names that are no text, cells that LaTeX would take for orders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.results import plots, results, tables
from tests.conftest import ROOT, assert_refused, run_main
from tests.results.made_up_runs import write_run
from tests.results.test_compare import write_original


def test_of_many_classes_those_with_the_most_mistakes_are_drawn() -> None:
    values = np.diag(np.full(1000, 5))
    values[7, 9] = values[990, 3] = 4
    figure = plots.confusion("All", values, [f"class {number}" for number in range(1000)], "images")
    (axes, _) = figure.axes
    assert axes.get_title(loc="left") == "All: the 50 of 1,000 classes with the most mistakes"
    names = [label.get_text() for label in axes.get_xticklabels()]
    assert len(names) == 50
    assert {"class 3", "class 7", "class 9", "class 990"} <= set(names)
    drawn = np.asarray(axes.images[0].get_array())
    assert drawn[names.index("class 7"), names.index("class 9")] == 4
    few = plots.confusion("Few", values[:10, :10], [str(number) for number in range(10)], "images")
    assert few.axes[0].get_title(loc="left") == "Few"


def test_a_report_of_thousands_of_classes_ends(tmp_path: Path) -> None:
    run = write_run(tmp_path / "logs" / "run", [0.1, 0.2])
    names = [f"class {number}" for number in range(3000)]
    (run / "confusion.json").write_text(json.dumps({"matrix": np.eye(3000, dtype=int).tolist(), "class_names": names}))
    counts = [[1] * 3000 for _ in range(20)]
    (run / "partition.json").write_text(json.dumps({"unlabeled": counts, "class_names": names}))
    result = run_main("--work-type=report", "--runs", str(run), "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    figures = [path.name for path in (tmp_path / result.stdout.strip() / "figures").glob("*.png")]
    assert any(name.startswith("confusion-") for name in figures)
    assert any(name.startswith("classes-") for name in figures)


@pytest.mark.parametrize(
    ("cell", "expected"),
    [("[1] a", "{}[1] a"), ("*b", "{}*b"), ("  [x]", "{}  [x]"), ("a [1]", "a [1]"), ("5 % & more", r"5 \% \& more")],
)
def test_no_cell_is_an_order_for_latex(cell: str, expected: str) -> None:
    assert tables.escape_latex(cell) == expected


def test_a_folder_that_is_no_run_is_the_users_mistake(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for work in (("report",), ("compare", "--official", "photos")):
        assert_refused(run_main("--work-type", *work, "--runs", "photos", cwd=tmp_path))
    assert not (tmp_path / "outputs").exists()


def test_an_original_of_a_huge_seed_is_compared(tmp_path: Path) -> None:
    write_run(tmp_path / "logs" / "run", [0.1, 0.2])
    write_original(tmp_path / "original", [0.1, 0.2], seed=10**400)
    (tmp_path / "logs" / "run" / "server.txt").write_text(json.dumps({"scores": {}, "s2c": {}, "c2s": {}}))
    result = run_main("--work-type=compare", "--official=original", "--runs", "logs/*", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / result.stdout.strip() / "compare.html").read_text()
    assert "a whole number of more than 100 digits" in page


def odd(arguments: list[Any], cwd: Path, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, str(ROOT / "main.py"), *arguments]
    return subprocess.run(command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, check=False)


def test_folder_names_that_are_no_text_are_worked_with(tmp_path: Path) -> None:
    name = b"caf\xe9"
    made = odd([b"--work-type=gen_data", b"--task=lc-biid-digits", b"--dataset-path", name], tmp_path)
    assert made.returncode == 0, made.stderr
    folder = os.path.join(os.fsencode(tmp_path), name, b"lc-biid-digits", b"manifest.json")  # noqa: PTH118
    assert os.path.exists(folder)  # noqa: PTH110
    run = write_run(tmp_path / "logs" / "run", [0.1, 0.2])
    os.rename(os.fsencode(run), os.path.join(os.fsencode(run.parent), name))  # noqa: PTH104, PTH118
    reported = odd([b"--work-type=report", b"--runs", b"logs/*", b"--output-path", name], tmp_path)
    assert reported.returncode == 0, reported.stderr
    pages = list(Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).rglob("report.html"))  # noqa: PTH118
    assert "caf\\udce9" in pages[0].read_text()


def test_an_ascii_terminal_gets_escapes(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for arguments in (["--help"], ["--work-type=gen_data", "--task=lc-biid-digits", "--dataset-path=σψ"]):
        result = odd(arguments, tmp_path, **plain)
        assert result.returncode == 0, result.stderr
        result.stdout.decode("ascii")
        assert b"Traceback" not in result.stderr


def test_a_long_reason_of_a_stop_and_a_file_that_is_too_large_do_not_end_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", [0.1], num_rounds=3)
    (folder / "stopped.txt").write_text("TrainingError: a\n" + "traceback " * 1000)
    assert results.read(folder).remark == "1 of 3 rounds; stopped by TrainingError: a"
    (folder / "confusion.json").write_text(" " * 10_000)
    monkeypatch.setattr(results, "MAX_BYTES", 5000)
    found = results.read(folder)
    assert found.confusion is None
    assert "confusion.json is left out" in found.remark
    assert "expected at most 5.0 kB, received 10.0 kB" in found.remark


def test_a_path_of_thousands_of_letters_is_not_repeated_whole(tmp_path: Path) -> None:
    name = "x" * 5000
    for arguments in (
        ["--resume", name],
        ["--work-type=report", "--runs", name],
        ["--task=lc-biid-own", "--source", name],
    ):
        result = run_main(*arguments, cwd=tmp_path)
        assert_refused(result, "characters)")
        assert len(result.stderr) < 4500
