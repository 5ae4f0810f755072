"""The house: a room uses those below it only (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fedmatch_tf.base.plugins import algorithms, learners
from fedmatch_tf.config.models import MODELS
from tests.conftest import ROOT

# From the ground up: a room may use itself and those before it.
ROOMS = (
    "base",
    "data",
    "config",
    "networks",
    "learners",
    "algorithms",
    "federation",
    "workers",
    "runs",
    "results",
    "front door",
    "command line",
)
# Packages that take long to load, or that few may know: the rooms and modules that import them, and nobody else.
ONLY_IN: dict[str, tuple[str, ...]] = {
    "tensorflow_addons": ("data.augment",),
    "tensorflow": (
        "base.quiet",
        "data.augment",
        "data.transforms",
        "networks",
        "learners",
        "federation.worker",
        "workers.environment",
    ),
    "matplotlib": ("base.drawing", "data.figure", "runs.curve", "results"),
    "jinja2": ("results.page",),
    "tensorboard": ("runs.tensorboard",),
    "ray": ("workers.cluster", "workers.ray"),
    "PIL": ("data.readers", "data.sources"),
    "argparse": ("parser",),
}


def modules() -> dict[str, Path]:
    """Name, without `fedmatch_tf.` -> file. The front door is `fedmatch_tf` itself."""
    files = list(ROOT.glob("fedmatch_tf/**/*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).replace(".__init__", "") for path in files]
    return {_short(name): path for name, path in zip(names, files)}


def _short(module: str) -> str:
    return module.replace("fedmatch_tf.", "", 1)


def room_of(module: str) -> str | None:
    """The room of one of our modules; None of any other package's."""
    first = module.split(".")[0]
    named = {"fedmatch_tf": "front door", "api": "front door"}
    named.update(dict.fromkeys(("main", "parser", "__main__"), "command line"))
    return named.get(first, first if first in ROOMS else None)


def imports(path: Path) -> set[str]:
    """Every module that a file imports, whether at its top or inside a function, but for names in type hints."""
    found, tree = set(), ast.parse(path.read_text())
    hints = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    only_hints = {id(inner) for node in hints for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in only_hints:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inside = {f"{node.module}.{alias.name}" for alias in node.names}
            ours = {name for name in inside if _short(name) in modules()}
            found |= ours if ours == inside else {*ours, node.module}
            found |= {"tensorflow" for alias in node.names if alias.name == "tf"}  # loaded when it is used
    return {_short(name) for name in found}


@pytest.mark.parametrize("name", sorted(modules()))
def test_a_module_uses_only_its_own_room_and_those_below(name: str) -> None:
    room = room_of(name)
    assert room is not None, f"{name} is in no room: docs/ARCHITECTURE.md has the rooms"
    used = {module: room_of(module) for module in imports(modules()[name])}
    assert not {"study", "tests", "benchmarks"} & {module.split(".")[0] for module in used}
    below = ROOMS[: ROOMS.index(room) + 1]
    assert [module for module, other in used.items() if other is not None and other not in below] == []
    for package, allowed in ONLY_IN.items():
        if any(module.split(".")[0] == package for module in used):
            assert any(name == entry or name.startswith(f"{entry}.") for entry in allowed), f"{name} imports {package}"


def test_no_module_leads_back_to_itself() -> None:
    graph = {name: imports(path) & set(modules()) for name, path in modules().items()}

    def reached(name: str, seen: set[str]) -> set[str]:
        for used in graph[name] - seen:
            seen.add(used)
            reached(used, seen)
        return seen

    assert [name for name in graph if name in reached(name, set())] == []


def test_no_other_room_checks_which_algorithm_or_learner_runs() -> None:
    ends = {*(f"{name}-" for name in algorithms()), *(f"-{name}" for name in learners())}
    names = {*MODELS, *algorithms(), *learners(), *ends}
    asking = []
    for module, path in modules().items():
        if room_of(module) in ("learners", "algorithms"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            compared = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in ("startswith", "endswith"):
                compared = [*node.args]
            texts = {each.value for part in compared for each in ast.walk(part) if isinstance(each, ast.Constant)}
            if texts & names:
                asking.append(f"{module}: {ast.unparse(node)}")
    assert asking == []


# Who reads files without base/untrusted.py, and why: content that it has read already; our own; the user's own code.
READS_ITSELF = {
    "data/files.py",
    "federation/inputs.py",
    "networks/files.py",
    "runs/expected.py",  # what the system says of its memory
    "workers/environment.py",  # what the system says of its processors
    "workers/own_code.py",
}


def test_files_of_others_are_read_in_one_place() -> None:
    found = set()
    for path in (ROOT / "fedmatch_tf").rglob("*.py"):
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        named = [f"{getattr(call.value, 'id', '')}.{call.attr}" for call in calls if isinstance(call, ast.Attribute)]
        direct = [name for name in named if name.split(".")[1] in ("read_bytes", "read_text") or name == "np.load"]
        if any(not name.startswith("untrusted.") for name in direct) and path.name != "untrusted.py":
            found.add("/".join(path.parts[-2:]))
    assert found == READS_ITSELF
