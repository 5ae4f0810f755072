"""The tables of a report: accuracy beside the paper's, costs, accuracy by class, runs, rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedmatch_tf.config import Config, settings, without_effect
from fedmatch_tf.config.record import DATA
from fedmatch_tf.config.resume import INPUT_PATHS, OF_MACHINE
from fedmatch_tf.federation.records import FIGURES
from fedmatch_tf.results.confusions import Confusion
from fedmatch_tf.results.names import file_name
from fedmatch_tf.results.references import Reference
from fedmatch_tf.results.results import Group, Result, identity
from fedmatch_tf.results.summary import Mean, Summary
from fedmatch_tf.results.tables import Cell, Missing, Table, Value, as_csv, table_of, value


def summary_table(summaries: Sequence[Summary]) -> Table:
    """What was run, and what it reached, of all tasks."""
    rows: list[dict[str, Cell]] = []
    for summary in summaries:
        group = summary.group
        about = Config(**group.settings)
        rows.append(
            {
                "task": group.data,
                "model": group.short,
                "network": about.arch,
                "profile": about.profile,
                "clients": _whole(about.num_clients),
                "fraction": Value(about.frac_clients),
                "rounds": _whole(about.num_rounds),
                "seeds": _whole(len(group.finished)),
                "not finished": _whole(len(group.unfinished)) if group.unfinished else "",
                "final acc. (%)": value(summary.final),
                **_beside_the_paper(summary),
            }
        )
    return table_of("accuracy", "Summary", rows)


def _beside_the_paper(summary: Summary) -> dict[str, Cell]:
    """The paper's value; a difference only of runs that have its settings and rounds."""
    paper, difference = summary.reference.paper, summary.difference
    why: Cell = ""
    if paper is not None:
        why = Missing("other settings" if summary.reference.other_settings else "not finished")
    return {
        "paper acc. (%)": "" if paper is None else value(Mean(paper.accuracy, paper.deviation)),
        "difference": why if difference is None else Value(difference, sign=True),
    }


def _whole(number: float) -> Value:
    return Value(number, digits=0)


def accuracy_table(task: str, summaries: Sequence[Summary]) -> Table:
    """Every accuracy of a task's models, and what of their settings is not the paper's."""
    rows: list[dict[str, Cell]] = [
        {
            "model": summary.group.short,
            "seeds": _whole(len(summary.group.finished)),
            "final acc. (%)": value(summary.final),
            "highest acc., chosen on test data (%)": value(summary.best),
            "acc. at the lowest validation loss (%)": value(summary.validated),
            "mean of the clients (%)": value(summary.local),
            "macro-F1 (%)": value(summary.macro_f1),
            **_beside_the_paper(summary),
            "the paper's is": "the mean of the clients" if reference.paper and reference.paper.local else "",
            "published (%)": _published(reference, summary.group.settings["model"]),
            "note": _note(summary.confusions),
            "settings that are not the paper's": reference.other_settings,
            "differs from their profile here": reference.unlike_profile,
        }
        for summary, reference in ((each, each.reference) for each in summaries)
    ]
    single = len(summaries) > 1 and any(len(summary.group.finished) == 1 for summary in summaries)
    note = "Of one seed alone nothing says whether a difference is more than chance." if single else ""
    return table_of(f"accuracy-{file_name(task)}", "Accuracy", rows, note)


def _note(confusions: Sequence[Confusion]) -> str:
    """Of models that predict one class only, whatever they see."""
    found = [confusion.only_class for confusion in confusions if confusion.only_class is not None]
    return f"predicts {', '.join(dict.fromkeys(found))} for every image" if found else ""


def sweep_tables(task: str, summaries: Sequence[Summary]) -> list[Table]:
    """For each model whose groups differ in numbers alone, such as lr: by validation loss, the lowest first."""
    sweeps: dict[Any, list[Summary]] = {}
    for summary in summaries:
        if summary.validation is not None:
            key = (summary.group.shipped, identity(summary.group.settings, _NUMBERS))
            sweeps.setdefault(key, []).append(summary)
    found: list[Table] = []
    for each in (each for each in sweeps.values() if len(each) > 1):
        names = _differing([summary.group for summary in each])
        rows: list[dict[str, Cell]] = [
            {
                "rank": _whole(rank),
                **{name.replace("_", "-"): _setting(summary.group, name) for name in names},
                "seeds": _whole(len(summary.group.finished)),
                "validation loss": value(summary.validation, digits=4),
                "test acc. (%)": value(summary.final),
                "test acc. at the lowest validation loss (%)": value(summary.validated),
            }
            for rank, summary in enumerate(sorted(each, key=lambda summary: summary.validation or Mean(0, None)), 1)
        ]
        model, of = each[0].group.settings["model"], ", ".join(name.replace("_", "-") for name in names)
        note = "By the validation loss of the last round, the lowest first; the test data had no say in it."
        number = f"-{len(found) + 1}" if found else ""
        found.append(table_of(f"sweep-{file_name(task)}{number}", f"Sweep of {of}, {model}", rows, note))
    return found


_NUMBERS = frozenset(
    name for name, each in settings().items() if name == "seed" or (each.kind in (int, float) and each.group != DATA)
)


