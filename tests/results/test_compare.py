"""Our runs beside the original's logs, which may be anything."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import ConfigError
from fedmatch_tf.results import results
from fedmatch_tf.results.compare import compare, not_comparable, read_original, settings_table, verdicts
from fedmatch_tf.results.tables import comma_separated
from tests.conftest import ORIGINAL, ROOT, assert_refused, run_main
from tests.results.made_up_runs import write_run

OPTIONS = {"task": "lc-biid-c10", "lr": 0.001, "confidence": 0.75, "wd": 1e-4, "archi": "resnet9", "frac_clients": 0.05}


def write_original(folder: Path, accuracies: list[float], **options: Any) -> Path:
    folder.mkdir(parents=True)
    count = len(accuracies)
    server = {
        "c2s": {"sum": [0.5] * count, "sig": [0.3] * count, "psi": [0.2] * count},
        "s2c": {"sum": [2.0] + [1.0] * (count - 1), "sig": [1.0] * count, "psi": [1.0] * count, "hlp": [0.0] * count},
        "scores": {"aggr_acc": accuracies, "aggr_lss": [2.0] * count, "valid_loss": []},
        "options": {**OPTIONS, **options},
    }
    (folder / "server.txt").write_text(json.dumps(server))
    (folder / "client-3.txt").write_text(json.dumps({"scores": {"valid_loss": [1.0], "test_acc": [0.5]}}))
    return folder


def test_every_quantity_has_a_verdict_on_the_rounds_that_both_have(tmp_path: Path) -> None:
    theirs = read_original(write_original(tmp_path / "theirs", [0.1, 0.2, 0.3, 0.9]))
    ours = results.read(write_run(tmp_path / "run", [0.12, 0.22, 0.32]))
    table = verdicts([ours], theirs)
    rows = {row[1]: dict(zip(table.head, row)) for row in csv.reader(io.StringIO(comma_separated(table)))}
    accuracy = rows["accuracy (%)"]
    assert (accuracy["ours, mean"], accuracy["original, mean"]) == ("22", "20")  # over three rounds, not four
    assert (accuracy["difference"], accuracy["allowed"], accuracy["last common round"]) == ("2", "3", "3")
    assert (accuracy["ours in it"], accuracy["original in it"]) == ("32", "30")
    assert accuracy["verdict"] == "agrees"
    assert rows["loss"]["verdict"] == "differs"  # 1 against 2
    assert rows["C2S, sum (%)"]["verdict"] == "agrees"
    assert rows["C2S, sigma (%)"]["verdict"] == "differs"  # 100 against 30
    helpers = rows["S2C, helpers (%)"]
    assert (helpers["ours, mean"], helpers["original, mean"]) == ("25", "0")
    assert theirs.clients[3]["test_acc"] == (0.5,)


def test_settings_that_differ_stand_beside_each_other(tmp_path: Path) -> None:
    theirs = read_original(write_original(tmp_path / "theirs", [0.1], lr=0.01))
    ours = results.read(write_run(tmp_path / "run", [0.12]))
    rows = {row[0]: row[1:] for row in settings_table(ours, theirs).rows}
    assert rows["lr"] == ["0.001", "0.01", "0.001"]
    assert rows["wd"] == ["0.0001", "0.0001", "0.0"]
    assert rows["confidence"] == ["0.85", "0.75", "0.75"]  # the paper alone differs
    assert "arch" not in rows


def test_an_ablation_is_not_judged_and_settings_the_original_does_not_record_are_told(tmp_path: Path) -> None:
    theirs = read_original(write_original(tmp_path / "theirs", [0.1]))
    without = results.read(write_run(tmp_path / "ablation", [0.12], no_icc=True))
    assert not_comparable(without, theirs) == "--no-icc, which the original does not have"
    other = results.read(write_run(tmp_path / "run", [0.12], lr_signal="server", augment="none"))
    assert not_comparable(other, theirs) == ""
    rows = {row[0]: row[1:] for row in settings_table(other, theirs).rows}
    assert rows["lr-signal"] == ["client", "not recorded", "server"]
    assert rows["augment"][1:] == ["not recorded", "none"]


def test_a_folder_is_written_with_page_figures_and_tables(tmp_path: Path) -> None:
    write_original(tmp_path / "theirs", [0.1, 0.2], lr="<script>x</script>")
    write_run(tmp_path / "logs" / "task", [0.1], task="ls-biid-c10")
    write_run(tmp_path / "logs" / "network", [0.1], arch="alexnet", seed=2)
    write_run(tmp_path / "logs" / "fraction", [0.1], frac_clients=0.1)
    write_original(write_run(tmp_path / "logs" / "run", [0.12, 0.3]) / "x", [0.1])
    for name in ("server.txt", "client-3.txt"):
        (tmp_path / "logs" / "run" / "x" / name).replace(tmp_path / "logs" / "run" / name)
    (tmp_path / "logs" / "run" / "x").rmdir()
    made = compare([str(tmp_path / "logs" / "*")], tmp_path / "theirs", tmp_path)
    page = (made / "compare.html").read_text()
    assert "<script>x" not in page
    assert len(list((made / "figures").glob("*.svg"))) == 10  # accuracy, loss, four costs one way, three the other
    assert len(list(csv.reader((made / "tables" / "verdicts.csv").open()))) == 10
    assert [row[1:] for row in csv.reader((made / "tables" / "clients.csv").open())][1:] == [["1", "1", "", "0.5"]] * 2
    assert sorted(csv.reader((made / "tables" / "not-compared.csv").open()))[:3] == [
        ["fraction", "frac-clients 0.1, the original's is 0.05"],
        ["network", "arch alexnet, the original's is resnet9"],
        ["run", "reason"],
    ]
    assert "task ls-biid-c10, the original&#39;s is lc-biid-c10" in page
    with pytest.raises(ConfigError, match=r"expected a run that can be compared .*\n  network: arch alexnet, the orig"):
        compare([str(tmp_path / "logs" / "network")], tmp_path / "theirs", tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"scores": 3}',
        '{"scores": {"aggr_acc": 3}, "s2c": {}, "c2s": {}}',
        '{"scores": {"aggr_acc": ["x"]}, "s2c": {}, "c2s": {}}',
        '{"scores": {"aggr_acc": [NaN]}, "s2c": {}, "c2s": {}}',
        '{"scores": {"aggr_acc": [1e999]}, "s2c": {}, "c2s": {}}',
        '{"scores": {}, "s2c": {"sum": [true]}, "c2s": {}}',
        '{"scores": {}, "s2c": {}, "c2s": {}, "options": 3}',
        "[" * 100_000,
        "\x00",
        '{"scores": {}, "s2c": {}, "c2s": {}, "options": {"task": "\\ud800"}}',
        '{"scores": {"aggr_lss": [1e308]}, "s2c": {}, "c2s": {}}',
        f'{{"scores": {{"aggr_lss": [{10**400}]}}}}',
    ],
)
def test_logs_that_are_not_the_originals_are_refused(content: str, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "server.txt").write_text(content)
    with pytest.raises(DataError, match=r"server|theirs"):
        read_original(folder)


def test_logs_that_are_no_files_are_refused(tmp_path: Path) -> None:
    for name, make in (("fifo", os.mkfifo), ("zero", lambda path: path.symlink_to("/dev/zero"))):
        (tmp_path / name).mkdir()
        make(tmp_path / name / "server.txt")
        with pytest.raises(DataError, match=r"server.txt: expected a regular file, found a (pipe|device)"):
            read_original(tmp_path / name)


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    write_run(tmp_path / "logs" / "run", [0.12, 0.3])
    assert_refused(run_main("--work-type=compare", "--runs", "logs/*", cwd=tmp_path), "--official: expected")
    result = run_main("--work-type=compare", "--runs", "logs/*", "--official", "nowhere", cwd=tmp_path)
    assert_refused(result, "or a file with a curve of it; nowhere/server.txt: No such file")
    assert not (tmp_path / "outputs").exists()


def test_a_real_log_folder_of_the_original_is_read() -> None:
    (folder,) = (ORIGINAL / "logs").iterdir()
    original = read_original(folder)
    assert [round(100 * value, 2) for value in original.accuracy] == [12.25, 15.85, 15.05]
    assert len(original.clients) == 15
    assert original.options["confidence"] == 0.75


def test_a_run_is_laid_over_the_originals_curve_ten_rounds_at_a_time(tmp_path: Path) -> None:
    run = write_run(tmp_path / "logs" / "run", [0.1] * 10 + [0.2] * 10 + [0.4] * 2)
    folder = compare([str(run)], ORIGINAL / "curve_lc-biid-c10.json", tmp_path / "out")
    rows = [row.split(",") for row in (folder / "tables" / "tens.csv").read_text().splitlines()]
    accuracy = {row[2]: row[3:] for row in rows if row[1] == "accuracy (%)"}
    # The means of the original's curve are 17.37 and 22.995 % (by a calculator, from its file).
    assert accuracy["1 to 10"] == ["10", "17.37", "-7.37"]
    assert accuracy["11 to 20"] == ["20", "22.995", "-2.995"]
    assert list(accuracy) == ["1 to 10", "11 to 20", "21 to 22"]
    assert not (folder / "tables" / "clients.csv").exists(), "a curve has no clients"


def test_the_figures_on_the_page_are_those_of_the_record(tmp_path: Path) -> None:
    records = [str(ROOT / f"study/results/lc-biid-c10-resnet9-fedmatch-40-rounds-seed{seed}") for seed in (1, 2)]
    folder = compare(records, ORIGINAL / "curve_lc-biid-c10.json", tmp_path)
    rows = [row.split(",") for row in (folder / "tables" / "tens.csv").read_text().replace('", ', " ").splitlines()]
    page = (ROOT / "docs" / "FIDELITY.md").read_text()
    for quantity in ("accuracy (%)", "loss"):
        both = [[(row[3], row[4]) for row in rows if row[:2] == [f"{Path(run).name}", quantity]] for run in records]
        first, second = ([ours for ours, _ in run] for run in both)
        theirs = [original for _, original in both[0]]
        originals = "the original's, seed 1" if quantity.startswith("accuracy") else "the original's"
        for name, values in ((f"{quantity}, ours, seed 1", first), ("ours, seed 2", second), (originals, theirs)):
            cells = [
                [float(cell) for cell in row.split("|")[2:6]]
                for row in page.splitlines()
                if row.startswith(f"| {name} |")
            ]
            assert [float(value) for value in values] in [pytest.approx(each, abs=0.0051) for each in cells], name


def test_settings_that_the_original_does_not_record_are_told_and_those_that_it_does_stand_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [0.1], frac_clients=0.1, lr=0.1, confidence=0.5, keep_best=True)
    theirs = read_original(ORIGINAL / "curve_lc-biid-c10.json")
    rows = [[row[0], *row[2:]] for row in settings_table(results.read(run), theirs).rows]
    assert ["lr", "not recorded", "0.1"] in rows
    assert ["confidence", "not recorded", "0.5"] in rows
    assert [row for row in rows if row[0] == "frac-clients"] == [["frac-clients", "0.05", "0.1"]]
    assert "keep-best" not in {row[0] for row in rows}, "it changes no result"
