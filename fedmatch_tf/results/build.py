"""--work-type report: run folders to a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from fedmatch_tf.results import page, report_tables, results
from fedmatch_tf.results.paired import paired_table
from fedmatch_tf.results.plots import task_figures
from fedmatch_tf.results.references import References
from fedmatch_tf.results.results import FINISHED, PARTIAL, REPEATED, UNREADABLE, Result
from fedmatch_tf.results.summary import Summary, summarise
from fedmatch_tf.runs.display import Progress


def report(
    patterns: Sequence[str],
    output: Path,
    progress: Progress = lambda items, total, what: items,
    references: References | None = None,
) -> Path:
    """Writes the report on the runs that match, beside what others have; returns its folder."""
    found = results.find(patterns)
    groups = results.group(found)
    summaries = [summarise(group, references) for group in groups]
    settings = [
        (group.label, [(name, str(value)) for name, value in group.settings.items() if name != "seed"])
        for group in groups
    ]
    sections = [
        page.Section("Summary", [report_tables.summary_table(summaries)]),
        *_of_tasks(summaries, progress),
        page.Section("Runs", [report_tables.runs_table(found)]),
    ]
    lead = _lead(found)
    if references is not None:
        lead += " The difference from the paper is shown only if all settings are the paper's."
    files = {"tables/rounds.csv": report_tables.rounds_csv(found)}
    return page.write(output, "report.html", "FedMatch runs", lead, sections, settings, files=files)


def _lead(found: Sequence[Result]) -> str:
    """How many runs there are of each state, and what the figures mean."""
    counts = {state: sum(result.state == state for result in found) for state in (FINISHED, PARTIAL, UNREADABLE)}
    told = [f"{number} {state}" for state, number in counts.items() if number or state == FINISHED]
    repeated = sum(result.state == REPEATED for result in found)
    told += [f"{repeated} repeated, which do not count"] if repeated else []
    runs = f"{len(found)} run" + ("" if len(found) == 1 else "s")
    return (
        f"{runs}: {', '.join(told)}. Means are over finished runs, ± is the sample standard deviation. Accuracies are "
        f"of the global model on test data; of models without one (local-*), the mean of the clients. Costs are in per "
        f"cent of one parameter set, per client and round; S2C is from server to client, C2S back."
    )


def _of_tasks(summaries: Sequence[Summary], progress: Progress) -> Iterator[page.Section]:
    """A section per task (and per set of one's own images): its tables, then its figures."""
    for task in dict.fromkeys(summary.group.data for summary in summaries):
        own = [summary for summary in summaries if summary.group.data == task]
        tables = [
            report_tables.accuracy_table(task, own),
            paired_table(task, own),
            *report_tables.sweep_tables(task, own),
            report_tables.settings_table(task, own),
            report_tables.costs_table(task, own),
            report_tables.classes_table(task, own),
        ]
        told = [table for table in tables if table is not None and len(table.head) > 1]  # what there are results of
        yield page.Section(task, told, progress(task_figures(task, own), 0, f"Drawing {task}"))
