"""The pages that show the records of results/: docs/RESULTS.md and a part of docs/FIELD.md, with their figures."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from fedmatch_tf.base.atomic import replacing, write_text
from fedmatch_tf.config import Config
from fedmatch_tf.results.evidence import ROOT, find
from fedmatch_tf.results.experiments import EVIDENCE, EXPERIMENTS, FIELD_EVIDENCE, configs, hours, run_words
from fedmatch_tf.results.field import published
from fedmatch_tf.results.paper import Reported, changed_settings_words, reported
from fedmatch_tf.results.results import Group, Result
from fedmatch_tf.results.summary import band, mean, summarise
from fedmatch_tf.results.tables import Cell, Table, Value, markdown, percent, table_of, value

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES, REMARKS = Path("docs/figures"), Path("docs/remarks")
PAGE, FIELD_PAGE = Path("docs/RESULTS.md"), Path("docs/FIELD.md")
MEASURED = ("<!-- measured: made from results/ -->\n", "<!-- end of measured -->\n")  # around that part of FIELD_PAGE
COMMAND = "python main.py --work-type reproduce --experiment evidence"

LEAD = f"""# Results

What this code reaches beside the paper, from the records in `results/`, which have every round,
and from remarks in `docs/remarks/`.
This page is made from them by

```
{COMMAND}      # or: make results
```

which first does the runs that are missing, one after the other; each can be stopped and goes on.
Accuracies are those of the global model on test data after the last round, and the mean of the last ten
rounds; where the paper has the mean of the clients, so have we. Costs are means over
rounds, in per cent of one parameter set. One run each, of the seed that is named, or mean and sample deviation
of several; the paper's values are means of three runs. Where it has none for AlexNet, that for ResNet-9 is shown,
which tells the order of methods at most. A difference is given where settings are the paper's or those of the
authors' code. Settings are the paper's (`--profile paper`) unless said.
"""


class Entry(NamedTuple):
    """Runs of an item that differ in nothing but the seed: what is asked for, and the records that there are."""

    configs: list[Config]
    records: list[Result]

    @property
    def missing(self) -> list[Config]:
        """The runs that have no record."""
        seeds = {record.settings["seed"] for record in self.records}
        return [config for config in self.configs if config.seed not in seeds]

    @property
    def group(self) -> Group:
        """Its records as a report has them."""
        return Group("", self.records[0].settings, self.records)


def entries(item: str, root: Path = ROOT) -> list[Entry]:
    """The runs of an item of the evidence, those that differ in the seed together."""
    together: dict[Config, list[Config]] = {}
    for config in configs(item, (1,), {}):
        together.setdefault(replace(config, seed=0), []).append(config)
    found = [[(config, find(config, root)) for config in runs] for runs in together.values()]
    return [Entry([config for config, _ in runs], [record for _, record in runs if record]) for runs in found]


def write_pages(root: Path = ROOT) -> None:
    """Writes docs/RESULTS.md, its part of docs/FIELD.md and all figures."""
    (root / FIGURES).mkdir(parents=True, exist_ok=True)
    for item in (*EVIDENCE, *FIELD_EVIDENCE):
        done = [entry for entry in entries(item, root) if entry.records]
        if done:
            with replacing(root / FIGURES / f"{item}.png") as file:
                _figure(item, done).savefig(file, dpi=110, format="png")
    write_text(root / PAGE, page(root))
    if (root / FIELD_PAGE).is_file():
        write_text(root / FIELD_PAGE, field_page(root))


def page_of(experiment: str, root: Path = ROOT) -> Path:
    """The page that shows the runs of this experiment."""
    return root / (FIELD_PAGE if experiment in ("field", *FIELD_EVIDENCE) else PAGE)


def page(root: Path = ROOT) -> str:
    """The text of docs/RESULTS.md: a function of the records and of the remarks on them."""
    runs = configs("evidence", (1,), {})
    done = [config for config in runs if find(config, root) is not None]
    left = sum(hours(config) for config in runs if config not in done)
    state = f"**{len(done)} of {len(runs)} runs are done.**"
    if left:
        state += f" The others take about {left:.0f} hours on two CPU cores."
    parts = [LEAD, state + "\n", *_remarks("evidence", root)]
    for item in EVIDENCE:
        parts += [f"## {EXPERIMENTS[item].what}\n", *_item(item, root)]
    return "\n".join(parts)


def field_page(root: Path = ROOT) -> str:
    """The text of docs/FIELD.md, with what was measured made from the records."""
    before, rest = (root / FIELD_PAGE).read_text(encoding="utf-8").split(MEASURED[0])
    _, after = rest.split(MEASURED[1])
    parts = [text for item in FIELD_EVIDENCE for text in (f"### {EXPERIMENTS[item].what}\n", *_item(item, root))]
    return "".join([before, MEASURED[0], "\n", "\n".join(parts), MEASURED[1], after])


def _item(item: str, root: Path) -> Iterator[str]:
    found = entries(item, root)
    done = [entry for entry in found if entry.records]
    if done:
        yield f"![Test accuracy over the rounds](figures/{item}.png)\n"
        yield markdown(_table(item, done))
    missing = [config for entry in found for config in entry.missing]
    if missing:
        names = [f"{config.task} {_model(item, config)}{_seed(config)}" for config in missing]
        yield f"Not run yet: {'; '.join(names)}.\n"
    yield from _remarks(item, root)


def _remarks(name: str, root: Path) -> Iterator[str]:
    """What is said of the runs by hand."""
    remarks = root / REMARKS / f"{name}.md"
    if remarks.is_file():
        yield remarks.read_text(encoding="utf-8")


def _table(item: str, done: Sequence[Entry]) -> Table:
    """A row for each run; where there are several seeds, one for all of them."""
    rows = []
    for entry in done:
        rows += [_cells(item, entry._replace(records=[record])) for record in entry.records]
        if len(entry.records) > 1:
            rows.append(_cells(item, entry))
    return table_of("results", "", rows)


def _cells(item: str, entry: Entry) -> dict[str, Cell]:
    """A row of an item's table."""
    config, summary, name = entry.configs[0], summarise(entry.group), _measure(entry)
    paper, larger = _paper(config), _paper(replace(config, arch="resnet9"))
    runs = [[100 * line[name] for line in record.lines] for record in entry.records]
    accuracy = mean([values[-1] for values in runs])
    assert accuracy is not None
    cells: dict[str, Cell] = {
        "task": config.task,
        "model": _model(item, config),
        "seed": ", ".join(str(record.settings["seed"]) for record in entry.records),
        "accuracy (%)": value(accuracy),
        "last ten": value(mean([math.fsum(values[-10:]) / len(values[-10:]) for values in runs])),
        "at the lowest validation loss": value(summary.validated),
        "the paper's is": "the mean of the clients" if paper is not None and paper.local else "",
        "paper": "",
        "difference": "",
        "paper, ResNet-9": "",
        "S2C": percent(summary.s2c),
        "S2C without first visits": percent(summary.s2c_returning),
        "C2S": percent(summary.c2s),
        "paper S2C, C2S": "",
        "published": next(
            (f"{own.accuracy:g}" for own in published(entry.group.settings) if own.model == config.model), ""
        ),
        "minutes": value(summary.minutes and summary.minutes._replace(deviation=None), digits=0),
    }
    if paper is None and larger is not None:
        cells["paper, ResNet-9"] = Value(larger.accuracy, larger.deviation)
    if paper is not None:
        cells["paper"] = Value(paper.accuracy, paper.deviation)
        cells["difference"] = Value(accuracy.value - paper.accuracy, sign=True)
        if paper.s2c is not None and paper.c2s is not None:
            cells["paper S2C, C2S"] = f"{100 * paper.s2c:.0f}, {100 * paper.c2s:.0f}"
    return cells


