"""Values of the paper and of others stand beside runs of their settings, and beside no others."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.results import report_tables, results, tables
from fedmatch_tf.results.build import report
from fedmatch_tf.results.outcome import describe
from fedmatch_tf.results.summary import summarise
from study import references
from study.values import published, reference, reported
from tests.results.made_up_runs import groups_of, line, write_rounds, write_run


def settings(task: str, **given: Any) -> dict[str, Any]:
    return dataclasses.asdict(make_config(task, **given))


def values(task: str, **given: Any) -> dict[str, float]:
    return {value.model: value.accuracy for value in published(settings(task, **given))}


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("ls-biid-c10", {"profile": "semifl"}, {"fedmatch": 58.6, "semifl": 93.1, "fedavg-labels": 76.9}),
        ("ls-biid-c10", {"profile": "semifl", "labels_per_class": 25, "model": "semifl"}, {"semifl": 88.2}),
        ("ls-bdir-c10", {"profile": "semifl"}, {"fedmatch": 58.4}),
        ("ls-bdir-c10", {"profile": "semifl", "alpha": 0.1}, {"fedmatch": 58.9}),
        ("ls-bshard-c10", {"profile": "semifl"}, {"fedmatch": 58.3}),
        ("ls-bdir-c10", {"profile": "fl2"}, {"fedmatch": 25.2}),
        ("ls-biid-c100", {"profile": "fl2"}, {"fedmatch": 10.0}),
        ("ls-bdir-svhn", {"profile": "fl2", "labels_per_class": 25, "alpha": 0.1}, {"fedmatch": 70.1}),
        ("lc-bdir-c10", {"profile": "sage"}, {"fedmatch": 75.35, "fedavg-sage": 87.1}),
        ("ls-biid-svhn", {"profile": "semifl"}, {"fedmatch": 84.3, "semifl": 96.9}),
        ("ls-biid-c100", {"profile": "semifl"}, {"fedmatch": 31.3, "semifl": 72.1}),
        ("lc-bdir-c10", {"profile": "proxyfl"}, {"fedmatch": 75.35, "fedavg-gpl": 84.6}),
        ("lc-bdir-c10", {"profile": "proxyfl", "model": "fedavg-sage"}, {"fedavg-sage": 87.1, "fedavg-labels": 69.6}),
        ("lc-bdir-c10", {"profile": "proxyfl", "labeled_fraction": 0.2, "alpha": 1.0}, {"fedmatch": 85.21}),
        ("lc-bdir-cinic10", {"profile": "proxyfl", "alpha": 0.5}, {"fedmatch": 56.27}),
        ("lc-bimb-cinic10", {}, {"fedmatch": 43.9}),
    ],
)
def test_a_run_of_a_papers_setting_finds_its_values(task: str, given: Any, expected: dict[str, float]) -> None:
    found = values(task, **given)
    assert expected.items() <= found.items()
    assert next(iter(found)) == given.get("model", "fedmatch"), "its own model first"


@pytest.mark.parametrize(
    ("task", "given"),
    [
        ("ls-biid-c10", {}),
        ("ls-biid-c10", {"profile": "semifl", "num_clients": 50}),
        ("lc-biid-c10", {"profile": "semifl"}),
        ("ls-bdir-c10", {"profile": "semifl", "alpha": 0.7}),
        ("lc-bdir-c10", {"profile": "proxyfl", "frac_clients": 0.5}),
        ("lc-bdir-c10", {"profile": "proxyfl", "labeled_clients": 2}),
        ("lc-bdir-c10", {"profile": "proxyfl", "drop_rate": 0.5}),
        ("lc-bdir-c10", {"profile": "proxyfl", "unlabeled_per_client": 100}),
        ("lc-biid-cinic10", {"profile": "paper"}),
    ],
)
def test_other_settings_have_no_value(task: str, given: Any) -> None:
    assert values(task, **given) == {}


def test_the_profiles_have_the_papers_settings() -> None:
    semifl = make_config("ls-bdir-c10", profile="semifl", model="semifl")
    assert (semifl.arch, semifl.num_clients, semifl.clients_per_round, semifl.alpha) == ("wrn28_2", 100, 10, 0.3)
    assert (semifl.labels_per_class, semifl.confidence, semifl.num_epochs_client) == (400, 0.95, 5)
    proxyfl = make_config("lc-bdir-c10", profile="proxyfl")
    assert (proxyfl.arch, proxyfl.num_clients, proxyfl.clients_per_round) == ("resnet8", 20, 8)
    assert proxyfl.labeled_fraction == 0.1
    assert (semifl.lambda_s, semifl.num_epochs_server, semifl.batch_size_server) == (1, 5, 250)
    gpl = make_config("ls-bdir-c10", profile="semifl", model="fedavg-gpl")
    assert gpl.confidence == 0.95, "the profile's, not the learner's own"
    assert make_config("ls-bdir-c10", profile="paper", model="fedavg-gpl").confidence == 0.85


def test_what_is_not_as_a_paper_has_it_is_told_beside_its_value() -> None:
    def unlike(**given: Any) -> str:
        return reference(settings("lc-bdir-c10", profile="proxyfl", **given)).unlike_profile

    assert unlike(alpha=1.0, seed=2) == ""
    assert unlike(alpha=1.0, arch="alexnet", num_rounds=60) == "arch alexnet, num-rounds 60"
    assert unlike(momentum=0.5) == "momentum 0.5"
    assert values("lc-bdir-c10", profile="proxyfl", alpha_labeled=0.1) == values("lc-bdir-c10", profile="proxyfl")
    assert unlike(drop_rate=0.5) == "", "no value, so nothing differs from it"


def test_a_report_has_the_published_value_of_the_runs_own_model(tmp_path: Path) -> None:
    write_run(tmp_path / "logs" / "run", [0.1, 0.2], "ls-bdir-c10", profile="semifl")
    made = report([str(tmp_path / "logs" / "*")], tmp_path, references=references)
    assert "58.4 (SemiFL, table 1)" in (made / "tables" / "accuracy-ls-bdir-c10.csv").read_text()


def test_a_model_that_a_paper_does_not_have_stands_beside_those_it_has(tmp_path: Path) -> None:
    write_run(tmp_path / "logs" / "run", [0.1, 0.2], "lc-bdir-c10", profile="proxyfl", model="fedavg-fixmatch")
    made = report([str(tmp_path / "logs" / "*")], tmp_path, references=references)
    text = (made / "tables" / "accuracy-lc-bdir-c10.csv").read_text()
    assert "fedmatch 75.35 (ProxyFL, tables 1 and 6)" in text
    assert "fedavg-gpl 84.6 (ProxyFL, tables 1 and 6)" in text


def test_the_papers_values_are_found_by_what_a_run_is() -> None:
    value = reported(settings("lc-biid-c10"))
    assert value == ("Table 1", 52.13, 0.34, 0.79, 0.46, False)
    streaming = reported(settings("ls-simb-fmnist", model="fedprox-uda"))
    assert streaming is not None
    assert (streaming.accuracy, streaming.local) == (83.34, True)
    of_runs: list[tuple[str, dict[str, Any], float]] = [
        ("lc-biid-c10", {"arch": "alexnet", "frac_clients": 0.2, "model": "fedavg-fixmatch"}, 37.61),
        ("ls-biid-covid", {}, 84.32),
        ("lc-biid-c10", {"labels_per_class": 20, "no_decomposition": True}, 62.7),
        ("lc-biid-c10", {"no_decomposition": True}, 47.51),
        ("lc-biid-c10", {"labels_per_class": 1, "model": "fedprox-uda"}, 31.95),
    ]
    for task, given, accuracy in of_runs:
        of_run = reported(settings(task, **given))
        assert (of_run and of_run.accuracy) == accuracy
    other = {"no_icc": True, "num_clients": 20, "frac_clients": 0.5, "labels_per_class": 7, "num_helpers": 0}
    for name in other:
        assert reported(settings("lc-biid-c10", **{name: other[name]})) is None
    assert reported(settings("ls-biid-c10", labels_per_class=50)) is None


def test_the_difference_is_to_the_papers_own_measure_and_of_its_settings(tmp_path: Path) -> None:
    given: dict[str, Any] = {"task": "lc-simb-fmnist", "profile": "paper"}
    for name, count, lr in (("s", 100, 1e-3), ("few", 10, 1e-3), ("lr", 100, 0.5)):
        folder = write_run(tmp_path / name, [0.5] * count, **given, lr=lr)
        write_rounds(folder, [line(number, 0.5, local_test_acc=0.8) for number in range(count)])
    summaries = {group.results[0].name: summarise(group, references) for group in groups_of(tmp_path)}
    assert summaries["s"].difference == pytest.approx(80 - 77.95)
    assert summaries["few"].difference is summaries["lr"].difference is None
    table = report_tables.summary_table([summaries["few"]])
    row = dict(zip(table.head, table.rows[0]))
    assert row["difference"] == tables.Missing("other settings")
    assert row["paper acc. (%)"] == tables.Value(77.95, 0.14)


@pytest.mark.parametrize("num_clients", [10, 100])
def test_the_papers_streaming_values_of_alexnet_hold_for_both_readings_of_their_caption(num_clients: int) -> None:
    value = reported(settings("lc-simb-fmnist", arch="alexnet", num_clients=num_clients, frac_clients=1.0))
    assert value is not None
    assert value.accuracy == 63.84
    assert reported(settings("lc-simb-fmnist", num_clients=100, frac_clients=1.0)) is None, "table 2 says 10"


def test_a_runs_outcome_has_the_papers_value_and_what_differs_from_it(tmp_path: Path) -> None:
    text = describe(results.read(write_run(tmp_path / "run", [0.1, 0.5, 0.25])), references)
    assert "52.13 ± 0.34 % (Table 1)" in text
    assert re.search(r"not the paper's +profile official, num-rounds 3", text)
    other = describe(results.read(write_run(tmp_path / "other", [0.1], num_clients=20)), references)
    assert re.search(r"the paper +has no value for these settings", other)
    assert "not the paper's" not in other
    streaming = describe(results.read(write_run(tmp_path / "streaming", [0.1] * 10, "lc-simb-fmnist")), references)
    assert "77.95 ± 0.14 %, mean of the clients (Table 2)" in streaming


def test_what_only_watches_is_as_in_the_paper() -> None:
    def differing(**given: Any) -> str:
        return reference(settings("lc-biid-c10", **given)).other_settings

    assert differing(profile="paper", workers=3, seed=5, ablate_eval=True) == ""
    assert differing(num_rounds=40, lr=0.5, arch="alexnet") == "profile official, num-rounds 40, lr 0.5"
