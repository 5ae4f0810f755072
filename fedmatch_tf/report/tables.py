"""Tables as Markdown, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fedmatch_tf.config import Config
from fedmatch_tf.report.field import published
from fedmatch_tf.report.paper import other_settings
from fedmatch_tf.report.results import Result
from fedmatch_tf.report.summary import Mean, Summary


class Table(NamedTuple):
    """Cells as text; a column of numbers is set to the right."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def accuracy_table(summaries: Sequence[Summary]) -> Table:
    """Accuracy and cost of every group beside the paper's."""
    rows = []
    for summary in summaries:
        task, model = summary.group.label.split(": ", 1)
        cells = {
            "task": task,
            "model": model,
            "rounds": str(summary.group.settings["num_rounds"]),
            "seeds": f"{len(summary.group.finished)} of {len(summary.group.results)}",
            "final acc. (%)": plus_minus(summary.final),
            "best acc. on test data (%)": plus_minus(summary.best),
            "acc. at the lowest validation loss (%)": plus_minus(summary.validated),
            "local acc. (%)": plus_minus(summary.local),
            "paper acc. (%)": "",
            "settings that are not the paper's": "",
            "difference": "" if summary.difference is None else f"{summary.difference:+.2f}",
            "S2C (%)": percent(summary.s2c),
            "S2C without first visits (%)": percent(summary.s2c_returning),
            "C2S (%)": percent(summary.c2s),
            "paper S2C, C2S (%)": "",
            "MB per client and round": number(summary.megabytes, 1),
            "MB counted in full": number(summary.full_megabytes, 1),
            "published (%)": _published(summary.group.settings),
            "time (min)": number(summary.minutes, 1),
        }
        if (paper := summary.paper) is not None:
            cells["settings that are not the paper's"] = other_settings(Config(**summary.group.settings))
            cells["paper acc. (%)"] = plus_minus(Mean(paper.accuracy, paper.deviation)) + " local" * paper.local
            if paper.s2c is not None and paper.c2s is not None:
                cells["paper S2C, C2S (%)"] = f"{100 * paper.s2c:.0f}, {100 * paper.c2s:.0f}"
        rows.append(cells)
    title = "Accuracy and communication, mean ± deviation over finished runs"
    names = [name for name in (rows[0] if rows else ()) if any(cells[name] for cells in rows)]  # no empty column
    return Table("accuracy", title, names, [[cells[name] for name in names] for cells in rows])


def _published(settings: Mapping[str, Any]) -> str:
    """What papers of the field report for this model in this setting."""
    own = [value for value in published(settings) if value.model == settings["model"]]
    return ", ".join(f"{value.accuracy:g} ({value.where})" for value in own)


def runs_table(results: Sequence[Result]) -> Table:
    """Every run and its state."""
    rows = []
    for result in results:
        last = f"{100 * result.lines[-1]['test_acc']:.2f}" if result.lines else ""
        seed = str(result.settings.get("seed", ""))
        rows.append([result.name, result.state, result.remark, seed, str(len(result.lines)), last])
    return Table("runs", "Runs", ["run", "state", "remark", "seed", "rounds", "last acc. (%)"], rows)


def plus_minus(value: Mean | None) -> str:
    """12.34 ± 0.56, or 12.34 of one run."""
    if value is None:
        return ""
    return f"{value.value:.2f}" + ("" if value.deviation is None else f" ± {value.deviation:.2f}")


def percent(value: Mean | None) -> str:
    """A share as per cent."""
    return "" if value is None else f"{100 * value.value:.0f}"


def number(value: Mean | None, digits: int) -> str:
    """A mean without its deviation."""
    return "" if value is None else f"{value.value:.{digits}f}"


def markdown(table: Table) -> str:
    """The table as Markdown."""
    lines = [table.head, ["---"] * len(table.head), *table.rows]
    cells = [[re.sub(r"([|\\`<>*_\[\]])", r"\\\1", cell).replace("\n", " ") for cell in line] for line in lines]
    cells[1] = ["---"] * len(table.head)
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"


def comma_separated(table: Table) -> str:
    """The table as CSV; a cell that a spreadsheet would take for a formula gets an apostrophe."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.head)
    for row in table.rows:
        writer.writerow([f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell for cell in row])
    return out.getvalue()


_FORMULA, _NUMBER = re.compile(r"[=@+\-\t\r]"), re.compile(r"[+-]?\d[\d.]*")


def latex(table: Table) -> str:
    """The table as a LaTeX tabular."""
    lines = [" & ".join(escape_latex(cell) for cell in row) + r" \\" for row in table.rows]
    head = " & ".join(escape_latex(cell) for cell in table.head) + r" \\"
    begin = r"\begin{tabular}{" + "l" * len(table.head) + "}"
    return "\n".join([f"% {table.name}", begin, r"\hline", head, r"\hline", *lines, r"\hline", r"\end{tabular}"]) + "\n"


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
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
