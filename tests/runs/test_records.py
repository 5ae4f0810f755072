"""Records of rounds on disk: read back as they were, in the original's logs, and with one more figure."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

from fedmatch_tf.config import make_config
from fedmatch_tf.runs.original_logs import OriginalLogs
from fedmatch_tf.runs.records import decode, encode
from tests.conftest import ROOT
from tests.results.made_up_runs import record
from tests.runs.test_checkpoint import round_of


def test_records_are_read_back_as_they_were() -> None:
    written = [round_of(0), record(1, 0.5, server_lr=0.25, dropped=[1], norms={"sigma": 2.0})]
    assert decode(b"".join(map(encode, written)), 2, 2) == written


def test_losses_are_in_the_originals_logs_under_its_own_key(tmp_path: Path) -> None:
    logs = OriginalLogs(tmp_path, tmp_path, make_config("ls-biid-c10"), [round_of(0)])
    server = {"train_loss": 0.75, "test_loss": 2.0, "test_acc": 0.5}
    actors = {"clients": [], "server": server}
    logs.on_round(record(1, 0.5, actors=actors))
    scores = json.loads((tmp_path / "server.txt").read_text())["scores"]
    assert (scores["train_loss"], scores["test_acc"], scores["valid_loss"]) == ([0.75], [0.5], [])
    scores = json.loads((tmp_path / "client-1.txt").read_text())["scores"]
    assert (scores["train_loss"], scores["valid_acc"], scores["test_acc"]) == ([2.5], [0.1], [])


def test_a_figure_of_a_round_is_one_field_and_its_value(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for name in ("fedmatch_tf", "tests"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "fedmatch_tf" / "federation" / "records.py"
    source = path.read_text()
    for before, new in (
        ("    norms: Optional[Norms]\n", "    at_most: Optional[Whole]\n"),
        (
            "        confident_rows=confident,\n",
            "        at_most=max(map(len, helpers.values()), default=None),\n",
        ),
    ):
        assert source.count(before) == 1
        source = source.replace(before, before + new)
    path.write_text(source)

    def run(*command: str) -> str:
        result = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert result.returncode == 0, result.stderr
        return result.stdout

    settings = ["task=lc-biid-digits", "num_rounds=4", "num_clients=4", "frac_clients=1", "helper_interval=2"]
    folder = tmp_path / run("-m", "tests.stand_in", str(tmp_path), *settings, "backend=inline").splitlines()[-1]
    lines = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    assert [line["at_most"] for line in lines] == [None, 2, None, 2]
    events = EventAccumulator(str(folder / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("at_most")] == [(2, 2), (4, 2)]
    read = (
        "from fedmatch_tf.results import report_tables, results; print(report_tables.rounds_csv(results.find(['{}'])))"
    )
    rows = csv.DictReader(run("-c", read.format(folder)).splitlines())
    assert [row["at_most"] for row in rows] == ["", "2", "", "2"]
