"""What a run takes of the machine is checked before it starts."""

from __future__ import annotations

import resource
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.config import ConfigError, make_config
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import expected

MB = 10**6
MODEL = Params(np.zeros(125_000, np.float32), np.zeros(125_000, np.float32))  # 1 MB of sigma and psi


def machine(root: Path, meminfo: str, **files: str) -> Path:
    for name, text in {"proc/meminfo": meminfo, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_free_memory_counts_what_can_be_reclaimed_and_swap(tmp_path: Path) -> None:
    told = "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable: 2000 kB\nSwapFree: 500 kB\n"
    assert expected.free_memory(machine(tmp_path, told)) == 2500 * 1024
    assert expected.free_memory(tmp_path / "no such system") is None


@pytest.mark.parametrize(("limit", "free"), [("1000000", 400_000), ("max", 2000 * 1024)])
def test_a_containers_limit_counts_without_its_reclaimable_cache(limit: str, free: int, tmp_path: Path) -> None:
    cgroup: dict[str, str] = {
        "sys/fs/cgroup/memory.max": limit,
        "sys/fs/cgroup/memory.current": "700000",
        "sys/fs/cgroup/memory.stat": "anon 600000\ninactive_file 100000\n",
    }
    assert expected.free_memory(machine(tmp_path, "MemAvailable: 2000 kB\n", **cgroup)) == free


def test_more_workers_than_memory_or_open_files_allow_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "free_memory", lambda: 1000 * MB)
    expected.check_workers(make_config("lc-biid-c10", workers=3))
    with pytest.raises(ConfigError, match=r"4 workers need at least 1\.2 GB of memory.*1\.0 GB left.*--workers"):
        expected.check_workers(make_config("lc-biid-c10", workers=4))
    monkeypatch.setattr(expected, "free_memory", lambda: None)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (64, 64))
    expected.check_workers(make_config("lc-biid-c10", workers=3))
    expected.check_workers(make_config("lc-biid-c10", workers=30, backend="inline"))
    with pytest.raises(ConfigError, match=r"6 workers need about 66 open files, this process may have 64.*ulimit -n"):
        expected.check_workers(make_config("lc-biid-c10", workers=6))


@pytest.mark.parametrize(("store", "told"), [("memory", "Use --store disk"), ("disk", None)])
def test_a_store_in_memory_must_fit_there(store: str, told: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "free_memory", lambda: 50 * MB)
    settings: dict[str, Any] = {"num_clients": 100, "frac_clients": 1.0, "workers": 2, "store": store}
    config = make_config("lc-biid-c10", **settings)  # 100 MB of clients, 8 of the round
    if told is None:
        expected.check_parameters(config, MODEL)
        return
    with pytest.raises(ConfigError, match=f"100 clients need at least 108 MB of memory.*50 MB left. {told}"):
        expected.check_parameters(config, MODEL)


def test_checkpoints_must_fit_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 60 * MB))
    given: dict[str, Any] = {"num_clients": 100, "frac_clients": 1.0, "output_path": str(tmp_path / "new" / "out")}
    with pytest.raises(ConfigError, match=rf"--output-path: .* 182 MB of disk \(100 clients.*{tmp_path} has 60 MB"):
        expected.check_parameters(make_config("lc-biid-c10", **given), MODEL)
    expected.check_parameters(make_config("lc-biid-c10", **given, model="fedavg-sl"), Params(MODEL.sigma))
    expected.check_parameters(make_config("lc-biid-c10", **{**given, "num_clients": 25}), MODEL)


def test_clients_that_take_part_are_those_drawn_in_some_round() -> None:
    assert expected.expected_clients(make_config("lc-biid-c10", num_rounds=200)) == 100
    assert expected.expected_clients(make_config("lc-biid-c10", num_rounds=1)) == 5
    assert expected.expected_clients(make_config("lc-biid-c10", num_rounds=2)) == 10  # 5 + 5 * 0.95 = 9.75


def test_passes_of_a_round_are_those_of_training_and_scores() -> None:
    sl: dict[str, Any] = {"model": "fedavg-sl", "num_valid": 20, "num_test": 30}
    round_of_5 = make_config("lc-biid-c10", **sl)  # each: 100 images three times over, and 20 to validate
    assert expected.passes_per_round(round_of_5, unlabeled=100) == 5 * (300 + 20) + 30
    server = make_config("lc-biid-c10", **sl, lr_signal="server")  # validates the global model alone
    assert expected.passes_per_round(server, unlabeled=100) == 5 * 300 + 30 + 20