def settings_table(task: str, summaries: Sequence[Summary]) -> Table:
    """The settings in which a task's groups differ; empty where a group never looks at one."""
    groups = [summary.group for summary in summaries]
    rows: list[dict[str, Cell]] = [
        {"model": group.short, **{name.replace("_", "-"): _setting(group, name) for name in names}}
        for names in [_differing(groups)]
        for group in groups
    ]
    return table_of(f"settings-{file_name(task)}", "Settings that differ", rows)


def _differing(groups: Sequence[Group]) -> list[str]:
    """Settings, but for the model, that are not the same in all groups that look at them."""
    names = [name for name in settings() if name not in OF_MACHINE | {"seed", "task", "model"}]
    return [name for name in names if len({_setting(group, name) for group in groups} - {""}) > 1]


def _setting(group: Group, name: str) -> str:
    """Its value as a cell; of a path, the last part."""
    if name in without_effect(Config(**group.settings)):
        return ""
    found = group.settings[name]
    return Path(found).name if name in INPUT_PATHS and found else str(found)


def costs_table(task: str, summaries: Sequence[Summary]) -> Table:
    """What a client receives and sends per round, in per cent of one parameter set and in MB; and time."""
    rows: list[dict[str, Cell]] = []
    for summary in summaries:
        paper = summary.reference.paper
        rows.append(
            {
                "model": summary.group.short,
                "S2C (%)": value(summary.s2c, 100, 0),
                "S2C without first visits (%)": value(summary.s2c_returning, 100, 0),
                "C2S (%)": value(summary.c2s, 100, 0),
                "paper S2C (%)": "" if paper is None or paper.s2c is None else Value(100 * paper.s2c, digits=0),
                "paper C2S (%)": "" if paper is None or paper.c2s is None else Value(100 * paper.c2s, digits=0),
                "MB per client and round": value(summary.megabytes, 1, 1),
                "MB counted in full": value(summary.full_megabytes, 1, 1),
                "time (min)": value(summary.minutes, 1, 1),
            }
        )
    return table_of(f"costs-{file_name(task)}", "Communication per client and round, and time", rows)


def classes_table(task: str, summaries: Sequence[Summary]) -> Table | None:
    """Accuracy of each class; None if no final model was tested by class, or models differ in their classes."""
    tested = [summary for summary in summaries if summary.confusions]
    names = [confusion.class_names for summary in tested for confusion in summary.confusions]
    if not names or any(each != names[0] for each in names):
        return None
    columns = {f"{summary.group.label.split(': ', 1)[1]} (%)": _mean_recall(summary.confusions) for summary in tested}
    counts = np.mean([each.matrix.sum(axis=1) for summary in tested for each in summary.confusions], axis=0)
    rows: list[dict[str, Cell]] = [
        {"class": name, "images": _whole(count), **{key: each[number] for key, each in columns.items()}}
        for number, (name, count) in enumerate(zip(names[0], counts.tolist()))
    ]
    return table_of(f"classes-{file_name(task)}", "Accuracy by class, final global model", rows)


def _mean_recall(confusions: Sequence[Confusion]) -> list[Cell]:
    """Of each class, in per cent."""
    values = 100 * np.stack([confusion.recall for confusion in confusions])
    deviations = values.std(axis=0, ddof=1) if len(values) > 1 else [None] * values.shape[1]
    return [
        Value(float(centre), None if width is None else float(width), 1)
        for centre, width in zip(values.mean(axis=0), deviations)
    ]


def _published(reference: Reference, model: str) -> str:
    """What papers of the field report for this model in this setting; if they don't have it, for others."""
    own = [each for each in reference.published if each.model == model]
    others = [f"{each.model} {each.accuracy:g} ({each.where})" for each in reference.published]
    return ", ".join([f"{each.accuracy:g} ({each.where})" for each in own] or others)


def runs_table(results: Sequence[Result]) -> Table:
    """Every run and its state."""
    rows: list[dict[str, Cell]] = [
        {
            "run": result.name,
            "state": result.state,
            "remark": "; ".join(filter(None, ["shipped record" if result.shipped else "", result.remark])),
            "seed": str(result.settings.get("seed", "")),
            "rounds": _whole(len(result.lines)),
            "last acc. (%)": Value(100 * result.lines[-1]["test_acc"]) if result.lines else "",
        }
        for result in results
    ]
    return table_of("runs", "Runs", rows)


_ABOUT = ("task", "model", "arch", "profile", "seed")


def rounds_csv(results: Sequence[Result]) -> str:
    """One row per run and round, flat, for pandas and R."""
    rows = [
        {
            "run": result.name,
            "state": result.state,
            "shipped": str(result.shipped).lower(),
            **{name: result.settings[name] for name in _ABOUT},
            **flat(line),
        }
        for result in results
        for line in result.lines
    ]
    names = [name for name in (rows[0] if rows else ()) if name != "helpers"]  # a table of its own
    return as_csv([names, *([_plain(row[name]) for name in names] for row in rows)])


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(each) for each in value)
    return "" if value is None else str(value)


def flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """A round's figures by column; those of a table have a column each: `s2c.sum`."""
    return {figure.name: figure.of(line) for figure in FIGURES}
