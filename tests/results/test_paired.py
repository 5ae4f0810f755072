"""Two groups over seeds, in numbers worked out by hand; sweeps in the order of validation."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from fedmatch_tf.results.build import report
from fedmatch_tf.results.paired import paired, paired_table
from fedmatch_tf.results.plots import task_figures
from fedmatch_tf.results.report_tables import settings_table, sweep_tables
from fedmatch_tf.results.summary import Summary, summarise
from fedmatch_tf.results.tables import latex, markdown, texts
from tests.results.made_up_runs import groups_of, line, write_rounds, write_run


def two_models(folder: Path, first: dict[int, float], second: dict[int, float]) -> list[Summary]:
    """FedMatch and FedAvg with SL; seed -> accuracy in percent."""
    for model, accuracies in (("fedmatch", first), ("fedavg-sl", second)):
        for seed, accuracy in accuracies.items():
            write_run(folder / f"{model}-{seed}", [accuracy / 100], model=model, seed=seed)
    return [summarise(group) for group in groups_of(folder)]


def test_three_seeds_of_90_against_75_are_no_proof_and_the_table_says_so(tmp_path: Path) -> None:
    """90.5 ± 2.7 against 75.3 ± 7.5. With two degrees of freedom, p is 1 - t / sqrt(t^2 + 2)."""
    first, second = {1: 93.2, 2: 90.5, 3: 87.8}, {1: 83.203, 2: 68.283, 3: 74.414}
    summaries = two_models(tmp_path, first, second)
    found = paired(*(summary.group for summary in summaries))
    assert found.first == pytest.approx((90.5, 2.7))
    assert found.second == pytest.approx((75.3, 7.5), abs=0.01)
    differences = [9.997, 22.217, 13.386]
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((each - mean) ** 2 for each in differences) / 2)
    t = mean / (deviation / math.sqrt(3))
    assert found.p_t == pytest.approx(1 - t / math.sqrt(t**2 + 2))
    assert round(found.p_t or 0, 3) == 0.053
    half = 4.302653 * deviation / math.sqrt(3)  # 4.302653: of any table of t, two degrees of freedom
    assert found.interval == pytest.approx((mean - half, mean + half), abs=1e-4)
    assert found.p_flips is None, "of three seeds, at the least 2 of 8"
    table = paired_table("lc-biid-c10", summaries)
    assert table is not None
    row = dict(zip(table.head, texts(table)[0]))
    assert (row["acc. (%)"], row["its acc. (%)"]) == ("90.50 ± 2.70", "75.30 ± 7.50")
    assert (row["seeds"], row["p, paired t"], row["remark"]) == ("3", "0.053", "fewer than 5 seeds")
    assert "Fewer than 5 seeds in 1 of 1 rows: too few to rely on p" in table.note
    assert table.note in markdown(table).replace("\\", "")
    assert r"90.50 $\pm$ 2.70" in latex(table)


def test_from_five_seeds_on_signs_are_flipped_in_all_combinations(tmp_path: Path) -> None:
    """Differences 1, 2, 3, 4 and -1, sum 9: 3 of 32 choices of signs have 9 or more (at most one 1 is minus), 3 -9."""
    first, second = {1: 51, 2: 52, 3: 53, 4: 54, 5: 49, 6: 99}, dict.fromkeys((1, 2, 3, 4, 5, 7, 8), 50.0)
    summaries = two_models(tmp_path, {key: float(value) for key, value in first.items()}, second)
    found = paired(*(summary.group for summary in summaries))
    assert (found.seeds, found.alone) == ([1, 2, 3, 4, 5], [6, 7, 8])
    assert found.difference == pytest.approx((1.8, math.sqrt((0.64 + 0.04 + 1.44 + 4.84 + 7.84) / 4)))
    assert found.p_flips == pytest.approx(6 / 32)
    table = paired_table("lc-biid-c10", summaries)
    assert table is not None
    row = dict(zip(table.head, texts(table)[0]))
    assert row["remark"] == "without 6, 7, 8, which only one of them has finished"
    assert row["p, sign flips"] == "0.19"
    assert "Fewer than" not in table.note


def test_groups_without_two_seeds_in_common_have_no_interval(tmp_path: Path) -> None:
    summaries = two_models(tmp_path / "alike", {1: 50.0, 2: 60.0}, {1: 40.0, 2: 50.0})
    table = paired_table("t", summaries)
    assert table is not None
    assert dict(zip(table.head, texts(table)[0]))["remark"] == "fewer than 5 seeds; the same in every seed"
    assert "p, paired t" not in table.head
    apart = paired(*(each.group for each in two_models(tmp_path / "apart", {1: 50.0, 2: 60.0}, {3: 40.0, 4: 5.0})))
    assert apart == ([], [1, 2, 3, 4], None, None, None, None, None, None)
    assert paired_table("t", two_models(tmp_path / "one", {1: 50.0, 2: 60.0}, {1: 40.0})) is None


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """Two seeds of three rates, whose validation loss is lowest where the test accuracy is not highest."""
    for lr, loss, accuracy in ((5e-3, 0.5, 0.7), (1e-3, 0.9, 0.6), (2e-2, 0.7, 0.8)):
        for seed in (1, 2):
            folder = write_run(tmp_path / f"{lr}-{seed}", [0.1, accuracy], seed=seed, lr=lr, num_rounds=2)
            write_rounds(folder, [line(0, 0.1), line(1, accuracy, valid_loss=loss + 0.01 * seed)])
            counts = {"class_names": ["cat", "dog"], "unlabeled": [[seed, 20], [20, seed]]}
            (folder / "partition.json").write_text(json.dumps(counts))
            matrix = {"class_names": ["cat", "dog"], "matrix": [[8, 2], [seed, 9]]}
            (folder / "confusion.json").write_text(json.dumps(matrix))
    return tmp_path


def test_a_sweep_is_ranked_by_validation_with_the_test_value_beside_it(sweep: Path) -> None:
    write_run(sweep / "other", [0.9], model="fedavg-sl")
    write_run(sweep / "ablation", [0.1, 0.9], lr=1e-3, num_rounds=2, no_icc=True)
    write_run(sweep / "labels", [0.1, 0.9], lr=1e-3, num_rounds=2, labels_per_class=50)  # other data: no sweep
    summaries = [summarise(group) for group in groups_of(sweep)]
    (table,) = sweep_tables("lc-biid-c10", summaries)
    assert table.title == "Sweep of lr, fedmatch"
    assert [row[:2] + row[4:] for row in texts(table)] == [
        ["1", "0.005", "70.00 ± 0.00"],
        ["2", "0.02", "80.00 ± 0.00"],
        ["3", "0.001", "60.00 ± 0.00"],
    ]
    assert texts(table)[0][2:4] == ["2", "0.5150 ± 0.0071"]  # of 0.51 and 0.52
    differing = settings_table("lc-biid-c10", summaries)
    assert list(differing.head) == ["model", "labels-per-class", "num-rounds", "lr", "no-icc"]
    rows = {str(row[0]).split(", ")[0]: row[1:] for row in differing.rows}
    assert rows["fedavg-sl"] == ["5", "1", "0.001", ""], "it never looks at no-icc"


def test_a_sweeps_figures_have_its_order_bands_that_end_at_100_and_one_map(sweep: Path) -> None:
    for seed, accuracy in ((1, 1.0), (2, 0.8), (3, 1.0)):
        folder = write_run(sweep / f"sl-{seed}", [0.1, accuracy], model="fedavg-sl", seed=seed)
        norms = {"sigma": 3.0, "psi": None, "cosine": None}
        write_rounds(folder, [line(0, 0.0, norms=norms), line(1, accuracy, test_loss=100.0, norms=norms)])
    drawn = {name: figure for name, _, figure in task_figures("t", [summarise(group) for group in groups_of(sweep)])}
    axes = drawn["accuracy-t"].axes[0]
    labels = axes.get_legend_handles_labels()[1]
    assert labels == [*(f"fedmatch, lr {lr}" for lr in ("0.001", "0.005", "0.02")), "fedavg-sl"]
    tops = [float(np.asarray(band.get_paths()[0].vertices)[:, 1].max()) for band in axes.collections]
    assert tops[-1] == 100, "of 93.3 ± 11.5"
    assert drawn["test-loss-t"].axes[0].get_yscale() == "log", "one has left the others' scale"
    assert drawn["validation-loss-t"].axes[0].get_yscale() == "linear"
    assert len(drawn["norms-lc-biid-c10-fedavg-sl"].axes) == 1, "without psi there is no cosine"
    assert [name for name in drawn if name.startswith("classes")] == ["classes-t"], "seed 2's is not drawn"
    confusion = drawn["confusion-lc-biid-c10-fedmatch-lr-0-005"].axes[0]
    assert "2 seeds added up" in confusion.get_title(loc="left").replace("\n", " ")
    assert [text.get_text() for text in confusion.texts] == ["16", "4", "3", "18"]


def test_a_report_has_all_of_it_as_files(sweep: Path, tmp_path: Path) -> None:
    made = report([str(sweep / "0.001*"), str(sweep / "0.02*")], tmp_path / "out")
    names = {path.stem for path in (made / "tables").glob("*.tex")}
    assert {"accuracy", "paired-lc-biid-c10", "sweep-lc-biid-c10", "settings-lc-biid-c10"} <= names
    rows = list(csv.DictReader((made / "tables" / "paired-lc-biid-c10.csv").open()))
    assert [(row["difference"], row["seeds"]) for row in rows] == [("-20", "2")]
    page = (made / "report.html").read_text()
    assert "the test data had no say in it" in page
    assert "<details><summary>lc-biid-c10: fedmatch, lr 0.02</summary>" in page
