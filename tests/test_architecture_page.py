"""docs/ARCHITECTURE.md: what it names is there, and what it counts is so."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
NAMED = re.findall(r"`([a-z_]+/[a-z_0-9]+\.py)` `([\w.]+)`", PAGE.split("## Paper -> code")[1].split("## A round")[0])


@cache
def names_in(path: Path) -> frozenset[str]:
    """Functions, classes, their methods, and constants of a module."""
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
            inner = node.body if isinstance(node, ast.ClassDef) else []
            found |= {f"{node.name}.{each.name}" for each in inner if isinstance(each, ast.FunctionDef)}
        assigned = getattr(node, "targets", [getattr(node, "target", None)])
        found |= {target.id for target in assigned if isinstance(target, ast.Name)}
    return frozenset(found)


@pytest.mark.parametrize(("module", "name"), sorted(set(NAMED)))
def test_what_the_table_from_paper_to_code_names_is_there(module: str, name: str) -> None:
    path = ROOT / module if module.startswith("study/") else ROOT / "fedmatch_tf" / module
    assert name in names_in(path)


def test_the_table_has_every_equation_algorithm_line_table_and_experiment() -> None:
    from study.experiments import PAPER_EXPERIMENTS

    assert len(NAMED) > 60
    for number in range(1, 6):
        assert f"| eq. {number}," in PAGE
    lines = re.findall(
        r"^\| (?:algorithm 1, )?(lines? [\d a-z]+|-); (?:algorithm 2, )?(lines? [\d a-z]+|-):", PAGE, re.M
    )
    for column, last in ((0, 18), (1, 21)):
        covered: set[int] = set()
        for row in lines:
            numbers = [int(number) for number in re.findall(r"\d+", row[column])]
            covered |= set(range(numbers[0], numbers[-1] + 1)) if numbers else set()
        ends_of_loops = {9, 12} if column == 0 else {8, 14, 16}
        assert set(range(1, last + 1)) - covered == ends_of_loops
    for name in PAPER_EXPERIMENTS:
        assert f"`{name}`" in PAGE, name


def test_files_that_the_pages_name_are_there() -> None:
    made_by_the_reader = {
        "fedmatch_tf/algorithms/fedadagrad.py",
        "fedmatch_tf/data/datasets/stripes.py",
        "fedmatch_tf/learners/entropy.py",
        "fedmatch_tf/networks/tiny.py",
    }
    for page in (*(ROOT / "docs").glob("*.md"), ROOT / "README.md"):
        for name in set(re.findall(r"`([\w/]+/\w+\.py)`", page.read_text())) - made_by_the_reader:
            places = [ROOT / name, ROOT / "fedmatch_tf" / name, ROOT / "tests" / name]
            assert any(path.is_file() for path in places), f"{page.name}: {name}"
        for name in re.findall(r"`([a-z_]+/test_\w+)`", page.read_text()):
            assert (ROOT / "tests" / f"{name}.py").is_file(), f"{page.name}: {name}"
