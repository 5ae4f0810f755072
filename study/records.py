"""Records of runs that ship with the code (study/results/).

A record is what a report needs of a finished run, without weights and without paths of the machine that made it.
`report` and `compare` read it like any run's folder.
"""

from __future__ import annotations

import gzip
import json
import platform
import re
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedmatch_tf.base.atomic import replacing, write_text
from fedmatch_tf.config import Config
from fedmatch_tf.config.resume import INPUT_PATHS
from fedmatch_tf.results import results
from fedmatch_tf.results.names import setting_words
from fedmatch_tf.results.results import ROUNDS_GZ, SHIPPED, Result

ROOT = Path(__file__).parents[1]  # of the project
RESULTS = Path("study/results")


def record_name(config: Config) -> str:
    """The folder of a run's record: what it is, in words."""
    parts = [config.task, config.arch, config.model, config.profile, f"seed{config.seed}"]
    return "-".join([*parts, *(text.replace(" ", "-") for text in setting_words(config))])


def find(config: Config, root: Path = ROOT) -> Result | None:
    """The record of a finished run with these settings; None if there is none."""
    folder = root / RESULTS / record_name(config)
    record = results.read(folder) if folder.is_dir() else None
    if record is None or record.state != results.FINISHED:
        return None
    return record if results.identity(record.settings) == results.identity(asdict(config)) else None


def keep(run: Path, config: Config, root: Path = ROOT) -> Path:
    """Makes a record of a finished run; returns its folder."""
    folder = root / RESULTS / record_name(config)
    about = json.loads((run / "config.json").read_text(encoding="utf-8"))
    about["settings"].update(dict.fromkeys(INPUT_PATHS))
    about["settings"].update({"dataset_path": "datasets", "output_path": "outputs"})
    lines = (run / "rounds.jsonl").read_bytes()
    about[SHIPPED] = True
    about["machine"] = {"processor": _processor(), "system": platform.system()}
    about["minutes"] = round(sum(json.loads(line)["seconds"] for line in lines.splitlines()) / 60, 1)
    log = json.loads((run / "server.txt").read_text(encoding="utf-8"))
    log["options"] = {}  # they are in config.json
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "config.json", json.dumps(about, indent=1) + "\n")
    with replacing(folder / ROUNDS_GZ) as file:
        file.write(gzip.compress(lines, mtime=0))
    write_text(folder / "server.txt", json.dumps(log) + "\n")
    return folder


def _processor() -> str:
    """The processor's name, as Linux has it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def beside(settings: Mapping[str, Any], root: Path = ROOT) -> str:
    """What our own runs of the same settings reached, in a few words; empty if none ships with the code."""
    config = Config(**settings)
    before, after = record_name(config).split(f"-seed{config.seed}", 1)
    pattern = re.compile(f"{re.escape(before)}-seed([0-9]+){re.escape(after)}")
    seeds = sorted(int(match[1]) for path in (root / RESULTS).glob("*") if (match := pattern.fullmatch(path.name)))
    records = {seed: record for seed in seeds if (record := find(replace(config, seed=seed), root))}
    if not records:
        return ""
    ends = ", ".join(f"{100 * record.lines[-1]['test_acc']:.2f} %" for record in records.values())
    name = next(iter(records.values())).name if len(records) == 1 else ""
    return f"{ends} at the end, seed{'s' * (len(records) > 1)} {', '.join(map(str, records))} ({RESULTS}/{name})"
