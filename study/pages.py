"""The pages that show the records of study/results/: docs/RESULTS.md, a part of docs/FIELD.md, and their figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedmatch_tf.base.atomic import replacing, write_text
from fedmatch_tf.config import Config
from fedmatch_tf.results.names import run_words
from fedmatch_tf.results.results import Group, Result
from fedmatch_tf.results.summary import band, mean, summarise
from fedmatch_tf.results.tables import Cell, Value, markdown, percent, table_of, value
from fedmatch_tf.results.time_left import total_hours
from study.experiments import EXPERIMENTS, FIELD, RESULTS, Experiment, configs, shown_on
from study.records import ROOT, find
from study.values import papers_value, published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES, REMARKS = Path("docs/figures"), Path("docs/remarks")
# Around the parts of FIELD that are made: the answer on top, and what was measured.
ANSWER = ("<!-- answer: made from study/results/ -->\n", "<!-- end of answer -->\n")
MEASURED = ("<!-- measured: made from study/results/ -->\n", "<!-- end of measured -->\n")
COMMAND = "python main.py --work-type reproduce --experiment evidence"

LEAD = f"""# Results

The records in `study/results/` have every round, `docs/remarks/` the remarks. One command makes this page. It trains
missing runs first (`--dry-run` names them); interrupted runs resume:

```
{COMMAND}      # or: make results
```

Settings are the paper's (`--profile paper`) unless a row names others. Several seeds have mean ± sample deviation, and
"each seed" its last round. The paper's values are means of three runs, of ResNet-9 where it has none for AlexNet. S2C
(server to client; in brackets without first visits) and C2S are means over rounds, in per cent of one parameter set.
Reasons are *tested* (a run here supports them) or *guess*.
"""


class Entry(NamedTuple):
    """Runs of an experiment that differ in nothing but the seed: what is asked for, and the records that there are."""

    config: Config  # of the first
    label: str  # the model, and what of its settings is neither the paper's nor that of every run of the experiment
    records: list[Result]
    missing: list[Config]

    @property
    def group(self) -> Group:
        """Its records as a report has them."""
        return Group("", self.records[0].settings, self.records)

    @property
    def measure(self) -> str:
        """The accuracy that the paper has for such a run."""
        paper = papers_value(self.config)
        return "local_test_acc" if paper is not None and paper.local else "test_acc"


def entries(experiment: Experiment, root: Path = ROOT) -> list[Entry]:
    """The runs of an experiment, those that differ in the seed together."""
    runs = configs(experiment.name, (1,), {})
    shared = set.intersection(*(set(run_words(run)[1:]) for run in runs)) if len(runs) > 1 else set()
    by_seed: dict[Config, list[tuple[Config, Result | None]]] = {}
    for config in runs:
        by_seed.setdefault(replace(config, seed=0), []).append((config, find(config, root)))
    return [
        Entry(
            members[0][0],
            ", ".join(text for text in run_words(members[0][0]) if text not in shared),
            [record for _, record in members if record],
            [config for config, record in members if not record],
        )
        for members in by_seed.values()
    ]


def write_pages(root: Path = ROOT) -> None:
    """Writes docs/RESULTS.md, its part of docs/FIELD.md and all figures."""
    (root / FIGURES).mkdir(parents=True, exist_ok=True)
    for experiment in (*shown_on(RESULTS), *shown_on(FIELD)):
        done = [entry for entry in entries(experiment, root) if entry.records]
        if done:
            with replacing(root / FIGURES / f"{experiment.name}.png") as file:
                figure(experiment, done).savefig(file, dpi=110, format="png")
    write_text(root / RESULTS, results_page(root))
    if (root / FIELD).is_file():
        write_text(root / FIELD, field_page(root))


def results_page(root: Path = ROOT) -> str:
    """The text of docs/RESULTS.md: a function of the records and of the remarks on them."""
    runs = configs("evidence", (1,), {})
    missing = [config for config in runs if find(config, root) is None]
    state = f"**{len(runs) - len(missing)} of {len(runs)} runs are done.**"
    if missing:
        state += f" The others take about {total_hours(missing):.0f} hours on two CPU cores."
    parts = [LEAD, state + "\n", *_remarks("evidence", root)]
    return "\n".join([*parts, *_sections(RESULTS, "##", root)])


def field_page(root: Path = ROOT) -> str:
    """The text of docs/FIELD.md, with the answer and what was measured made from the records."""
    text = (root / FIELD).read_text(encoding="utf-8")
    answers = [answer(EXPERIMENTS[name], root) for name in ("field-halves", "field-halves-server")]
    sections = _sections(FIELD, "###", root)
    for (begin, end), part in ((ANSWER, "".join(answers)), (MEASURED, "\n".join(["", *sections]))):
        before, rest = text.split(begin)
        text = "".join([before, begin, part, end, rest.split(end)[1]])
    return text


def answer(experiment: Experiment, root: Path = ROOT) -> str:
    """Whether the complete FedMatch is below labels alone, in words, from the records of an experiment in halves."""
    every = entries(experiment, root)
    where = f"{experiment.what.split(':')[0]}, {every[0].config.num_rounds} rounds"
    if any(entry.missing for entry in every):
        command = f"python main.py --work-type reproduce --experiment {experiment.name}"
        return f"- {where}: not measured yet (`{command}`).\n"
    finals = [[100 * record.lines[-1]["test_acc"] for record in entry.records] for entry in every]
    texts = [f"{_accuracy(values)} ({entry.label})" for entry, values in zip(every, finals)]
    (whole,) = (
        values
        for entry, values in zip(every, finals)
        if entry.config.model == "fedmatch" and entry.config.uses_helpers and entry.config.decomposed
    )
    alone = [values for entry, values in zip(every, finals) if entry.config.learner == "labels"]
    above = {ours > max(theirs) for ours, *theirs in zip(whole, *alone)}
    verdict = {(True,): "No", (False,): "Yes"}.get(tuple(above), "The seeds disagree")
    return f"- {where}: **{verdict}.** Means and deviations of {len(whole)} seeds: {'; '.join(texts)}.\n"


def _accuracy(values: Sequence[float]) -> str:
    found = mean(values)
    assert found is not None
    return f"{found.value:.1f} ± {found.deviation:.1f} %" if found.deviation is not None else f"{found.value:.1f} %"


def _sections(page: Path, level: str, root: Path) -> Iterator[str]:
    """A section for each experiment of a page; a run that stands in two has its row in the first."""
    above: set[Config] = set()  # runs that have a row, whatever their seed
    for experiment in shown_on(page):
        yield f"{level} {experiment.what}\n"
        every = entries(experiment, root)
        done = [entry for entry in every if entry.records]
        if done:
            yield f"![Test accuracy](figures/{experiment.name}.png)\n"
        new = [entry for entry in done if replace(entry.config, seed=0) not in above]
        above.update(replace(entry.config, seed=0) for entry in new)
        if new:
            rows = [cells(entry) for entry in new]
            if len({entry.config.task for entry in new}) == 1:
                rows = [{**row, "task": ""} for row in rows]  # the heading has it
            yield markdown(table_of("results", "", rows))
        repeated = [entry.label for entry in done if entry not in new]
        if repeated:
            yield f"Also in the figure, with a row above: {', '.join(repeated)}.\n"
        missing = sum(len(entry.missing) for entry in every)
        if missing:
            number = missing + sum(len(entry.records) for entry in every)
            yield f"Not run yet: {missing} of {number} runs.\n"
        yield from _remarks(experiment.name, root)


def _remarks(name: str, root: Path) -> Iterator[str]:
    """What is said of the runs by hand."""
    remarks = root / REMARKS / f"{name}.md"
    if remarks.is_file():
        yield remarks.read_text(encoding="utf-8")


def cells(entry: Entry) -> dict[str, Cell]:
    """The row of an entry's records, by column."""
    config, summary = entry.config, summarise(entry.group)
    paper, larger = papers_value(config), papers_value(replace(config, arch="resnet9"))
    runs = [[100 * line[entry.measure] for line in record.lines] for record in entry.records]
    accuracy = mean([values[-1] for values in runs])
    assert accuracy is not None
    theirs = [each.accuracy for each in published(entry.group.settings) if each.model == config.model]
    s2c, returning = percent(summary.s2c), percent(summary.s2c_returning)
    costs = [cost for cost in (paper.s2c, paper.c2s) if cost is not None] if paper else []
    return {
        "task": config.task,
        "model": entry.label,
        "seed": ", ".join(str(record.settings["seed"]) for record in entry.records),
        "last ten rounds (%)": value(mean([math.fsum(values[-10:]) / len(values[-10:]) for values in runs])),
        "last round (%)": value(accuracy),
        "each seed": ", ".join(f"{values[-1]:.2f}" for values in runs) if len(runs) > 1 else "",
        "at the lowest validation loss": value(summary.validated),
        "the paper's is": "the mean of the clients" if paper and paper.local else "",
        "paper": Value(paper.accuracy, paper.deviation) if paper else "",
        "difference": Value(accuracy.value - paper.accuracy, sign=True) if paper else "",
        "paper, ResNet-9": Value(larger.accuracy, larger.deviation) if larger and not paper else "",
        "S2C (later visits)": s2c if s2c == returning else f"{s2c} ({returning})",
        "C2S": percent(summary.c2s),
        "paper S2C, C2S": ", ".join(f"{100 * cost:.0f}" for cost in costs),
        "published": f"{theirs[0]:g}" if theirs else "",
    }


