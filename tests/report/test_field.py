"""Values of other papers stand beside runs of their settings, and beside no others."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from fedmatch_tf.config import make_config
from fedmatch_tf.report.build import report
from fedmatch_tf.report.field import published
from fedmatch_tf.report.summary import full_bytes
from tests.report.test_report import line, write_run


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
