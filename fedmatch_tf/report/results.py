"""Run folders to results. Their files are untrusted: what can't be read is a result that says so."""

from __future__ import annotations

import glob
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.config import FREE, ConfigError, make_config, settings

MACHINE = FREE | {"output_path", "gpu", "threads_per_worker", "init_weights", "probe_image"}
FINISHED, PARTIAL, UNREADABLE = "finished", "partial", "unreadable"


class Result(NamedTuple):
    """One run as its folder has it."""

    folder: str
    state: str  # finished, partial, unreadable
    remark: str  # why it isn't finished
    settings: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    confusion: Mapping[str, Any] | None = None  # matrix [truth, predicted] and class names
    partition: Mapping[str, Any] | None = None  # class counts by client

    @property
    def name(self) -> str:
        """The folder's name."""
        return Path(self.folder).name


class Group(NamedTuple):
    """Runs that differ in nothing but the seed."""

    label: str
    settings: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def finished(self) -> list[Result]:
        """The runs that count in means."""
        return [result for result in self.results if result.state == FINISHED]


def find(patterns: Sequence[str]) -> list[Result]:
    """The runs that the patterns match, sorted by folder; raises if there is none."""
    folders = sorted({path for pattern in patterns for path in glob.glob(pattern) if Path(path).is_dir()})  # noqa: PTH207
    if not folders:
        raise ConfigError(f"--runs: expected folders of runs, such as outputs/logs/*; received {' '.join(patterns)}")
    return [read(Path(folder)) for folder in folders]


def read(folder: Path) -> Result:
    """The run in a folder."""
    try:
        about = json.loads((folder / "config.json").read_text(encoding="utf-8"))["settings"]
        about = {**asdict(make_config(about["task"], source="-")), **about}  # an earlier version had fewer settings
        _check_settings(about)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Result(str(folder), UNREADABLE, f"config.json: {_one_line(error)}", {}, [])
    lines, problem = _read_rounds(folder / "rounds.jsonl")
    wanted, state = about["num_rounds"], FINISHED
    if problem or len(lines) < wanted:
        state = PARTIAL if lines else UNREADABLE
        problem = problem or f"{len(lines)} of {wanted} rounds"
        stopped = folder / "stopped.txt"
        if stopped.exists():
            problem += f"; stopped by {_one_line(stopped.read_text(encoding='utf-8', errors='replace'))}"
    extra = [_optional(folder / name) for name in ("confusion.json", "partition.json")]
    return Result(str(folder), state, problem, about, lines, *extra)


def _check_settings(about: Any) -> None:
    """Raises unless every setting has its type."""
    for name, setting in settings().items():
        value = about[name]
        kinds: tuple[type, ...] = (
            (int, float) if setting.kind is float else (list if setting.kind is tuple else setting.kind,)
        )
        if not isinstance(value, kinds) and not (value is None and setting.optional):
            raise ValueError(f"{name}: unexpected {value!r}")


_NUMBERS = ("test_acc", "test_loss", "valid_loss", "confident", "lr", "seconds")
_COSTS = ("sum", "sigma", "psi", "helpers", "bytes")


def _read_rounds(path: Path) -> tuple[list[dict[str, Any]], str]:
    """(the rounds up to the first that can't be read, what was wrong)."""
    lines: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return lines, f"rounds.jsonl: {_one_line(error)}"
    for number, line in enumerate(text.splitlines()):
        try:
            entry = json.loads(line)
            numbers = [entry[name] for name in _NUMBERS] + [
                entry[way][cost] for way in ("s2c", "c2s") for cost in _COSTS
            ]
            if not all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers):
                raise ValueError("a value is not a number")
            if entry["round"] != number:
                raise ValueError(f"expected round {number}, found {entry['round']!r}")
            _check_helpers(entry)
        except (ValueError, KeyError, TypeError) as error:
            return lines, f"rounds.jsonl, line {number + 1}: {_one_line(error)}"
        lines.append(entry)
    return lines, ""


def _check_helpers(entry: Mapping[str, Any]) -> None:
    for client, chosen in entry["helpers"].items():
        if not (client.isdigit() and all(isinstance(helper, int) and helper >= 0 for helper in chosen)):
            raise ValueError("helpers are not clients")
    for name in ("local_test_acc", "pseudo_label_acc"):
        if entry[name] is not None and not isinstance(entry[name], (int, float)):
            raise ValueError(f"{name} is not a number")


def _optional(path: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _one_line(error: Any) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def group(results: Sequence[Result]) -> list[Group]:
    """The readable runs by all settings but the seed and the machine's, in the order of task and model."""
    by_settings: dict[tuple[tuple[str, str], ...], list[Result]] = {}
    for result in results:
        if result.settings:
            kept = {name: repr(value) for name, value in result.settings.items() if name not in MACHINE | {"seed"}}
            by_settings.setdefault(tuple(sorted(kept.items())), []).append(result)
    groups = [Group("", members[0].settings, members) for members in by_settings.values()]
    order = sorted(groups, key=_order)
    return [each._replace(label=_label(each, order)) for each in order]


def _order(each: Group) -> tuple[str, bool, str]:
    """By task; FedMatch before what it is compared with."""
    return each.settings["task"], each.settings["model"] != "fedmatch", each.settings["model"]


def _label(each: Group, groups: Sequence[Group]) -> str:
    """Task and model, and whatever else tells this group from those of the same task and model."""
    own = each.settings
    same = [
        other.settings
        for other in groups
        if (other.settings["task"], other.settings["model"]) == (own["task"], own["model"])
    ]
    differing = [
        name for name in settings()
        if name not in MACHINE | {"seed", "task", "model"} and len({repr(other[name]) for other in same}) > 1
    ]  # fmt: skip
    parts = [f"{own['model']}"]
    for name in differing:
        value = own[name]
        if isinstance(value, bool):
            parts += [name.replace("_", "-")] if value else []
        else:
            parts.append(f"{name.replace('_', '-')} {value}")
    return f"{own['task']}: {', '.join(parts)}"
