"""Run folders to results. Their files are untrusted: what can't be read is a result that says so."""

from __future__ import annotations

import glob
import json
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import printable
from fedmatch_tf.base.typed import fields
from fedmatch_tf.config import MODELS, Config, ConfigError, settings, without_effect
from fedmatch_tf.config.resume import OF_MACHINE, recorded_config
from fedmatch_tf.federation.records import RoundRecord, read_round

FINISHED, PARTIAL, UNREADABLE, REPEATED = "finished", "partial", "unreadable", "repeated"
BROKEN = (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)


class Result(NamedTuple):
    """One run as its folder has it."""

    folder: str
    state: str  # finished, partial, unreadable, repeated
    remark: str  # why it isn't finished
    settings: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    confusion: Mapping[str, Any] | None = None  # matrix [truth, predicted] and class names
    partition: Mapping[str, Any] | None = None  # class counts by client
    shipped: bool = False  # a record that ships with the code

    @property
    def name(self) -> str:
        """The folder's name, as it can be shown."""
        return printable(Path(self.folder).name)


class Group(NamedTuple):
    """Runs that differ in nothing but the seed; those that ship with the code are not mixed with the user's own."""

    label: str  # data: model, and what else tells it from others
    settings: Mapping[str, Any]
    results: Sequence[Result]

    @property
    def finished(self) -> list[Result]:
        """The runs that count in means."""
        return [result for result in self.results if result.state == FINISHED]

    @property
    def shipped(self) -> bool:
        """Whether its runs are records that ship with the code."""
        return any(result.shipped for result in self.results)

    @property
    def data(self) -> str:
        """The task; of one's own images, with the name of their file or folder."""
        task, source = self.settings["task"], Path(str(self.settings["source"])).name
        return f"{task} {printable(source)[:40]}" if task.endswith("-own") else str(task)

    @property
    def short(self) -> str:
        """The label without the data."""
        return self.label.removeprefix(f"{self.data}: ")

    @property
    def unfinished(self) -> list[Result]:
        """The others."""
        return [result for result in self.results if result.state != FINISHED]


def find(patterns: Sequence[str]) -> list[Result]:
    """The runs that the patterns match, each once, sorted by folder; a pattern that matches nothing is refused."""
    folders: dict[Path, str] = {}
    for pattern in patterns:
        matches = [path for path in sorted(glob.glob(pattern)) if Path(path).is_dir()]  # noqa: PTH207
        if not matches:
            raise ConfigError(f"--runs: expected folders of runs, such as outputs/logs/*; found none at {pattern}")
        for path in matches:
            folders.setdefault(Path(path).resolve(), path)
    found = [read(Path(path)) for path in sorted(folders.values())]
    if not any(result.settings for result in found):
        raise ConfigError(
            f"--runs: expected folders of runs, such as outputs/logs/*; none of the {len(found)} found is one: "
            f"{found[0].folder}: {found[0].remark}"
        )
    return _mark_repeated(found)


def _mark_repeated(results: Sequence[Result]) -> list[Result]:
    """Of runs with the same settings and seed, the one that has got furthest counts, the newest of equals.

    A record that ships with the code doesn't take the place of the user's own run, nor the other way round.
    """
    keys = [(result.shipped, identity(result.settings)) if result.settings else None for result in results]
    best: dict[Any, Result] = {}
    for key, result in zip(keys, results):
        if key is not None and len(result.lines) >= len(getattr(best.get(key), "lines", ())):
            best[key] = result
    return [
        result
        if key is None or best[key] is result
        else result._replace(state=REPEATED, remark=f"same settings and seed as {best[key].name}")
        for key, result in zip(keys, results)
    ]


def identity(settings: Mapping[str, Any], leave_out: frozenset[str] = frozenset()) -> tuple[tuple[str, str], ...]:
    """What tells runs apart: all settings but the machine's, and those that a run never looks at."""
    without = OF_MACHINE | leave_out | without_effect(Config(**settings)).keys()
    return tuple((name, repr(settings[name])) for name in sorted(set(settings) - without))


def read(folder: Path) -> Result:
    """The run in a folder."""
    try:
        config = json.loads(untrusted.read_text(folder / "config.json", MAX_BYTES))
        about, shipped = _settings(config["settings"]), config.get(SHIPPED, False) is True
    except BROKEN as error:
        return Result(str(folder), UNREADABLE, f"config.json: {_one_line(error)}", {}, [])
    lines, problem = _read_rounds(folder, about["num_clients"])
    wanted, state = about["num_rounds"], FINISHED
    if problem or len(lines) < wanted:
        state = PARTIAL if lines else UNREADABLE
        problem = problem or f"{len(lines)} of {wanted} rounds"
        with suppress(*BROKEN):
            reason = untrusted.read_beginning(folder / "stopped.txt", 1000).decode(errors="replace")
            problem += f"; stopped by {_one_line(reason)}"
    confusion, unread = _optional(folder / "confusion.json")
    partition, unread_too = _optional(folder / "partition.json")
    remark = "; ".join(filter(None, (problem, unread, unread_too)))
    return Result(str(folder), state, remark, about, lines, confusion, partition, shipped)


