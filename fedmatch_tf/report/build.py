"""--work-type report: run folders to a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedmatch_tf.report import page, results, tables
from fedmatch_tf.report.plots import all_figures
from fedmatch_tf.report.summary import summarise
from fedmatch_tf.runs.display import Progress


def report(patterns: Sequence[str], output: Path, progress: Progress = lambda items, total, what: items) -> Path:
    """Writes the report on the runs that match; returns its folder."""
    found = results.find(patterns)
    groups = results.group(found)
    summaries = [summarise(group) for group in groups]
    counts = {state: sum(result.state == state for result in found) for state in ("finished", "partial", "unreadable")}
    lead = (
        f"{counts['finished']} finished runs, {counts['partial']} partial and {counts['unreadable']} unreadable; means "
        f"are over finished runs only, deviations those of a sample. The paper's values are for its number of rounds."
    )
    settings = [
        (group.label, [(name, str(value)) for name, value in group.settings.items() if name != "seed"])
        for group in groups
    ]
    made = [tables.accuracy_table(summaries), tables.runs_table(found)]
    figures = progress(all_figures(summaries, found), 0, "Drawing")
    return page.write(output, "report.html", "FedMatch runs", lead, made, figures, settings)
