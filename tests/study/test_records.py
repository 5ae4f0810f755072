"""Records that ship with the code, and the page that is made from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

from fedmatch_tf.config import Config, ConfigError, make_config
from fedmatch_tf.results import results, tables
from fedmatch_tf.results.build import report
from fedmatch_tf.runs.folders import both
from study import pages, records
from study.experiments import EXPERIMENTS, RESULTS, configs, shown_on
from study.pages import entries, field_page, results_page, write_pages
from tests.conftest import ROOT
from tests.results.made_up_runs import write_run

CONFIG = make_config("lc-biid-c10", arch="alexnet", profile="paper", num_rounds=3, output_path="/somewhere/else")


def kept(config: Config, accuracies: list[float], root: Path) -> Path:
    """The record of a run with these settings and accuracies, in a project of its own."""
    number = len(list((root / "logs").glob("*")))
    run = write_run(root / "logs" / f"run{number}", accuracies, **asdict(config))
    log = {"scores": {"aggr_acc": [0.25]}, "options": {"log_dir": str(root)}}
    (run / "server.txt").write_text(json.dumps(log))
    return records.keep(run, config, root)


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return kept(CONFIG, [0.25, 0.5, 0.375], tmp_path)


def test_a_record_is_small_names_no_machine_path_and_is_read_like_a_run(record: Path, tmp_path: Path) -> None:
    assert record == tmp_path / "study" / "results" / "lc-biid-c10-alexnet-fedmatch-paper-seed1-num-rounds-3"
    read = results.read(record)
    assert (read.state, [line["test_acc"] for line in read.lines]) == ("finished", [0.25, 0.5, 0.375])
    for path in record.iterdir():
        content = path.read_bytes()
        assert b"/somewhere" not in content
        assert str(tmp_path).encode() not in content
    about = json.loads((record / "config.json").read_text())
    assert about["minutes"] == pytest.approx(sum(line["seconds"] for line in read.lines) / 60, abs=0.05)
    assert set(about["machine"]) == {"processor", "system"}
    found = records.find(CONFIG, tmp_path)
    assert found is not None
    other = make_config("lc-biid-c10", arch="alexnet", profile="paper", num_rounds=3, seed=2)
    assert records.find(other, tmp_path) is None
    assert "lc-biid-c10" in (report([str(record)], tmp_path) / "report.html").read_text()


def test_your_own_run_stands_beside_the_record_of_the_same_settings(record: Path, tmp_path: Path) -> None:
    """Not in its place, and not averaged with it: each is a group, and a curve, of its own."""
    found = results.find([str(tmp_path / "logs" / "*"), str(record)])
    assert {(result.name, result.state) for result in found} == {("run0", "finished"), (record.name, "finished")}
    own, ours = results.group(found)
    assert (own.label, [result.name for result in own.results]) == ("lc-biid-c10: fedmatch", ["run0"])
    assert (ours.label, ours.results[0].name) == ("lc-biid-c10: fedmatch, shipped record", record.name)
    (alone,) = results.group(results.find([str(record)]))
    assert alone.label == "lc-biid-c10: fedmatch"


def test_results_has_nothing_but_records_so_that_a_shell_may_spell_them_out() -> None:
    folders = sorted((ROOT / "study" / "results").iterdir())
    assert [result.remark for result in map(results.read, folders) if result.state != "finished"] == []
    assert all(results.read(folder).shipped for folder in folders)


def test_a_record_has_no_weights_and_says_so_where_they_are_needed() -> None:
    with pytest.raises(ConfigError, match="Records that ship with the code have no weights"):
        both(ROOT / "study" / "results" / "lc-biid-c10-alexnet-fedmatch-paper-seed2", "--resume")


def test_a_record_of_other_settings_under_the_same_name_does_not_count(record: Path, tmp_path: Path) -> None:
    about = json.loads((record / "config.json").read_text())
    about["settings"]["lr"] = 0.5
    (record / "config.json").write_text(json.dumps(about))
    assert records.find(CONFIG, tmp_path) is None


def test_a_damaged_record_is_no_result(record: Path, tmp_path: Path) -> None:
    packed = record / "rounds.jsonl.gz"
    content = packed.read_bytes()
    for damaged in (content[:-9], content[:20], b"no gzip", b""):
        packed.write_bytes(damaged)
        assert records.find(CONFIG, tmp_path) is None
        assert results.read(record).state in ("partial", "unreadable")


def test_a_run_tells_what_ours_of_the_same_settings_reached(record: Path, tmp_path: Path) -> None:
    told = f"37.50 % at the end, seed 1 (study/results/{record.name})"
    assert records.beside(asdict(CONFIG), tmp_path) == told
    assert records.beside(asdict(replace(CONFIG, seed=12)), tmp_path) == told
    assert records.beside(asdict(make_config("lc-biid-c10")), tmp_path) == ""
    assert records.beside(asdict(replace(CONFIG, lr=0.5)), tmp_path) == ""
    kept(replace(CONFIG, seed=3), [0.25, 0.5, 0.4375], tmp_path)
    both = "37.50 %, 43.75 % at the end, seeds 1, 3 (study/results/)"
    assert records.beside(asdict(replace(CONFIG, seed=2)), tmp_path) == both


def test_the_page_has_a_table_and_a_figure_of_what_was_run_and_lists_the_rest(tmp_path: Path) -> None:
    first, other, *_ = configs("results-alexnet", (1,), {})
    second_seed = replace(first, seed=2)
    for config, end in ((first, 0.4), (other, 0.45), (second_seed, 0.42)):
        kept(config, [0.3] * 195 + [end] * 5, tmp_path)
    (tmp_path / "docs" / "remarks").mkdir(parents=True)
    (tmp_path / "docs" / "remarks" / "results-alexnet.md").write_text("A remark.\n")
    write_pages(tmp_path)
    text = (tmp_path / RESULTS).read_text()
    item = text.split("## ")[1]
    rows = [line for line in item.splitlines() if line.startswith("| fed")]
    assert [row.split(" | ")[0] for row in rows] == ["| fedmatch", "| fedavg-sl"]
    # By hand: five times 30 and five times 40 or 42; two values that are 1 or 2 apart, over the root of 2.
    of_seeds = " | 1, 2 | 35.50 ± 0.71 | 41.00 ± 1.41 | 40.00, 42.00 | 41.67 ± 0.32 | -0.67 | "
    assert of_seeds in rows[0]
    assert " | 1 | 37.50 | 45.00 |  | 47.23 ± 0.31 | -2.23 | " in rows[1]
    number = len(configs("results-alexnet", (1,), {}))
    assert f"Not run yet: {number - 3} of {number} runs" in item
    assert "A remark." in item
    assert text.count(of_seeds) == 1
    assert "with a row above: fedmatch.\n" in text.split("## ")[2]  # the ablations have the same run
    assert (tmp_path / "docs" / "figures" / "results-alexnet.png").stat().st_size > 5000


def drawn(item: str, tmp_path: Path, keep: Callable[[Config], bool]) -> list[Axes]:
    """The pictures of an experiment with records of the runs that are to be kept, all made up."""
    for config in filter(keep, configs(item, (1,), {})):
        kept(config, [0.3] * config.num_rounds, tmp_path)
    experiment = EXPERIMENTS[item]
    return pages.figure(experiment, [entry for entry in entries(experiment, tmp_path) if entry.records]).axes


def diamonds(axes: Axes) -> list[tuple[float, str]]:
    """(height, face) of the paper's values."""
    shown = [line for line in axes.get_lines() if line.get_marker() == "D" and len(np.asarray(line.get_xdata())) == 1]
    faces = ["hollow" if line.get_markerfacecolor() == "white" else "filled" for line in shown]
    return sorted((float(y), face) for line, face in zip(shown, faces) for y in np.asarray(line.get_ydata()))


