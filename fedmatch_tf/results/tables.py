"""Tables whose cells are texts or numbers: as Markdown and LaTeX to read, as CSV for other programs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Union

from fedmatch_tf.results.summary import Mean


class Value(NamedTuple):
    """A number, of several runs with its deviation."""

    mean: float
    deviation: float | None = None
    digits: int = 2
    sign: bool = False  # positive ones are shown with a plus


class Missing(NamedTuple):
    """Why there is no number: shown where people read, empty in a CSV."""

    why: str


Cell = Union[str, Value, Missing]


class Table(NamedTuple):
    """What is told of several things, a row each."""

    name: str  # of its files
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    note: str = ""  # what a reader must know of it


def table_of(name: str, title: str, rows: Sequence[Mapping[str, Cell]], note: str = "") -> Table:
    """A table of rows by column, without the columns that are empty in all of them."""
    names = [column for column in (rows[0] if rows else ()) if any(row[column] for row in rows)]
    return Table(name, title, names, [[row[column] for column in names] for row in rows], note)


def value(mean: Mean | None, factor: float = 1.0, digits: int = 2) -> Cell:
    """A mean over runs as a cell; empty if there is none."""
    if mean is None:
        return ""
    return Value(factor * mean.value, None if mean.deviation is None else factor * mean.deviation, digits)


def plus_minus(mean: Mean | None) -> str:
    """12.34 ± 0.56, or 12.34 of one run."""
    return text(value(mean))


def percent(mean: Mean | None) -> str:
    """A share as per cent, without its deviation."""
    return "" if mean is None else f"{100 * mean.value:.0f}"


def text(cell: Cell) -> str:
    """The cell as people read it."""
    if isinstance(cell, Missing):
        return f"- {cell.why}"
    if not isinstance(cell, Value):
        return cell
    shown = f"{cell.mean:{'+' if cell.sign else ''}.{cell.digits}f}"
    return shown if cell.deviation is None else f"{shown} ± {cell.deviation:.{cell.digits}f}"


def texts(table: Table) -> list[list[str]]:
    """The rows as people read them."""
    return [[text(cell) for cell in row] for row in table.rows]


def markdown(table: Table) -> str:
    """The table as Markdown."""
    lines = [table.head, *texts(table)]
    cells = [[_escape_markdown(cell) for cell in line] for line in lines]
    note = f"\n{_escape_markdown(table.note)}\n" if table.note else ""
    head, *rows = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([head, "|---" * len(table.head) + "|", *rows]) + f"\n{note}"


def _escape_markdown(text: str) -> str:
    return re.sub(r"([|\\`<>*_\[\]])", r"\\\1", text).replace("\n", " ")


def comma_separated(table: Table) -> str:
    """The table as CSV: numbers as numbers, deviations in columns of their own."""
    columns = [[row[number] for row in table.rows] for number in range(len(table.head))]
    width = [2 if any(_numbers(cell)[1] for cell in column) else 1 for column in columns]
    head = [part for name, count in zip(table.head, width) for part in (name, f"{name}, deviation")[:count]]
    rows = [[part for cell, count in zip(row, width) for part in _numbers(cell)[:count]] for row in table.rows]
    return as_csv([head, *rows])


def _numbers(cell: Cell) -> tuple[str, str]:
    """(what stands in a CSV, its deviation)."""
    if isinstance(cell, Value):
        return _number(cell.mean), "" if cell.deviation is None else _number(cell.deviation)
    return ("" if isinstance(cell, Missing) else cell), ""


def _number(number: float) -> str:
    return f"{round(number, 6):.10g}"


def as_csv(rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts; one that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    for row in rows:
        writer.writerow([f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell for cell in row])
    return out.getvalue()


_FORMULA, _NUMBER = re.compile(r"[=@+\-\t\r]"), re.compile(r"[+-]?\d[\d.]*(e[+-]?\d+)?")


def latex(table: Table) -> str:
    """The table as a LaTeX tabular."""
    head, *lines = [" & ".join(map(escape_latex, row)) + r" \\" for row in (table.head, *texts(table))]
    columns = [[row[number] for row in table.rows] for number in range(len(table.head))]
    numbers = [all(isinstance(cell, (Value, Missing)) or not cell for cell in column) for column in columns]
    begin = r"\begin{tabular}{" + "".join("r" if each else "l" for each in numbers) + "}"
    note = f": {' '.join(table.note.split())}" if table.note else ""
    return (
        "\n".join([f"% {table.name}{note}", begin, r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"])
        + "\n"
    )


_LATEX = {letter: f"\\{letter}" for letter in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "\n": " ",
    "\r": " ",
}


def escape_latex(text: str) -> str:
    """The text as LaTeX prints it; behind a line's end, [ and * would be orders."""
    shield = "{}" if text.lstrip().startswith(("[", "*")) else ""
    return shield + "".join(_LATEX.get(letter, letter) for letter in text)
