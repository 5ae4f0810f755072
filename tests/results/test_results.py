"""What is read of runs on disk, who is averaged with whom, and what the paper has for it."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.results import report_tables, results, tables
from fedmatch_tf.results.paper import reported
from fedmatch_tf.results.summary import band, mean, returning_cost, summarise
from tests.results.made_up_runs import groups_of, line, write_run


def test_means_and_sample_deviations_are_over_seeds(tmp_path: Path) -> None:
    for seed, accuracies in enumerate([[0.1, 0.5, 0.3], [0.1, 0.2, 0.4], [0.1, 0.9, 0.5]], start=1):
        write_run(tmp_path / f"run{seed}", accuracies, seed=seed)
    (group,) = groups_of(tmp_path)
    summary = summarise(group)
    assert summary.final is not None
    assert summary.final.value == pytest.approx(40)
    assert summary.final.deviation == pytest.approx(10)  # of 30, 40 and 50
    assert summary.best is not None
    assert summary.best.value == pytest.approx((50 + 40 + 90) / 3)
    assert summary.s2c is not None
    assert summary.s2c.value == pytest.approx(4 / 3)  # 2, 1 and 1
    assert summary.c2s is not None
    assert summary.c2s.value == pytest.approx(0.5)
    assert summary.megabytes is not None
    assert summary.megabytes.value == pytest.approx(4)
    assert summary.minutes is not None
    assert summary.minutes.value == pytest.approx(1.5)
    assert summary.local is None


def test_one_seed_has_no_deviation() -> None:
    assert mean([3.0]) == (3.0, None)
    assert mean([]) is None
    assert tuple(mean([1.0, 3.0]) or ()) == pytest.approx((2.0, math.sqrt(2)))


def test_partial_and_unreadable_runs_are_shown_and_never_averaged(tmp_path: Path) -> None:
    write_run(tmp_path / "whole", [0.1, 0.2, 0.3], seed=1)
    write_run(tmp_path / "partial", [0.1, 0.9], seed=2, num_rounds=3)
    (tmp_path / "partial" / "stopped.txt").write_text("Ctrl-C\n")
    write_run(tmp_path / "torn", [0.1, 0.2, 0.3], seed=3)
    torn = (tmp_path / "torn" / "rounds.jsonl").read_text()
    (tmp_path / "torn" / "rounds.jsonl").write_text(torn[: len(torn) - 40])
    (tmp_path / "empty").mkdir()
    found = {result.name: result for result in results.find([str(tmp_path / "*")])}
    assert {name: result.state for name, result in found.items()} == {
        "whole": "finished",
        "partial": "partial",
        "torn": "partial",
        "empty": "unreadable",
    }
    assert found["partial"].remark == "2 of 3 rounds; stopped by Ctrl-C"
    assert "line 3" in found["torn"].remark
    assert len(found["torn"].lines) == 2
    (group,) = results.group(list(found.values()))
    summary = summarise(group)
    assert summary.final is not None
    assert summary.final.value == pytest.approx(30)
    assert summary.final.deviation is None
    table = report_tables.summary_table([summary])
    row = dict(zip(table.head, tables.texts(table)[0]))
    assert (row["rounds"], row["seeds"], row["not finished"], row["final acc. (%)"]) == ("3", "1", "2", "30.00")


def test_curves_are_of_finished_runs_or_of_partial_ones_as_far_as_all_have_got(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.1, 0.3], seed=1, num_rounds=3)
    write_run(tmp_path / "b", [0.3], seed=2, num_rounds=3)
    (group,) = groups_of(tmp_path)
    rounds, centre, width = band(group, "test_acc")
    assert rounds == [1]
    assert centre == pytest.approx([20])
    assert width == pytest.approx([math.sqrt(200)])
    write_run(tmp_path / "c", [0.5, 0.6, 0.7], seed=3)
    (group,) = groups_of(tmp_path)
    rounds, centre, width = band(group, "test_acc")
    assert rounds == [1, 2, 3]
    assert centre == pytest.approx([50, 60, 70])
    assert width == [0, 0, 0]
    assert band(group, "pseudo_label_acc") == ([], [], [])


def test_a_run_counts_once_however_it_is_named(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5])
    write_run(tmp_path / "b", [0.7])  # the same settings and seed
    (tmp_path / "link").symlink_to(tmp_path / "a")
    found = results.find([str(tmp_path / "*"), str(tmp_path / "a"), f"{tmp_path}/./a/"])
    assert [(result.name, result.state) for result in found] == [("a", "repeated"), ("b", "finished")]
    assert found[0].remark == "same settings and seed as b"
    (group,) = results.group(found)
    assert [result.name for result in group.results] == ["b"]


def test_runs_on_other_data_are_other_groups(tmp_path: Path) -> None:
    for name, source in (("a", "/data/cats"), ("b", "/data/xrays")):
        write_run(tmp_path / name, [0.5], task="lc-biid-own", source=source)
    assert [len(group.results) for group in groups_of(tmp_path)] == [1, 1]


@pytest.mark.parametrize(
    "spoilt",
    [
        '{"round": 0}',
        "[]",
        "null",
        "{",
        '{"round": 1, "test_acc": 1}',
        json.dumps(line(1, 0.5)),
        json.dumps(line(0, 0.5)).replace("0.5", "NaN"),
        json.dumps({**line(0, 0.5), "test_acc": "high"}),
        json.dumps({**line(0, 0.5), "helpers": {"x": [1]}}),
        json.dumps({**line(0, 0.5), "helpers": {"1": ["a"]}}),
        json.dumps({**line(0, 0.5), "s2c": 3}),
        "\x00\x01",
        "[" * 100_000,
        json.dumps({**line(0, 0.5), "helpers": []}),
        json.dumps({**line(0, 0.5), "helpers": {"1": [100]}}),
        json.dumps({**line(0, 0.5), "helpers": {"\u00b2": [1]}}),
        json.dumps({**line(0, 0.5), "labeled_acc": 3}),
        json.dumps({**line(0, 0.5), "labeled_acc": {}}),
        json.dumps({**line(0, 0.5), "labeled_acc": {"before": 0.5, "after": 0.5, "steps": [0.5, 2]}}),
        json.dumps({**line(0, 0.5), "labeled_acc": {"before": 0.5, "after": 0.5, "steps": 7}}),
        json.dumps({**line(0, 0.5), "test_acc_sigma": "x"}),
        json.dumps(line(0, -5)),
        json.dumps(line(0, 1e307)),
        json.dumps({**line(0, 0.5), "seconds": 10**400}),
        json.dumps({**line(0, 0.5), "seconds": 1e308}),
        json.dumps({**line(0, 0.5), "local_test_acc": float("nan")}),
        json.dumps({**line(0, 0.5), "test_acc": True}),
    ],
)
def test_rounds_that_are_not_records_are_not_read(spoilt: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5])
    (folder / "rounds.jsonl").write_text(spoilt + "\n")
    result = results.read(folder)
    assert (result.state, result.lines) == ("unreadable", [])
    assert "line 1" in result.remark


@pytest.mark.parametrize(
    "spoilt",
    [
        "",
        "[]",
        '{"settings": {}}',
        '{"settings": {"task": 3}}',
        "\xff",
        '{"settings": {"task": "foo"}}',
        "[" * 100_000,
        '{"settings": {"task": "lc-biid-c10", "num_rounds": 0}}',
        '{"settings": {"task": "lc-biid-c10", "gpu": 3}}',
        '{"settings": {"task": "lc-biid-c10", "source": "\\ud800"}}',
        '{"settings": {"task": "lc-biid-c10", "lr": 1e999}}',
    ],
)
def test_a_config_that_is_none_makes_a_run_unreadable(spoilt: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [0.5])
    (folder / "config.json").write_text(spoilt)
    assert results.read(folder).state == "unreadable"


def test_groups_differ_in_settings_not_in_seed_or_machine(tmp_path: Path) -> None:
    write_run(tmp_path / "a", [0.5], seed=1, workers=1)
    write_run(tmp_path / "b", [0.5], seed=2, workers=2)
    write_run(tmp_path / "c", [0.5], no_icc=True)
    write_run(tmp_path / "d", [0.5], lr=0.01)
    write_run(tmp_path / "e", [0.5], model="fedavg-sl")
    write_run(tmp_path / "f", [0.5], model="fedavg-sl", seed=2, mu=0.5, confidence=0.9)  # which it never looks at
    labels = {group.label: len(group.results) for group in groups_of(tmp_path)}
    assert labels == {
        "lc-biid-c10: fedmatch, lr 0.001": 2,
        "lc-biid-c10: fedmatch, lr 0.001, no-icc": 1,
        "lc-biid-c10: fedmatch, lr 0.01": 1,
        "lc-biid-c10: fedavg-sl": 2,
    }


def settings(task: str, **given: Any) -> dict[str, Any]:
    return dataclasses.asdict(make_config(task, **given))


def test_the_papers_values_are_found_by_what_a_run_is() -> None:
    value = reported(settings("lc-biid-c10"))
    assert value == ("Table 1", 52.13, 0.34, 0.79, 0.46, False)
    streaming = reported(settings("ls-simb-fmnist", model="fedprox-uda"))
    assert streaming is not None
    assert (streaming.accuracy, streaming.local) == (83.34, True)
    accuracy = {
        "alexnet": reported(settings("lc-biid-c10", arch="alexnet", frac_clients=0.2, model="fedavg-fixmatch")),
        "covid": reported(settings("ls-biid-covid")),
        "20 labels": reported(settings("lc-biid-c10", labels_per_class=20, no_decomposition=True)),
        "w/o": reported(settings("lc-biid-c10", no_decomposition=True)),
        "1 label": reported(settings("lc-biid-c10", labels_per_class=1, model="fedprox-uda")),
    }
    assert {name: value and value.accuracy for name, value in accuracy.items()} == {
        "alexnet": 37.61,
        "covid": 84.32,
        "20 labels": 62.7,
        "w/o": 47.51,
        "1 label": 31.95,
    }
    for given in (
        {"no_icc": True},
        {"num_clients": 20},
        {"frac_clients": 0.5},
        {"labels_per_class": 7},
        {"num_helpers": 0},
    ):
        assert reported(settings("lc-biid-c10", **given)) is None
    assert reported(settings("ls-biid-c10", labels_per_class=50)) is None


def test_the_difference_is_to_the_papers_own_measure_and_of_its_settings(tmp_path: Path) -> None:
    given: dict[str, Any] = {"task": "lc-simb-fmnist", "profile": "paper"}
    for name, count, lr in (("s", 100, 1e-3), ("few", 10, 1e-3), ("lr", 100, 0.5)):
        folder = write_run(tmp_path / name, [0.5] * count, **given, lr=lr)
        lines = [line(number, 0.5, local_test_acc=0.8) for number in range(count)]
        (folder / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    summaries = {group.results[0].name: summarise(group) for group in groups_of(tmp_path)}
    assert summaries["s"].difference == pytest.approx(80 - 77.95)
    assert summaries["few"].difference is summaries["lr"].difference is None
    table = report_tables.summary_table([summaries["few"]])
    row = dict(zip(table.head, table.rows[0]))
    assert row["difference"] == tables.Missing("other settings")
    assert row["paper acc. (%)"] == tables.Value(77.95, 0.14)


def test_costs_of_returning_clients_leave_out_everybodys_first_visit() -> None:
    def visits(number: int, clients: list[int], cost: float) -> dict[str, Any]:
        return {**line(number, 0.5), "clients": clients, "s2c": {"sum": cost}}

    # First visits cost 2. Round 1: client 0 returns for 0.5, client 2 is new. Round 2: both return, for 0.25 and 0.75.
    lines = [visits(0, [0, 1], 2.0), visits(1, [0, 2], 1.25), visits(2, [1, 2], 0.5)]
    assert returning_cost(lines) == pytest.approx((0.5 + 0.25 + 0.75) / 3)
    assert returning_cost(lines[:1]) is None
