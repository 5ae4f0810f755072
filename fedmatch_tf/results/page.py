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
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, select_autoescape
from matplotlib.figure import Figure

from fedmatch_tf.results.tables import Table, Value, comma_separated, latex, markdown, text

MARKS = ("finished", "partial", "unreadable", "agrees", "differs")  # words that are coloured
MOST_ROWS = 200  # of a table on the page; its files have all


class Section(NamedTuple):
    """A part of a page."""

    title: str
    tables: Sequence[Table]
    figures: Iterable[tuple[str, str, Figure]] = ()  # file name, title, figure


def write(
    output: Path,
    page: str,
    title: str,
    lead: str,
    sections: Sequence[Section],
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
        shown = []
        for number, section in enumerate(sections):
            for table in section.tables:
                for ending, as_text in (("md", markdown), ("csv", comma_separated), ("tex", latex)):
                    (partial / "tables" / f"{table.name}.{ending}").write_text(as_text(table), encoding="utf-8")
            drawn = [_save(figure, partial / "figures" / name, told) for name, told, figure in section.figures]
            if section.tables or drawn:
                tables = [_shown(table) for table in section.tables]
                shown.append({"id": f"part-{number}", "title": section.title, "tables": tables, "figures": drawn})
        environment = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=select_autoescape())
        html = environment.get_template("template.html").render(
            title=title, lead=lead, sections=shown, settings=settings, marks=MARKS
        )
        for name, content in {page: html, **files}.items():
            (partial / name).write_text(content, encoding="utf-8")
        partial.replace(folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return folder


def _shown(table: Table) -> Mapping[str, Any]:
    """What the page needs of a table; numbers are set to the right."""
    rows = [
        [{"text": text(cell), "is_number": isinstance(cell, Value)} for cell in row] for row in table.rows[:MOST_ROWS]
    ]
    more = max(len(table.rows) - MOST_ROWS, 0)
    return {**table._asdict(), "rows": rows, "more": more}


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