def figure(experiment: Experiment, done: Sequence[Entry]) -> Figure:
    """A picture per task: accuracy over rounds, the paper's values behind the last one."""
    from fedmatch_tf.base import drawing  # matplotlib takes half a second to load
    from fedmatch_tf.results import plots, style

    tasks = list(dict.fromkeys(entry.config.task for entry in done))
    picture, panels = plots.panels(experiment.what.replace("`", ""), tasks)
    for task, axes in zip(tasks, panels):
        shown = [entry for entry in done if entry.config.task == task]
        filled: dict[str, str] = {}  # colour -> the algorithm whose diamond is filled: two with one learner share it
        diamonds: dict[str, str] = {}  # of the legend: what a diamond is of -> its face
        for look, entry in zip(style.of_models([entry.config.model for entry in shown]), shown):
            rounds, centre, width = band(entry.group, entry.measure)
            seeds = f" (mean of {len(entry.records)} seeds)" if len(entry.records) > 1 else ""
            drawing.curve(axes, look, entry.label + seeds, rounds, centre, width, ends=plots.PERCENT)
            paper = papers_value(entry.config)
            if paper is not None:
                algorithm = entry.config.algorithm
                hollow = filled.setdefault(look.colour, algorithm) != algorithm
                diamonds[f"the paper's value{f', {algorithm}' if hollow else ''}"] = "white" if hollow else "grey"
                plots.marker(axes, 1.02 * rounds[-1], paper.accuracy, look.colour, hollow)
        for label, face in diamonds.items():
            axes.plot([], [], color="grey", ls="", marker="D", ms=5, mfc=face, label=label)
        drawing.finish(axes, "round", "test accuracy, %" if axes is panels[0] else "")
    panels[0].set_ylim(bottom=0)  # of all, when the highest curve is known
    return picture
