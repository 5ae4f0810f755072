"""A report's folder: a page that needs nothing else, figures and tables as files."""

from __future__ import annotations

import base64
import io
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape
from matplotlib.figure import Figure

from fedmatch_tf.report.tables import Table, comma_separated, latex, markdown

MARKS = ("finished", "partial", "unreadable", "agrees", "differs")  # words that are coloured


def write(
    output: Path,
    page: str,
    title: str,
    lead: str,
    tables: Sequence[Table],
    figures: Iterable[tuple[str, str, Figure]],
    settings: Sequence[tuple[str, Sequence[tuple[str, str]]]] = (),
    parent: str = "reports",
    files: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Writes <output>/<parent>/<time>/ whole or not at all; returns it.

    Args:
        files: more of them, name to text.
    """
    folder = _new_folder(output / parent)
    partial = folder.with_name(f".{folder.name}.partial")
    try:
        for name in ("figures", "tables"):
            (partial / name).mkdir(parents=True)
        drawn = [_save(figure, partial / "figures" / name, caption) for name, caption, figure in figures]
        for table in tables:
            for ending, text in (("md", markdown(table)), ("csv", comma_separated(table)), ("tex", latex(table))):
                (partial / "tables" / f"{table.name}.{ending}").write_text(text, encoding="utf-8")
        environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=select_autoescape())
        html = environment.get_template("template.html").render(
            title=title, lead=lead, tables=tables, figures=drawn, settings=settings, marks=MARKS
        )
        for name, text in {page: html, **files}.items():
            (partial / name).write_text(text, encoding="utf-8")
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder


def _save(figure: Figure, path: Path, caption: str) -> Mapping[str, Any]:
    """Writes PNG and SVG; what the page needs of it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=130)
    path.with_name(f"{path.name}.png").write_bytes(buffer.getvalue())
    figure.savefig(path.with_name(f"{path.name}.svg"), format="svg")
    return {"title": caption, "png": base64.b64encode(buffer.getvalue()).decode()}


def _new_folder(parent: Path) -> Path:
    """A folder named by the time that isn't there yet."""
    while True:
        folder = parent / f"{datetime.now():%Y%m%d-%H%M%S}"
        if not folder.exists() and not folder.with_name(f".{folder.name}.partial").exists():
            return folder
        time.sleep(0.2)