def _settings(given: Any) -> dict[str, Any]:
    """The settings, checked by Config's own rules; those that this version doesn't have are left out."""
    values = {"source": "-", **{name: value for name, value in given.items() if name in settings()}}
    json.dumps(values, ensure_ascii=False).encode()  # text that can be written again
    return asdict(recorded_config(values))


ROUNDS, ROUNDS_GZ = "rounds.jsonl", "rounds.jsonl.gz"
MAX_BYTES = 200 * 2**20  # of all rounds
MAX_LINE = 2**20  # of one: hundreds of clients have some 10 kB
SHIPPED = "shipped"  # true in the config.json of records that ship with the code


def _read_rounds(folder: Path, num_clients: int) -> tuple[list[dict[str, Any]], str]:
    """(the rounds up to the first that can't be read, what was wrong). What an older version lacks is None."""
    lines: list[dict[str, Any]] = []
    packed = folder / ROUNDS_GZ  # records that ship with the code
    path = packed if packed.exists() and not (folder / ROUNDS).exists() else folder / ROUNDS
    try:
        for number, line in enumerate(untrusted.lines(path, MAX_BYTES, MAX_LINE)):
            try:
                entry = json.loads(line)
                known = {name: entry[name] for name in _NAMES if name in entry}
                lines.append(read_round(known, number, num_clients).line())
            except BROKEN as error:
                return lines, f"rounds.jsonl, line {number + 1}: {_one_line(error)}"
    except BROKEN as error:
        return lines, f"rounds.jsonl: {_one_line(error)}"
    return lines, ""


_NAMES = [field.name for field in fields(RoundRecord)]


def _optional(path: Path) -> tuple[Mapping[str, Any] | None, str]:
    """(its content, if there is any; what was wrong with it, if it is there)."""
    try:
        content = json.loads(untrusted.read_text(path, MAX_BYTES))
    except FileNotFoundError:
        return None, ""
    except BROKEN as error:
        return None, f"{path.name} is left out: {_one_line(error)}"
    return (content, "") if isinstance(content, dict) else (None, f"{path.name} is left out: expected a table")


def _one_line(error: Any) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def group(results: Sequence[Result]) -> list[Group]:
    """The readable runs by all settings but the seed and the machine's, in the order of task and model."""
    by_settings: dict[Any, list[Result]] = {}
    for result in results:
        if result.settings and result.state != REPEATED:
            key = (result.shipped, identity(result.settings, frozenset({"seed"})))
            by_settings.setdefault(key, []).append(result)
    groups = [Group("", members[0].settings, members) for members in by_settings.values()]
    order = sorted(groups, key=_order)
    return [each._replace(label=_label(each, order)) for each in order]


def _order(each: Group) -> tuple[str, int, bool, list[float]]:
    """By task; FedMatch before what it is compared with; the user's own before what ships with the code; by numbers."""
    about = {name: value for name, value in each.settings.items() if name not in OF_MACHINE | {"seed"}}
    numbers = [value if isinstance(value, (int, float)) else 0 for value in about.values()]
    return each.data, MODELS.index(each.settings["model"]), each.shipped, numbers


def _label(each: Group, groups: Sequence[Group]) -> str:
    """Task and model, and whatever else tells this group from those of the same task and model.

    Settings that follow from a profile or a network are not told one by one: only where groups share both.
    """
    own = each.settings
    same = [other.settings for other in groups if other.data == each.data and _agree(other.settings, own, "model")]
    alike = [other for other in same if _agree(other, own, "arch", "profile")]
    differing = [
        name
        for name in settings()
        if name not in OF_MACHINE | {"seed", "task", "model"} | without_effect(Config(**own)).keys()
        and len({repr(other[name]) for other in (same if name in ("arch", "profile") else alike)}) > 1
    ]
    parts = [str(own["model"])]
    for name in differing:
        value = Path(own[name]).name if name == "source" and own[name] else own[name]
        if isinstance(value, bool):
            parts += [name.replace("_", "-")] if value else []
        else:
            parts.append(f"{name.replace('_', '-')} {value}")
    if each.shipped and not all(other.shipped for other in groups):
        parts.append("shipped record")
    return f"{each.data}: {', '.join(parts)}"


def _agree(one: Mapping[str, Any], other: Mapping[str, Any], *names: str) -> bool:
    return all(one[name] == other[name] for name in names)
