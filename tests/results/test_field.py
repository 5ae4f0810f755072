"""Values of other papers stand beside runs of their settings, and beside no others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.results.build import report
from fedmatch_tf.results.field import published, unlike_profile
from fedmatch_tf.results.summary import full_bytes, returning_cost
from tests.results.made_up_runs import line, write_run


def values(task: str, **given: Any) -> dict[str, float]:
    settings = dataclasses.asdict(make_config(task, **given))
    return {value.model: value.accuracy for value in published(settings)}


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("ls-biid-c10", {"profile": "semifl"}, {"fedmatch": 58.6, "semifl": 93.1, "labels-only": 76.9}),
        ("ls-biid-c10", {"profile": "semifl", "labels_per_class": 25, "model": "semifl"}, {"semifl": 88.2}),
        ("ls-bdir-c10", {"profile": "semifl"}, {"fedmatch": 58.4}),
        ("ls-bdir-c10", {"profile": "semifl", "alpha": 0.1}, {"fedmatch": 58.9}),
        ("ls-bshard-c10", {"profile": "semifl"}, {"fedmatch": 58.3}),
        ("ls-bdir-c10", {"profile": "semifl", "labels_per_class": 4}, {"fedmatch": 25.2}),
        ("ls-biid-svhn", {"profile": "semifl"}, {"fedmatch": 84.3, "semifl": 96.9}),
        ("ls-biid-c100", {"profile": "semifl"}, {"fedmatch": 31.3, "semifl": 72.1}),
        ("lc-bdir-c10", {"profile": "proxyfl"}, {"fedmatch": 75.35, "fedavg-gpl": 84.6}),
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
    theirs = make_config("lc-bdir-c10", profile="proxyfl", alpha=1.0, seed=2)
    assert unlike_profile(theirs) == ""
    ours = make_config("lc-bdir-c10", profile="proxyfl", alpha=1.0, arch="alexnet", num_rounds=60)
    assert sorted(unlike_profile(ours).split(", ")) == ["arch alexnet", "num-rounds 60"]
    dealt = make_config("lc-bdir-c10", profile="proxyfl", alpha_labeled=0.1)
    assert unlike_profile(dealt) == "alpha-labeled 0.1"
    assert published(dataclasses.asdict(dealt)) == published(
        dataclasses.asdict(make_config("lc-bdir-c10", profile="proxyfl"))
    )


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
    lines = [line(0, 0.5, clients=[0, 1], s2c=first, c2s=back), line(1, 0.5, clients=[1], helpers={"1": [0, 2]})]
    assert full_bytes(lines) == pytest.approx(72 + 72 + 32 * 2 / 3)
    server = [line(0, 0.5, clients=[0], s2c=first, c2s={**back, "sigma": 0.0})]
    assert full_bytes(server) == pytest.approx(72 + 32), "labels at server: psi alone comes back"
    plain = [line(0, 0.5, s2c={**first, "psi": 0.0}, c2s=back)]
    assert full_bytes(plain) is None


def test_a_report_has_the_published_value_of_the_runs_own_model(tmp_path: Path) -> None:
    settings = dataclasses.asdict(make_config("ls-bdir-c10", profile="semifl"))
    del settings["num_rounds"]
    write_run(tmp_path / "logs" / "run", [0.1, 0.2], **settings)
    made = report([str(tmp_path / "logs" / "*")], tmp_path)
    assert "58.4 (SemiFL, table 1)" in (made / "tables" / "accuracy-ls-bdir-c10.csv").read_text()


def test_a_model_that_a_paper_does_not_have_stands_beside_those_it_has(tmp_path: Path) -> None:
    settings = dataclasses.asdict(make_config("lc-bdir-c10", profile="proxyfl", model="fedavg-fixmatch"))
    del settings["num_rounds"]
    write_run(tmp_path / "logs" / "run", [0.1, 0.2], **settings)
    text = (report([str(tmp_path / "logs" / "*")], tmp_path) / "tables" / "accuracy-lc-bdir-c10.csv").read_text()
    assert "fedmatch 75.35 (ProxyFL, tables 1 and 6)" in text
    assert "fedavg-gpl 84.6 (ProxyFL, tables 1 and 6)" in text