def _paper(config: Config) -> Reported | None:
    """The paper's value for such a run; None where more than the profile is not as in the paper."""
    return None if changed_settings_words(config) else reported(asdict(config))


def _measure(entry: Entry) -> str:
    """The accuracy that the paper has for such a run."""
    paper = _paper(entry.configs[0])
    return "local_test_acc" if paper is not None and paper.local else "test_acc"


def _model(item: str, config: Config) -> str:
    """The model, and what of its settings is neither the paper's nor that of every run of the item."""
    runs = configs(item, (1,), {})
    shared = set.intersection(*(set(run_words(run)[1:]) for run in runs)) if len(runs) > 1 else set()
    return ", ".join(text for text in run_words(config) if text not in shared)


def _seed(config: Config) -> str:
    return f", seed {config.seed}" if config.seed != 1 else ""


def _figure(item: str, done: Sequence[Entry]) -> Figure:
    """A picture per task: accuracy over rounds, the paper's values behind the last one."""
    from fedmatch_tf.report import style  # matplotlib takes half a second to load
    from fedmatch_tf.results import plots

    tasks = list(dict.fromkeys(entry.configs[0].task for entry in done))
    figure, panels = plots.panels(EXPERIMENTS[item].what.replace("`", ""), tasks)
    for task, axes in zip(tasks, panels):
        shown = [entry for entry in done if entry.configs[0].task == task]
        filled: dict[str, str] = {}  # colour -> the algorithm whose diamond is filled: two with one learner share it
        told: dict[str, str] = {}  # of the legend: what a diamond is of -> its face
        for look, entry in zip(style.of_models([entry.configs[0].model for entry in shown]), shown):
            config, seeds = entry.configs[0], len(entry.records)
            rounds, centre, width = band(entry.group, _measure(entry))
            label = _model(item, config) + (f" (mean of {seeds} seeds)" if seeds > 1 else "")
            plots.curve(axes, look, label, rounds, centre, width)
            paper = _paper(config)
            if paper is not None:
                hollow = filled.setdefault(look.colour, config.algorithm) != config.algorithm
                told[f"the paper's value{f', {config.algorithm}' if hollow else ''}"] = "white" if hollow else "grey"
                plots.marker(axes, 1.02 * rounds[-1], paper.accuracy, look.colour, hollow)
        for label, face in told.items():
            axes.plot([], [], color="grey", ls="", marker="D", ms=5, mfc=face, label=label)
        plots.finish(axes, "round", "test accuracy, %" if axes is panels[0] else "")
    panels[0].set_ylim(bottom=0)  # of all, when the highest curve is known
    return figure