@pytest.mark.parametrize(
    ("whole", "verdict"),
    [((0.53, 0.54, 0.52), "No"), ((0.40, 0.49, 0.45), "Yes"), ((0.53, 0.54, 0.49), "The seeds disagree")],
)
def test_the_fields_question_is_answered_if_all_seeds_agree_on_the_better_of_the_two_labels_alone(
    whole: tuple[float, ...], verdict: str, tmp_path: Path
) -> None:
    halves = EXPERIMENTS["field-halves"]
    assert "not measured yet" in pages.answer(halves, tmp_path)
    for config in configs("field-halves", (1,), {}):
        accuracy = {"fedavg-labels": 0.5 if config.momentum else 0.3, "fedmatch": 0.2}[config.model]
        if config.model == "fedmatch" and not config.no_icc and not config.no_decomposition:
            accuracy = whole[config.seed - 1]
        kept(config, [0.1] * (config.num_rounds - 1) + [accuracy], tmp_path)
    text = pages.answer(halves, tmp_path)
    assert f": **{verdict}.** Means and deviations of 3 seeds: 30.0 ± 0.0 % (fedavg-labels); 50.0 ± 0.0 % (" in text
    assert "20.0 ± 0.0 % (fedmatch, no-icc, no-decomposition); 20.0 ± 0.0 % (fedmatch, no-icc); 20.0" in text
    if verdict == "No":
        assert text.endswith("; 53.0 ± 1.0 % (fedmatch).\n")


