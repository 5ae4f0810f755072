"""Records of runs that ship with the code (results/), and the pages that show them (docs/RESULTS.md, docs/FIELD.md).

A record is what a report needs of a finished run, without weights and without paths of the machine that made it.
`report` and `compare` read it like any run's folder.
"""

from __future__ import annotations

import gzip
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.config.resume import INPUT_PATHS
from fedmatch_tf.report import results
from fedmatch_tf.report.experiments import EVIDENCE, EXPERIMENTS, FIELD_EVIDENCE, configs, hours, setting_texts
from fedmatch_tf.report.field import published
from fedmatch_tf.report.paper import reported
from fedmatch_tf.report.results import ROUNDS_GZ, Result
from fedmatch_tf.report.summary import best_validated, returning_cost
from fedmatch_tf.report.tables import Cell, Table, markdown, table_of
from fedmatch_tf.runs.atomic import replacing, write_text

ROOT = Path(__file__).parents[2]  # of the project
RESULTS, FIGURES = Path("results"), Path("docs/figures")
PAGE, FIELD_PAGE = Path("docs/RESULTS.md"), Path("docs/FIELD.md")
MEASURED = ("<!-- measured: made from results/ -->\n", "<!-- end of measured -->\n")  # around that part of FIELD_PAGE
COMMAND = "python main.py --work-type reproduce --experiment evidence"


def record_name(config: Config) -> str:
    """The folder of a run's record: what it is, in words."""
    parts = [config.task, config.arch, config.model, config.profile, f"seed{config.seed}"]
    return "-".join([*parts, *(text.replace(" ", "-") for text in setting_texts(config))])


def find(config: Config, root: Path = ROOT) -> Result | None:
    """The record of a finished run with these settings; None if there is none."""
    folder = root / RESULTS / record_name(config)
    found = results.read(folder) if folder.is_dir() else None
    if found is None or found.state != results.FINISHED:
        return None
    return found if results.identity(found.settings) == results.identity(asdict(config)) else None


def keep(run: Path, config: Config, root: Path = ROOT) -> Path:
    """Makes a record of a finished run; returns its folder."""
    folder = root / RESULTS / record_name(config)
    about = json.loads((run / "config.json").read_text(encoding="utf-8"))
    about["settings"].update(dict.fromkeys(INPUT_PATHS))
    about["settings"].update({"dataset_path": "datasets", "output_path": "outputs"})
    lines = (run / "rounds.jsonl").read_bytes()
    about["machine"] = {"processor": _processor(), "system": platform.system()}
    about["minutes"] = round(sum(json.loads(line)["seconds"] for line in lines.splitlines()) / 60, 1)
    log = json.loads((run / "server.txt").read_text(encoding="utf-8"))
    log["options"] = {}  # they are in config.json
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps(about, indent=1) + "\n")
    with replacing(folder / ROUNDS_GZ) as file:
        file.write(gzip.compress(lines, mtime=0))
    write_text(folder / "server.txt", json.dumps(log) + "\n")
    return folder


def _processor() -> str:
    """The processor's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def check_root(root: Path = ROOT) -> None:
    """Raises ConfigError unless this is a checkout, whose records and pages can be written."""
    if not (root / "pyproject.toml").is_file():
        raise ConfigError(f"--experiment: the evidence is part of the project's own folder; {root} is an installation")


class Row(NamedTuple):
    """A run of an item, and its record if there is one."""

    config: Config
    record: Result | None


def rows(item: str, root: Path = ROOT) -> list[Row]:
    """The runs of an item of the evidence."""
    return [Row(config, find(config, root)) for config in configs(item, (1,), {})]


def write_pages(root: Path = ROOT) -> None:
    """Writes docs/RESULTS.md, its part of docs/FIELD.md and all figures."""
    (root / FIGURES).mkdir(parents=True, exist_ok=True)
    for item in (*EVIDENCE, *FIELD_EVIDENCE):
        runs = [row for row in rows(item, root) if row.record is not None]
        if runs:
            with replacing(root / FIGURES / f"{item}.png") as file:
                _figure(item, runs).savefig(file, dpi=110, format="png")
    write_text(root / PAGE, page(root))
    if (root / FIELD_PAGE).is_file():
        write_text(root / FIELD_PAGE, field_page(root))


def page_of(experiment: str, root: Path = ROOT) -> Path:
    """The page that shows the runs of this experiment."""
    return root / (FIELD_PAGE if experiment in ("field", *FIELD_EVIDENCE) else PAGE)


LEAD = f"""# Results

What this code reaches beside the paper, from the records in `results/`, which have every round.
This page is made from them by

```
{COMMAND}      # or: make results
```

