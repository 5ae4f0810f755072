"""What is read of runs on disk, who is averaged with whom."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.results import report_tables, results, tables
from fedmatch_tf.results.summary import band, full_bytes, mean, returning_cost, summarise
from tests.results.made_up_runs import groups_of, line, record, write_run


def test_means_and_sample_deviations_are_over_seeds(tmp_path: Path) -> None:
    for seed, accuracies in enumerate([[0.1, 0.5, 0.3], [0.1, 0.2, 0.4], [0.1, 0.9, 0.5]], start=1):
        write_run(tmp_path / f"run{seed}", accuracies, seed=seed)
    (group,) = groups_of(tmp_path)
    summary = summarise(group)
    assert summary.final == pytest.approx((40, 10))  # of 30, 40 and 50
    means = (summary.best, summary.s2c, summary.c2s, summary.megabytes, summary.minutes)
    # s2c is 2, 1 and 1
    assert [each and each.value for each in means] == pytest.approx([(50 + 40 + 90) / 3, 4 / 3, 0.5, 4, 1.5])
    assert summary.local is None


def test_one_seed_has_no_deviation() -> None:
    assert mean([3.0]) == (3.0, None)
    assert mean([]) is None
    assert mean([1.0, 3.0]) == pytest.approx((2.0, math.sqrt(2)))


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
    assert summary.final == (30.0, None)
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
        *('{"round": 0}', "[]", "null", "{", '{"round": 1, "test_acc": 1}', "\x00\x01", "[" * 100_000),
        json.dumps(line(1, 0.5)),
        json.dumps(line(0, 0.5)).replace("0.5", "NaN"),
        json.dumps(line(0, -5)),
        json.dumps(line(0, True)),
        json.dumps(line(0, 0.5, seconds=10**400)),
        json.dumps(line(0, 0.5, s2c=3)),
        json.dumps(line(0, 0.5, helpers=[])),
        json.dumps(line(0, 0.5, helpers={"\u00b2": [1]})),
        json.dumps(line(0, 0.5, clients=[0, 100])),
        json.dumps(line(0, 0.5, labeled_acc={"before": 0.5, "after": 0.5, "steps": [0.5, 2]})),
        json.dumps(line(0, 0.5, train_loss={"total": float("inf")})),
        json.dumps(line(0, 0.5, norms={"psi": 1.0})),
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


def test_costs_of_returning_clients_leave_out_everybodys_first_visit() -> None:
    def visits(number: int, clients: list[int], cost: float) -> dict[str, Any]:
        return {**record(number, 0.5).line(), "clients": clients, "s2c": {"sum": cost}}

    # First visits cost 2. Round 1: client 0 returns for 0.5, client 2 is new. Round 2: both return, for 0.25 and 0.75.
    lines = [visits(0, [0, 1], 2.0), visits(1, [0, 2], 1.25), visits(2, [1, 2], 0.5)]
    assert returning_cost(lines) == pytest.approx((0.5 + 0.25 + 0.75) / 3)
    assert returning_cost(lines[:1]) is None


def test_a_client_whose_update_was_lost_pays_for_a_first_visit_again() -> None:
    """First visits cost 2. Client 0 is lost in round 0 and pays 2 again; client 1 pays 0.5 when it comes back."""
    whole, second = ({"sum": cost, "sigma": 1.0, "psi": 1.0, "helpers": 0.0, "bytes": 72.0} for cost in (2.0, 1.25))
    back = {"sum": 0.5, "sigma": 0.25, "psi": 0.25, "helpers": 0.0, "bytes": 20.0}
    first = {**line(0, 0.5, clients=[0, 1], s2c=whole, c2s=back), "dropped": [0]}
    lines = [first, {**line(1, 0.5, clients=[0, 1], s2c=second, c2s=back), "dropped": []}]
    assert returning_cost(lines) == pytest.approx(0.5)
    assert full_bytes(lines) == pytest.approx(72 + 72 * 3 / 4), "three of four updates came back"


def test_the_cost_counted_in_full_in_a_case_worked_out_by_hand() -> None:
    """sigma of 10 weights and psi of 8, 4 bytes each: 72 bytes to a client. Three visits, one with two helpers."""
    first = {"sum": 1.8, "sigma": 1.0, "psi": 0.8, "helpers": 0.0, "bytes": 72.0}
    back = {"sum": 0.5, "sigma": 0.25, "psi": 0.25, "helpers": 0.0, "bytes": 20.0}
    rounds = [record(0, 0.5, s2c=first, c2s=back), record(1, 0.5, clients=[1], helpers={"1": [0, 2]})]
    assert full_bytes([each.line() for each in rounds]) == pytest.approx(72 + 72 + 32 * 2 / 3)
    server = [record(0, 0.5, clients=[0], s2c=first, c2s={**back, "sigma": 0.0}).line()]
    assert full_bytes(server) == pytest.approx(72 + 32), "labels at server: psi alone comes back"
    plain = [record(0, 0.5, s2c={**first, "psi": 0.0}, c2s=back).line()]
    assert full_bytes(plain) is None
