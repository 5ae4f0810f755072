"""Tables, figures and pages from records written by hand: hostile strings, gaps, classes, a browser."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.base.drawing import isolated, with_gaps
from fedmatch_tf.config import MODELS, ConfigError
from fedmatch_tf.results import report_tables, results, style, tables
from fedmatch_tf.results.build import report
from fedmatch_tf.results.outcome import describe
from fedmatch_tf.results.plots import readable_on, task_figures
from fedmatch_tf.results.references import Published, Reference, Reported
from fedmatch_tf.results.summary import band, summarise
from fedmatch_tf.runs.curve import curve
from fedmatch_tf.runs.tensorboard import NAME, ScalarLog
from tests.conftest import ROOT, assert_refused, run_main
from tests.results.made_up_runs import groups_of, line, record, write_rounds, write_run

LOSSES = ("total", "supervised", "inter_client", "pseudo", "l1", "l2", "proximal")
HOSTILE = "<script>alert(1)</script> & $x_1^2$ \\input{/etc/passwd} | =cmd() ~ % # {}"


def test_hostile_strings_are_escaped_everywhere(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "logs" / "run", [0.5, 0.6])
    about = json.loads((folder / "config.json").read_text())
    about["settings"]["source"] = HOSTILE
    (folder / "config.json").write_text(json.dumps(about))
    other = write_run(tmp_path / "logs" / "other", [0.5], num_rounds=2)
    (other / "stopped.txt").write_text(HOSTILE)
    spoilt = write_run(tmp_path / "logs" / "spoilt", [0.5])
    about["settings"]["model"] = HOSTILE
    (spoilt / "config.json").write_text(json.dumps(about))
    (folder / "confusion.json").write_text(json.dumps({"class_names": [HOSTILE, "b"], "matrix": [[1, 2], [3, 4]]}))
    made = report([str(tmp_path / "logs" / "*")], tmp_path)
    page = (made / "report.html").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    tex = (made / "tables" / "runs.tex").read_text()
    assert r"\input" not in tex
    assert r"\textbackslash{}input\{/etc/passwd\}" in tex
    assert r"\$x\_1\textasciicircum{}2\$" in tex
    assert r"\|" in (made / "tables" / "runs.md").read_text()
    assert "<script" not in (made / "tables" / "runs.md").read_text().replace(r"\<script", "")
    assert len(list((made / "figures").glob("*.png"))) == len(list((made / "figures").glob("*.svg"))) >= 3
    for path in (made / "figures").iterdir():
        assert path.resolve().parent == (made / "figures").resolve()


def test_a_cell_is_no_formula_for_a_spreadsheet() -> None:
    table = tables.Table("t", "t", ["a", "b"], [["=1+1", "-3.50"], ["@x", "+cmd"]])
    assert tables.comma_separated(table) == "a,b\n'=1+1,-3.50\n'@x,'+cmd\n"


def test_csv_has_numbers_in_cells_and_deviations_in_columns_of_their_own() -> None:
    rows: list[list[tables.Cell]] = [
        ["a", tables.Value(12.3456789, 0.5), tables.Value(50.0), tables.Missing("other settings")],
        ["b", tables.Value(1e-7), "", tables.Value(-3.5, sign=True)],
    ]
    table = tables.Table("t", "t", ["model", "acc.", "paper", "difference"], rows)
    head = 'model,acc.,"acc., deviation",paper,difference\n'
    assert tables.comma_separated(table) == head + "a,12.345679,0.5,50,\nb,0,,,-3.5\n"
    assert tables.texts(table) == [["a", "12.35 ± 0.50", "50.00", "- other settings"], ["b", "0.00", "", "-3.50"]]


def test_all_rounds_of_all_runs_are_one_flat_table(tmp_path: Path) -> None:
    for seed in (1, 2):
        write_run(tmp_path / "logs" / f"run{seed}", [0.25, 0.5], seed=seed)
    measured = {"labeled_acc": {"before": 0.5, "after": 0.25, "steps": [0.75, 0.5]}, "confident_rows": 3}
    write_rounds(tmp_path / "logs" / "run2", [line(0, 0.25), line(1, 0.5, **measured)])
    made = report([str(tmp_path / "logs" / "*")], tmp_path)
    rows = list(csv.DictReader((made / "tables" / "rounds.csv").open()))
    assert [(row["run"], row["seed"], row["round"], row["test_acc"]) for row in rows] == [
        ("run1", "1", "0", "0.25"),
        ("run1", "1", "1", "0.5"),
        ("run2", "2", "0", "0.25"),
        ("run2", "2", "1", "0.5"),
    ]
    assert {row["state"] for row in rows} == {"finished"}
    assert {row["s2c.sum"] for row in rows} == {"2.0", "1.0"}
    assert {row["pseudo_label_acc"] for row in rows} == {""}
    assert {row["clients"] for row in rows} == {"0 1"}
    assert [row["labeled_acc.after"] for row in rows] == ["", "", "", "0.25"]
    assert [row["labeled_acc.steps"] for row in rows] == ["", "", "", "0.75 0.5"]
    assert [row["confident_rows"] for row in rows] == ["", "", "", "3"]
    assert {row["train_loss.total"] for row in rows} == {""}


# 10 cats of which 8 are right, 30 dogs of which 24 are: recall 0.8 each, precision 8/14 and 24/26.
CATS_AND_DOGS = {"class_names": ["cat", "dog"], "matrix": [[8, 2], [6, 24]]}


def test_classes_have_their_own_accuracy_and_imbalanced_data_macro_f1(tmp_path: Path) -> None:
    for seed, matrix in ((1, [[8, 2], [6, 24]]), (2, [[6, 4], [3, 27]])):
        folder = write_run(tmp_path / "logs" / f"run{seed}", [0.8], seed=seed)
        (folder / "confusion.json").write_text(json.dumps({**CATS_AND_DOGS, "matrix": matrix}))
    (group,) = groups_of(tmp_path / "logs")
    summary = summarise(group)
    table = report_tables.classes_table("lc-biid-c10", [summary])
    assert table is not None
    assert tables.texts(table) == [["cat", "10", "70.0 ± 14.1"], ["dog", "30", "85.0 ± 7.1"]]
    f1 = [(2 * 8 / (10 + 14) + 2 * 24 / (30 + 26)) / 2, (2 * 6 / (10 + 9) + 2 * 27 / (30 + 31)) / 2]
    assert summary.macro_f1 is not None
    assert summary.macro_f1.value == pytest.approx(100 * sum(f1) / 2)
    assert "macro-F1 (%)" in report_tables.accuracy_table("lc-biid-c10", [summary]).head
    text = describe(results.read(tmp_path / "logs" / "run1"))
    assert f"cat: 80 %, dog: 80 %; macro-F1 {100 * f1[0]:.2f} %" in text


def test_a_model_that_predicts_one_class_only_is_told_of(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.25])
    assert "predicts" not in describe(results.read(folder))
    (folder / "confusion.json").write_text(json.dumps({**CATS_AND_DOGS, "matrix": [[10, 0], [30, 0]]}))
    assert "predicts cat for every image" in describe(results.read(folder))
    (group,) = groups_of(tmp_path)
    table = report_tables.accuracy_table("lc-biid-c10", [summarise(group)])
    assert dict(zip(table.head, table.rows[0]))["note"] == "predicts cat for every image"


def test_costs_are_means_over_the_seeds(tmp_path: Path) -> None:
    for seed, cost in ((1, 0.5), (2, 1.5)):
        folder = write_run(tmp_path / f"run{seed}", [0.5], seed=seed)
        sent = {"sum": cost, "sigma": cost, "psi": 0.0, "helpers": 0.0, "bytes": 1.0}
        write_rounds(folder, [line(0, 0.5, s2c=sent)])
    (group,) = groups_of(tmp_path)
    rounds, centre, width = band(group, "s2c", "sum")
    assert (rounds, centre) == ([1], [100.0])
    assert width == pytest.approx([math.sqrt(2) * 50])


def test_images_of_ones_own_have_a_section_for_each_source(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        write_run(tmp_path / "logs" / name, [0.5, 0.6], task="lc-biid-own", source=f"/somewhere/{name}")
    assert [group.label for group in groups_of(tmp_path / "logs")] == [
        "lc-biid-own cats: fedmatch",
        "lc-biid-own dogs: fedmatch",
    ]
    made = report([str(tmp_path / "logs" / "*")], tmp_path)
    assert (made / "figures" / "accuracy-lc-biid-own-cats.png").exists()
    assert (made / "tables" / "accuracy-lc-biid-own-dogs.csv").exists()
    assert "somewhere" not in (made / "tables" / "accuracy.csv").read_text()


def test_what_a_model_does_not_have_is_not_drawn(tmp_path: Path) -> None:
    for model in ("local-uda", "fedavg-fixmatch", "fedmatch"):
        folder = write_run(tmp_path / "logs" / model, [0.5, 0.6], model=model)
        share = {"local-uda": 1.0, "fedavg-fixmatch": 0.0, "fedmatch": 0.5}[model]
        write_rounds(folder, [line(number, 0.5, confident=share, local_test_acc=0.5) for number in range(2)])
    summaries = [summarise(group) for group in groups_of(tmp_path / "logs")]
    drawn = {name: figure.axes[0].get_legend_handles_labels()[1] for name, _, figure in task_figures("t", summaries)}
    assert drawn["accuracy-t"] == ["fedmatch", "fedavg-fixmatch", "local-uda"]
    assert drawn["local-accuracy-t"] == ["fedmatch", "fedavg-fixmatch"], "of local-uda it is the same as the other"
    assert drawn["confident-t"] == ["fedmatch", "fedavg-fixmatch"], "UDA has no pseudo-labels; 0 is a value"


def test_a_model_looks_the_same_in_every_figure_and_no_two_look_alike() -> None:
    looks = [style.of_model(model) for model in MODELS]
    assert len(set(looks)) == len(MODELS)
    for model in MODELS:
        *variants, other = style.of_models([*[model] * 8, "semifl" if model == "fedmatch" else "fedmatch"])
        shades = [sum(int(look.colour[place : place + 2], 16) for place in (1, 3, 5)) for look in variants]
        assert shades == sorted(set(shades), reverse=True), "from light to dark"
        assert all(len({look.colour[place : place + 2] for place in (1, 3, 5)}) > 1 for look in variants), "no greys"
        assert {look.marker for look in variants} == set(style.MARKERS)
        assert other in looks, "the only one of its name has the name's colour"


def test_rounds_without_a_value_leave_a_gap_and_a_single_one_is_a_point(tmp_path: Path) -> None:
    x, y = with_gaps([1, 2, 5, 8, 9], [10.0, 20.0, 30.0, 40.0, 50.0])
    np.testing.assert_array_equal(y, [10, 20, np.nan, 30, np.nan, 40, 50])
    assert x[isolated(y)].tolist() == [5]
    accuracies = [None, 0.5, None, None, 1.0, 0.9]
    figure = curve([line(number, 0.5, pseudo_label_acc=value) for number, value in enumerate(accuracies)], "title")
    drawn, points = figure.axes[1].get_lines()[1:]
    np.testing.assert_array_equal(drawn.get_ydata(), [np.nan, 50, np.nan, np.nan, 100, 90])
    np.testing.assert_array_equal(points.get_xydata(), [[2, 50]])
    alone = curve([line(0, 0.5)], "title").axes[0].get_lines()[1]
    np.testing.assert_array_equal(alone.get_xydata(), [[1, 50]])
    assert alone.get_marker() == ".", "a line of one point can't be seen"
    none = curve([line(number, 0.5) for number in range(3)], "title").axes[1]
    assert [text.get_text() for text in none.get_legend().get_texts()] == ["unlabelled rows with one"]


def test_digits_stand_out_on_every_colour() -> None:
    assert readable_on((1.0, 1.0, 1.0)) == readable_on((0.7, 0.7, 0.2)) == "black"
    assert readable_on((0.0, 0.0, 0.0)) == readable_on((0.0, 0.2, 0.4)) == "white"
    assert readable_on((0.49, 0.49, 0.47)) == "black"  # grey: 4.9 to 1 against 4.2 to 1


def full_report(tmp_path: Path) -> Path:
    """A report that has every figure."""
    for seed in (1, 2):
        write_run(tmp_path / "logs" / f"fm{seed}", [0.1, 0.3 + 0.1 * seed, 0.5], seed=seed)
        folder = write_run(
            tmp_path / "logs" / f"ab{seed}", [0.1, 0.2, 0.4], seed=seed, ablate_eval=True, labeled_acc=True
        )
        measured = {"before": 0.6, "after": 0.5, "steps": [0.6, 0.5]}
        extra = {"test_acc_sigma": 0.2, "test_acc_psi": 0.1, "labeled_acc": measured}
        extra["train_loss"] = dict.fromkeys(LOSSES, None) | {"total": 15_000.0, "supervised": 20.0, "l2": 14_980.0}
        extra["norms"] = {"sigma": 67.6, "psi": 13.5, "cosine": 0.9}
        lines = [line(n, 0.2, pseudo_label_acc=0.9, helpers={"1": [0, 2], "0": [2]}, **extra) for n in range(3)]
        write_rounds(folder, lines)
        counts = {"class_names": ["cat", "dog"], "unlabeled": [[5, 1], [2, 2], [0, 9]]}
        (folder / "partition.json").write_text(json.dumps(counts))
        (folder / "confusion.json").write_text(json.dumps({"class_names": ["cat", "dog"], "matrix": [[8, 2], [3, 7]]}))
    write_run(tmp_path / "logs" / "sl", [0.4, 0.5, 0.6], model="fedavg-sl")
    return report([str(tmp_path / "logs" / "*")], tmp_path)


def test_every_kind_of_figure_is_drawn(tmp_path: Path) -> None:
    made = full_report(tmp_path)
    kinds = {path.stem.split("-lc-biid-c10")[0] for path in (made / "figures").glob("*.png")}
    of_models = {"accuracy", "test-loss", "validation-loss", "confident", "pseudo-labels", "labeled-acc", "classes"}
    assert kinds == {*of_models, "cost", "parts", "train-loss", "norms", "helpers", "confusion"}
    page = (made / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page
    of_task = [f"{kind}-lc-biid-c10" for kind in ("accuracy", "paired", "settings", "costs", "classes")]
    assert {path.name for path in (made / "tables").iterdir()} == {"rounds.csv"} | {
        f"{name}.{ending}" for name in ("accuracy", "runs", *of_task) for ending in ("md", "csv", "tex")
    }
    assert len(list((made / "figures").glob("classes-*.png"))) == 1, "all runs share the partition"


def test_accuracy_by_labels_per_class_is_drawn_where_runs_differ_in_it(tmp_path: Path) -> None:
    for labels in (1, 5, 20):
        for model in ("fedmatch", "fedprox-uda"):
            write_run(tmp_path / "logs" / f"{model}{labels}", [0.1, labels / 40], model=model, labels_per_class=labels)
    made = report([str(tmp_path / "logs" / "*")], tmp_path)
    assert (made / "figures" / "labels-lc-biid-c10.png").exists()


def test_records_that_ship_have_a_line_and_rows_of_their_own(tmp_path: Path) -> None:
    for labels in (5, 10):
        for name in ("own", "shipped"):
            folder = write_run(tmp_path / f"{name}{labels}", [0.25], labels_per_class=labels)
            about = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps({**about, "shipped": name == "shipped"}))
    figures = task_figures("lc-biid-c10", [summarise(group) for group in groups_of(tmp_path)])
    (figure,) = [figure for name, _, figure in figures if name == "labels-lc-biid-c10"]
    lines = {line.get_label(): np.asarray(line.get_xdata()).tolist() for line in figure.axes[0].get_lines()}
    assert lines["fedmatch"] == lines["fedmatch (shipped record)"] == [5, 10]
    found = results.find([str(tmp_path / "*")])
    rows = list(csv.DictReader(report_tables.rounds_csv(found).splitlines()))
    assert [(row["run"], row["shipped"]) for row in rows] == [
        *(("own10", "false"), ("own5", "false"), ("shipped10", "true"), ("shipped5", "true")),
    ]
    remarks = [row[2] for row in tables.texts(report_tables.runs_table(found))]
    assert remarks == ["", "", "shipped record", "shipped record"]


def test_the_command_reports_without_tensorflow_and_prints_its_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "outputs" / "logs" / "run", [0.1, 0.4])
    code = (
        "import sys; from fedmatch_tf.main import main; code = main(sys.argv[1:]); "
        "assert 'tensorflow' not in sys.modules; sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, "--work-type", "report", "--runs", "outputs/logs/*", "--quiet"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    folder = tmp_path / result.stdout.splitlines()[-1]
    assert (folder / "report.html").exists()
    assert folder.parent == tmp_path / "outputs" / "reports"


def test_runs_that_are_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path.parent / "there").mkdir(exist_ok=True)
    with pytest.raises(ConfigError, match="expected folders of runs"):
        results.find([str(tmp_path.parent / "there"), str(tmp_path / "nothing*")])
    assert_refused(run_main("--work-type", "report", cwd=tmp_path), "--runs: expected folders of runs")
    assert_refused(run_main("--work-type", "report", "--runs", "x*", cwd=tmp_path), "--runs: expected folders of runs")
    result = run_main("--work-type", "report", "--runs", "x", "--lr", "1", cwd=tmp_path)
    assert_refused(result, "--lr: has no meaning with --work-type report")
    assert list(tmp_path.iterdir()) == []


def test_scalars_are_read_back_by_tensorboard(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    begin = time.time()
    log = ScalarLog(tmp_path / "tensorboard", [record(0, 0.25)], dict)
    log.on_round(record(1, 0.5, local_test_acc=0.75, labeled_acc={"before": 0.5, "after": 0.25, "steps": []}))
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("accuracy/global")] == [(1, 0.25), (2, 0.5)]
    assert [event.value for event in events.Scalars("accuracy/clients")] == [0.75]
    assert [event.value for event in events.Scalars("labeled_acc/after")] == [0.25]
    assert {"s2c/sum", "c2s/psi", "learning_rate", "pseudo_labels/confident"} <= set(events.Tags()["scalars"])
    times = [event.wall_time for event in events.Scalars("accuracy/global")]
    assert all(begin <= moment <= time.time() for moment in times)
    ScalarLog(tmp_path / "tensorboard", [record(0, 0.125)], dict)  # a run that goes on writes its file anew
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.value, event.wall_time) for event in events.Scalars("accuracy/global")] == [(0.125, times[0])]
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] == [NAME]


CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Debian's chromium and chromium-driver are not installed")
def test_the_page_works_in_a_browser(tmp_path: Path) -> None:
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By

    made = full_report(tmp_path)
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    disabled = [f"disable-{what}" for what in ("gpu", "sync", "component-update", "background-networking")]
    for flag in ("headless=new", "no-sandbox", "no-first-run", f"user-data-dir={tmp_path / 'browser'}", *disabled):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        for width in (1400, 420):
            browser.set_window_size(width, 900)
            browser.get((made / "report.html").as_uri())
            images = browser.execute_script("return [...document.images].map(image => image.naturalWidth)")
            assert len(images) == len(list((made / "figures").glob("*.png")))
            assert min(images) > 100
            overflow = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
            assert overflow <= 0, "the page itself must not scroll sideways"
        finals = 'return [...document.querySelectorAll("#accuracy tbody tr")].map(row => row.cells[8].textContent)'
        header = browser.find_elements(By.CSS_SELECTOR, "#accuracy th button")[8]
        browser.execute_script("arguments[0].click()", header)
        up = [float(text.split()[0]) for text in browser.execute_script(finals)]
        browser.execute_script("arguments[0].click()", header)
        down = [float(text.split()[0]) for text in browser.execute_script(finals)]
        assert up == sorted(up)
        assert down == sorted(down, reverse=True)
        assert len(set(up)) > 1
        assert browser.get_log("browser") == []
    finally:
        browser.quit()


def test_fedmatch_comes_before_what_it_is_compared_with_which_is_in_the_order_of_the_papers_tables(
    tmp_path: Path,
) -> None:
    for model in ("local-sl", "fedavg-fixmatch", "fedmatch", "fedavg-sl"):
        write_run(tmp_path / model, [0.5], model=model)
    write_run(tmp_path / "other", [0.5], task="lc-bimb-c10")
    labels = [group.label for group in groups_of(tmp_path)]
    models = ["fedmatch", "fedavg-sl", "fedavg-fixmatch", "local-sl"]
    assert labels == [*(f"lc-biid-c10: {model}" for model in models), "lc-bimb-c10: fedmatch"]


def test_a_runs_outcome_has_its_last_and_best_accuracy(tmp_path: Path) -> None:
    text = describe(results.read(write_run(tmp_path / "run", [0.1, 0.5, 0.25])))
    assert "25.00 % at the end, highest 50.00 % in round 2 (chosen on test data)" in text
    assert "133 % of one parameter set per round (100 % without first visits), 2.0 MB" in text  # 2, 1 and 1
    (tmp_path / "run" / "config.json").write_text("{")
    assert "no result: config.json" in describe(results.read(tmp_path / "run"))


def test_a_servers_rate_that_fell_is_told_and_drawn(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "logs" / "run", [0.1, 0.2], task="ls-biid-c10")

    def told(first: Any, last: Any) -> str:
        write_rounds(folder, [line(0, 0.1, server_lr=first), line(1, 0.2, server_lr=last)])
        return describe(results.read(folder))

    assert "server's rate" not in told(None, None)  # runs of earlier versions have none on record
    assert "server's rate" not in told(None, 1e-3)  # it did not fall
    assert re.search("server's rate +0.001 at the start, 0.000333 at the end", told(1e-3, 1e-3 / 3))
    made = report([str(folder)], tmp_path)
    assert (made / "figures" / "learning-rate-server-ls-biid-c10.png").exists()
    assert not (made / "figures" / "learning-rate-ls-biid-c10.png").exists()  # the clients' did not fall


def test_without_references_a_report_and_an_outcome_say_nothing_of_papers(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "logs" / "run", [0.1, 0.5, 0.25])
    assert "paper" not in describe(results.read(folder))
    made = report([str(folder)], tmp_path)
    heads = [path.read_text().splitlines()[0] for path in (made / "tables").glob("accuracy*.csv")]
    assert len(heads) == 2
    assert not any(word in head for head in heads for word in ("paper", "difference", "published"))
    assert "paper" not in re.sub(r"<script.*?</script>", "", (made / "report.html").read_text(), flags=re.S)


def test_what_others_report_stands_beside_runs_of_their_settings(tmp_path: Path) -> None:
    def references(settings: Mapping[str, Any]) -> Reference:
        if settings["seed"] == 1:
            return Reference(Reported("Somebody", 20.0), published=[Published("Others", "fedmatch", 31.5)], shipped="x")
        return Reference(Reported("Somebody", 20.0, 1.5, local=True), other_settings="lr 3", unlike_profile="lr 2")

    runs = [write_run(tmp_path / "logs" / f"run{seed}", [0.1, 0.25], seed=seed, lr=0.1 * seed) for seed in (1, 2)]
    texts = [re.sub(" +", " ", describe(results.read(run), references)) for run in runs]
    assert " the paper 20.00 % (Somebody)\n published fedmatch 31.5 % (Others)\n shipped records x\n" in texts[0]
    assert " the paper 20.00 ± 1.50 %, mean of the clients (Somebody)\n unlike profile official lr 2\n" in texts[1]
    assert " not the paper's lr 3\n" in texts[1]
    made = report([str(tmp_path / "logs" / "*")], tmp_path, references=references)
    rows = list(csv.DictReader((made / "tables" / "accuracy-lc-biid-c10.csv").open()))
    assert [row["difference"] for row in rows] == ["5", ""]
    assert [row["published (%)"] for row in rows] == ["31.5 (Others)", ""]
    assert [row["settings that are not the paper's"] for row in rows] == ["", "lr 3"]