which first does the runs that are missing, one after the other; each can be stopped and goes on.
Accuracies are those of the global model on test data after the last round, and the mean of the last ten
rounds; where the paper has the mean of the clients, that stands there instead (local). Costs are means over
rounds, in per cent of one parameter set. One run each, of the seed that is named; the paper's values are
means of three runs. Settings are the paper's (`--profile paper`) unless said.
"""


def page(root: Path = ROOT) -> str:
    """The text of docs/RESULTS.md: a function of the records and of the remarks beside them."""
    runs = configs("evidence", (1,), {})
    done = [config for config in runs if find(config, root) is not None]
    left = sum(hours(config) for config in runs if config not in done)
    state = f"**{len(done)} of {len(runs)} runs are done.** The others take about {left:.0f} hours on two CPU cores.\n"
    parts = [LEAD, state]
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
    runs = rows(item, root)
    done = [row for row in runs if row.record is not None]
    if done:
        yield f"![Test accuracy over the rounds](figures/{item}.png)\n"
        yield markdown(_table(item, done))
    missing = [row for row in runs if row.record is None]
    if missing:
        names = [f"{row.config.task} {_model(item, row.config)}{_seed(row.config)}" for row in missing]
        yield f"Not run yet: {'; '.join(names)}.\n"
    remarks = root / RESULTS / f"{item}.md"
    if remarks.is_file():
        yield remarks.read_text(encoding="utf-8")


def _table(item: str, done: Sequence[Row]) -> Table:
    cells = [_cells(item, config, record) for config, record in done if record is not None]
    return table_of("results", "", cells)


def _cells(item: str, config: Config, record: Result) -> dict[str, Cell]:
    """A row of an item's table."""
    lines, paper = record.lines, reported(record.settings)
    accuracies = [100 * line[_measure(record)] for line in lines]
    returning, validated = returning_cost(lines), best_validated(lines)
    cells: dict[str, Cell] = {
        "task": config.task,
        "model": _model(item, config),
        "seed": str(config.seed),
        "accuracy (%)": f"{accuracies[-1]:.2f}" + (" local" if paper is not None and paper.local else ""),
        "last ten": f"{_mean(accuracies[-10:]):.2f}",
        "at the lowest validation loss": "" if validated is None else f"{100 * validated['test_acc']:.2f}",
        "paper": "",
        "difference": "",
        "S2C": f"{100 * _mean([line['s2c']['sum'] for line in lines]):.0f}",
        "S2C without first visits": "" if returning is None else f"{100 * returning:.0f}",
        "C2S": f"{100 * _mean([line['c2s']['sum'] for line in lines]):.0f}",
        "paper S2C, C2S": "",
        "published": next((f"{own.accuracy:g}" for own in published(record.settings) if own.model == config.model), ""),
        "minutes": f"{sum(line['seconds'] for line in lines) / 60:.0f}",
    }
    if paper is not None:
        deviation = "" if paper.deviation is None else f" ± {paper.deviation:.2f}"
        cells["paper"] = f"{paper.accuracy:.2f}{deviation}"
        cells["difference"] = f"{accuracies[-1] - paper.accuracy:+.2f}"
        if paper.s2c is not None and paper.c2s is not None:
            cells["paper S2C, C2S"] = f"{100 * paper.s2c:.0f}, {100 * paper.c2s:.0f}"
    return cells


def _measure(record: Result) -> str:
    """The accuracy that the paper has for such a run."""
    paper = reported(record.settings)
    return "local_test_acc" if paper is not None and paper.local else "test_acc"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _model(item: str, config: Config) -> str:
    """The model, and what of its settings is neither the paper's nor that of every run of the item."""
    runs = configs(item, (1,), {})
    shared = set.intersection(*(set(_other_settings(run)) for run in runs)) if len(runs) > 1 else set()
    return ", ".join([config.model, *(text for text in _other_settings(config) if text not in shared)])


def _other_settings(config: Config) -> list[str]:
    return ([] if config.profile == "paper" else [f"profile {config.profile}"]) + setting_texts(config)


def _seed(config: Config) -> str:
    return f", seed {config.seed}" if config.seed != 1 else ""


def _figure(item: str, runs: Sequence[Row]) -> Any:
    from fedmatch_tf.report import plots, style  # matplotlib takes half a second to load

    figure, axes = plots.new(EXPERIMENTS[item].what.replace("`", ""))
    tasks = {row.config.task for row in runs}
    looks = style.of_models([row.config.model for row in runs])
    for look, (config, record) in zip(looks, runs):
        assert record is not None
        label = (f"{config.task} " if len(tasks) > 1 else "") + _model(item, config) + _seed(config)
        values = [100 * line[_measure(record)] for line in record.lines]
        plots.curve(axes, look, label, range(1, len(values) + 1), values)
        paper = reported(record.settings)
        if paper is not None:  # behind the last round
            axes.plot([1.02 * len(values)], [paper.accuracy], color=look.colour, ls="", marker="D", ms=5)
    if any(reported(row.record.settings) for row in runs if row.record is not None):
        axes.plot([], [], color="grey", ls="", marker="D", ms=5, label="the paper's value")
    axes.set_ylim(bottom=0)
    plots.finish(axes, "round", "test accuracy, %")
    return figure


def beside(settings: Mapping[str, Any], root: Path = ROOT) -> str:
    """What our own run of the same settings reached, in a few words; empty if none ships with the code."""
    record = find(Config(**settings), root)
    return "" if record is None else f"{100 * record.lines[-1]['test_acc']:.2f} % at the end (results/{record.name})"
