"""--wandb: offline, without the package, and with one that fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fedmatch_tf.config import ConfigError, make_config
from fedmatch_tf.runs.mirror import Mirror, check_installed
from tests.conftest import ROOT
from tests.results.made_up_runs import record

OFFLINE = """
import sys
from pathlib import Path
from fedmatch_tf.config import make_config
from fedmatch_tf.runs.mirror import Mirror
from tests.results.made_up_runs import record

with Mirror(make_config("lc-biid-c10", wandb="mine", lr=0.25), Path(sys.argv[1]), print) as mirror:
    mirror.on_round(record(0, 0.5))
    norms = {"sigma": 2.0, "psi": 1.0, "cosine": 0.5}
    mirror.on_round(record(1, 0.75, train_loss={"total": 3.0, "l1": 1.0}, norms=norms))
"""


def test_scalars_and_settings_are_written_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    import os

    result = subprocess.run(
        [sys.executable, "-c", OFFLINE, str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "WANDB_MODE": "offline", "WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert (result.returncode, result.stdout) == (0, ""), result.stderr
    (written,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    content = written.read_bytes()
    for text in (b"accuracy/global", b"0.75", b"lambda_l1", b"0.25", b"mine", b"train_loss/l1", b"norms/cosine"):
        assert text in content


def test_without_the_package_it_is_a_message_and_nothing_else_needs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    check_installed(make_config("lc-biid-c10"))
    with pytest.raises(ConfigError, match="--wandb: expected the package wandb"):
        check_installed(make_config("lc-biid-c10", wandb="mine"))


def test_what_fails_there_is_told_once_and_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setitem(sys.modules, "wandb", None)  # importing it fails
    with Mirror(make_config("lc-biid-c10", wandb="mine"), tmp_path, told.append) as mirror:
        mirror.on_round(record(0, 0.5))
        mirror.on_round(record(1, 0.5))
    assert len(told) == 1
    assert "the run goes on without it" in told[0]
