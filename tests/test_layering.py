"""The house: modules import only what lies below them (docs/ARCHITECTURE.md)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conftest import ROOT

# From the ground up; a module may import from its own layer and those above it in this list.
LAYERS = [
    {"data.errors"},
    {"data.partition", "data.safe_pickle"},
    {"data.manifest", "data.readers"},
    {"data.sources", "data.figure"},
    {"data.files"},
    {"data.generator", "data.loader", "data.augment"},
    {"fedmatch_tf.presets"},
    {"fedmatch_tf", "fedmatch_tf.config", "fedmatch_tf.seeding", "fedmatch_tf.params", "fedmatch_tf.schedule"},
    {
        "fedmatch_tf.atomic",
        "fedmatch_tf.interrupts",
        "fedmatch_tf.machine",
        "fedmatch_tf.paper",
        "fedmatch_tf.continuing",
    },
    {"fedmatch_tf.scalars"},
    {"fedmatch_tf.wire", "fedmatch_tf.environment", "fedmatch_tf.inputs"},
    {"fedmatch_tf.tasks", "fedmatch_tf.store"},
    {"fedmatch_tf.record", "fedmatch_tf.display", "fedmatch_tf.figures", "fedmatch_tf.layers", "fedmatch_tf.losses"},
    {"fedmatch_tf.networks", "fedmatch_tf.helpers", "fedmatch_tf.scoring"},
    {"fedmatch_tf.evaluate"},
    {"fedmatch_tf.methods", "fedmatch_tf.methods.method"},
    {"fedmatch_tf.methods.fedmatch", "fedmatch_tf.methods.joint"},
    {"fedmatch_tf.methods.supervised", "fedmatch_tf.methods.uda", "fedmatch_tf.methods.fixmatch"},
    {"fedmatch_tf.client", "fedmatch_tf.server"},
    {"fedmatch_tf.worker", "fedmatch_tf.simulation", "fedmatch_tf.checkpoint"},
    {"fedmatch_tf.partitions"},
    {
        "fedmatch_tf.backends",
        "fedmatch_tf.backends.failure",
        "fedmatch_tf.backends.sharing",
        "fedmatch_tf.backends.temporary",
    },
    {"fedmatch_tf.backends.pool", "fedmatch_tf.backends.cluster"},
    {"fedmatch_tf.backends.inline", "fedmatch_tf.backends.process", "fedmatch_tf.backends.ray"},
    {"fedmatch_tf.backends.choose"},
    {"fedmatch_tf.runs"},
    {"fedmatch_tf.training"},
    {"fedmatch_tf.experiments"},
    {"fedmatch_tf.report", "fedmatch_tf.report.results"},
    {"fedmatch_tf.report.summary"},
    {"fedmatch_tf.report.tables", "fedmatch_tf.report.plots"},
    {"fedmatch_tf.report.page"},
    {"fedmatch_tf.report.build", "fedmatch_tf.report.compare"},
    {"fedmatch_tf.reproduce"},
    {"parser"},
    {"main"},
]
# Packages that take long to load or that one module alone may know.
ONLY_IN: dict[str, set[str]] = {
    "tensorflow_addons": {"data.augment"},
    "matplotlib": {
        "data.figure",
        "fedmatch_tf.figures",
        "fedmatch_tf.report.plots",
        "fedmatch_tf.report.page",
        "fedmatch_tf.report.compare",
    },
    "jinja2": {"fedmatch_tf.report.page"},
    "tensorboard": {"fedmatch_tf.scalars"},
    "tensorflow": {
        "data.augment",
        "data.sources",
        "fedmatch_tf.environment",
        "fedmatch_tf.layers",
        "fedmatch_tf.losses",
        "fedmatch_tf.networks",
        "fedmatch_tf.evaluate",
        "fedmatch_tf.methods.method",
        "fedmatch_tf.methods.fedmatch",
        "fedmatch_tf.methods.joint",
        "fedmatch_tf.methods.uda",
        "fedmatch_tf.methods.fixmatch",
        "fedmatch_tf.client",
        "fedmatch_tf.worker",
    },
    "ray": {"fedmatch_tf.backends.cluster", "fedmatch_tf.backends.ray"},
    "PIL": {"data.readers", "data.sources"},
    "argparse": {"parser"},
}


def modules() -> dict[str, Path]:
    files = [ROOT / "main.py", ROOT / "parser.py", *ROOT.glob("data/**/*.py"), *ROOT.glob("fedmatch_tf/**/*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).replace(".__init__", ""): path for path in files}


def imports(path: Path) -> set[str]:
    """Every module that a file imports, whether at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("name", sorted(set(modules()) - {"data"}))
def test_a_module_imports_only_downward(name: str) -> None:
    level = next((i for i, layer in enumerate(LAYERS) if name in layer), None)
    assert level is not None, f"{name} has no layer: give it one here and in docs/ARCHITECTURE.md"
    above = set().union(*LAYERS[level + 1 :])
    found = imports(modules()[name])
    assert not found & above
    if name.startswith("data."):
        assert not any(module.startswith("fedmatch_tf") for module in found)
    for package, allowed in ONLY_IN.items():
        if any(module.split(".")[0] == package for module in found):
            assert name in allowed, f"{name} imports {package}"