def test_diamonds_are_the_papers_values_for_these_settings_and_tell_algorithms_apart(tmp_path: Path) -> None:
    (axes,) = drawn("results-alexnet", tmp_path, lambda config: config.learner in ("fixmatch", "fedmatch"))
    assert diamonds(axes) == [(32.33, "filled"), (36.83, "hollow"), (41.67, "filled")]
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [
        *("fedmatch (mean of 3 seeds)", "fedavg-fixmatch (mean of 3 seeds)", "fedprox-fixmatch"),
        *("the paper's value", "the paper's value, fedprox"),
    ]
    # With another lambda_l2, psi_factor or lr it is not the paper's run: no value, and no difference in the table.
    (axes,) = drawn("results-scale", tmp_path, lambda config: True)
    assert diamonds(axes) == [(32.33, "filled"), (41.67, "filled"), (47.23, "filled")]
    rows = [line for line in results_page(tmp_path).splitlines() if "psi-factor" in line or "lambda-l2" in line]
    assert len(rows) == 9
    assert [row for row in rows if " | 1 | 30.00 | 30.00 | 10" not in row] == []


def test_two_tasks_are_two_pictures_side_by_side(tmp_path: Path) -> None:
    panels = drawn("results-covid", tmp_path, lambda config: True)
    assert [axes.get_title(loc="left") for axes in panels] == ["lc-biid-covid", "ls-biid-covid"]
    models = ["fedmatch", "fedprox-fixmatch", "fedprox-uda"]
    longer = [f"{model}, lr-patience 20 (mean of 3 seeds)" for model in models]
    assert [axes.get_legend_handles_labels()[1] for axes in panels] == [[*models, *longer], models]
    assert [diamonds(axes) for axes in panels] == [[], []]  # the paper has no value for AlexNet
    rows = [line for line in results_page(tmp_path).splitlines() if line.startswith("| ls-biid-covid")]
    assert [row.split(" | ")[6] for row in rows] == ["84.32 ± 0.11", "72.15 ± 0.14", "80.11 ± 0.18"]  # of ResNet-9


def test_the_evidence_takes_no_settings_but_the_machines() -> None:
    with pytest.raises(ConfigError, match="--num-rounds: --experiment evidence has the settings of its records"):
        configs("evidence", (1,), {"num_rounds": 2})
    assert configs("evidence", (1,), {"workers": 3})[0].workers == 3


def test_every_run_of_the_evidence_has_a_name_of_its_own_and_its_seed() -> None:
    runs = configs("evidence", (1, 2, 3, 4, 5), {})
    assert len({records.record_name(config) for config in runs}) == len(runs)
    assert {config.seed for config in runs} == {1, 2, 3}
    assert {records.record_name(config) for item in shown_on(RESULTS) for config in configs(item.name, (1,), {})} == {
        records.record_name(config) for config in runs
    }
    assert {(config.arch, config.precision) for config in runs if config.profile == "paper"} == {
        *(("alexnet", precision) for precision in ("float32", "bfloat16")),
        ("resnet9", "bfloat16"),
    }


def test_the_readme_has_the_figures_of_the_records() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = [entry for entry in entries(EXPERIMENTS["results-alexnet"]) if entry.records]
    for entry in (*shown, entries(EXPERIMENTS["results-resnet9"])[0]):
        cells = pages.cells(entry)
        for column in ("last ten rounds (%)", "last round (%)", "paper"):
            assert tables.text(cells[column]) in readme, (entry.config.model, column)
    answer = readme.split("Does FedMatch win?")[1].split("Caveat")[0]
    for item in ("results-labels-at-server", "results-covid"):
        for entry in entries(EXPERIMENTS[item]):
            if entry.config.learner in ("fedmatch", "uda") and entry.label == entry.config.model:
                assert tables.text(pages.cells(entry)["last ten rounds (%)"]) in answer, entry.label


def test_the_page_is_what_the_records_give() -> None:
    assert (ROOT / "docs" / "RESULTS.md").read_text() == results_page(ROOT), "make it anew with `make results`"
    assert (ROOT / "docs" / "FIELD.md").read_text() == field_page(ROOT), "make it anew with `make results`"
    for path in (ROOT / "study" / "results").glob("*/*"):
        assert path.stat().st_size < 150_000
        if path.name == "config.json":
            settings = json.loads(path.read_text())["settings"]
            assert not [value for value in settings.values() if isinstance(value, str) and value.startswith("/")]
