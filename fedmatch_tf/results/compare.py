"""--work-type compare: our runs beside the original's log folder. The original's files are untrusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedmatch_tf.base import drawing, untrusted
from fedmatch_tf.base.errors import DataError, printable, short
from fedmatch_tf.base.typed import Within, read
from fedmatch_tf.config import Config, ConfigError, changed_settings, flag, make_config, settings
from fedmatch_tf.config.resume import OF_MACHINE
from fedmatch_tf.config.rules import parse_task
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.results import page, plots, results, style
from fedmatch_tf.results.names import ONLY_WATCHES, file_name
from fedmatch_tf.results.results import Result
from fedmatch_tf.results.tables import Cell, Table, Value

MAX_BYTES = 200 * 2**20  # of one log file
MAX_CLIENTS = 100_000
Series = tuple[Annotated[float, Within(-1e12, 1e12, "a number up to 1e12")], ...]
# How far means may lie apart and still agree. Accuracy moves by three points from round to round in the original, too.
TOLERANCE = {"accuracy (%)": 3.0, "loss": 0.15, "S2C": 10.0, "C2S": 5.0}  # costs in % of one parameter set


class Original(NamedTuple):
    """The original's logs: lists with one entry per round."""

    folder: str
    options: Mapping[str, Any]
    accuracy: Sequence[float]
    loss: Sequence[float]
    s2c: Mapping[str, Sequence[float]]  # sum, sig, psi, hlp
    c2s: Mapping[str, Sequence[float]]  # sum, sig, psi
    clients: Mapping[int, Mapping[str, Sequence[float]]]  # valid_loss, valid_acc, test_acc of each

    def option(self, name: str) -> Any:
        """What it has for this setting of ours; None if it does not say."""
        return self.options.get(settings()[name].original or name)


def read_original(folder: Path) -> Original:
    """The original's log folder; or a file with a curve of it: `aggr_acc`, `aggr_lss`, `s2c` and `c2s` alone.

    A curve may say by `options` what it is of; if it doesn't, runs of any task and model are compared with it.
    """
    logs = [] if folder.is_file() else sorted(folder.glob("client-*.txt"))[:MAX_CLIENTS]
    clients = {}
    for path in logs:
        number = path.stem.split("-", 1)[1]
        if number.isascii() and number.isdecimal() and len(number) <= 9:
            clients[int(number)] = _series(_scores(_load(path), path), _OF_CLIENTS, path)
    content = _load(folder if folder.is_file() else folder / "server.txt")
    scores = content if folder.is_file() else _scores(content, folder)
    s2c, c2s = (read(dict[str, Series], f"{folder}: {way}", content.get(way)) for way in ("s2c", "c2s"))
    options = read(dict[str, Any], f"{folder}: options", content.get("options", {}))
    curves = _series(scores, ("aggr_acc", "aggr_lss"), folder)
    return Original(str(folder), options, curves["aggr_acc"], curves["aggr_lss"], s2c, c2s, clients)


_OF_CLIENTS = ("valid_loss", "valid_acc", "test_acc")


def _scores(content: Mapping[str, Any], where: Path) -> Mapping[str, Any]:
    found: Mapping[str, Any] = read(dict[str, Any], f"{where}: scores", content.get("scores"))
    return found


def _series(scores: Mapping[str, Any], names: Sequence[str], where: Path) -> dict[str, Sequence[float]]:
    return {name: read(Series, f"{where}: {name}", scores.get(name, ())) for name in names}


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(untrusted.read_bytes(path, MAX_BYTES))
        json.dumps(content, ensure_ascii=False).encode()  # text that can be written again
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"--official: expected the original's log folder with server.txt, or a file with a curve of it; {path}: "
            f"{error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected JSON, as the original writes it: {str(error)[:200]}") from error
    found: dict[str, Any] = read(dict[str, Any], str(path), content)
    return found


_MUST_AGREE = ("task", "model", "arch", "num_clients", "frac_clients")
_ABLATIONS = ("no_icc", "no_decomposition")


def not_comparable(result: Result, theirs: Original) -> str:
    """Why a run says nothing about the original's; empty if it does."""
    if not result.lines:
        return result.remark or "no round is done"
    reasons = []
    for name in _MUST_AGREE:
        other = theirs.option(name)
        if other is not None and not _equal(result.settings[name], other):
            reasons.append(f"{name.replace('_', '-')} {result.settings[name]}, the original's is {_shown(other)}")
    reasons += [f"{flag(name)}, which the original does not have" for name in _ABLATIONS if result.settings[name]]
    return "; ".join(reasons[:2])  # enough to see that it is something else


def _equal(mine: Any, other: Any) -> bool:
    numbers = all(isinstance(value, (int, float)) and abs(value) < 1e300 for value in (mine, other))
    return mine == other or (numbers and math.isclose(mine, other, rel_tol=1e-6))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else short(value)


def compare(patterns: Sequence[str], official: Path, output: Path) -> Path:
    """Writes the comparison of the runs that match with the original's; returns its folder."""
    theirs = read_original(official)
    found = [(result, not_comparable(result, theirs)) for result in results.find(patterns)]
    ours = [result for result, reason in found if not reason]
    left_out = [[result.name, reason] for result, reason in found if reason]
    if not ours:
        told = "".join(f"\n  {name}: {reason}" for name, reason in left_out[:8])
        raise ConfigError(f"--runs: expected a run that can be compared with the original's; received{told}")
    tables = [verdicts(ours, theirs), tens_table(ours, theirs)]
    if Path(theirs.folder).is_dir():  # not a curve alone
        tables.append(clients_table(ours, theirs))
    if theirs.options:
        tables += [table for table in (settings_table(result, theirs) for result in ours) if table.rows]
    if left_out:
        tables.append(Table("not-compared", "Not compared", ["run", "reason"], left_out))
    partial = [f"{result.name} ({result.remark})" for result in ours if result.state != results.FINISHED]
    warning = f" Not finished: {', '.join(partial)}." if partial else ""
    if not theirs.options:
        warning += " The original's file does not say what it is of, so runs of any task and model are compared."
    lead = (
        f"{len(ours)} of our runs beside {printable(theirs.folder)} ({len(theirs.accuracy)} rounds). Verdicts are on "
        f"means over the rounds that both have; costs are in per cent of one parameter set. The original does not fix "
        f"its choice of clients, so its own runs differ, too; and it counts a client's first visit against another "
        f"client's weights, which shows in S2C.{warning}"
    )
    section = page.Section("", tables, _figures(ours, theirs))
    return page.write(output, "compare.html", "Ours and the original", lead, [section])


def verdicts(ours: Sequence[Result], theirs: Original) -> Table:
    """Each quantity's mean over common rounds, ours and theirs, and whether they agree."""
    rows: list[list[Cell]] = []
    for result in ours:
        for name, mine, other in _quantities(result, theirs):
            count, allowed = min(len(mine), len(other)), TOLERANCE[name.split(",")[0]]
            if not count:
                rows.append([result.name, name, *[""] * 7, "not recorded by both"])
                continue
            means, difference = _means(mine[:count], other[:count])
            last = [Value(values[count - 1], digits=3) for values in (mine, other)]
            verdict = "agrees" if abs(difference.mean) <= allowed else "differs"
            common = Value(count, digits=0)
            rows.append([result.name, name, *means, difference, Value(allowed), common, *last, verdict])
    head = ["run", "quantity", "ours, mean", "original, mean", "difference", "allowed"]
    head += ["last common round", "ours in it", "original in it", "verdict"]
    return Table("verdicts", "Quantity by quantity", head, rows)


def tens_table(ours: Sequence[Result], theirs: Original) -> Table:
    """Means over every ten rounds that both have, ours and theirs."""
    rows: list[list[Cell]] = []
    for result in ours:
        for name, mine, other in _quantities(result, theirs):
            for begin in range(0, min(len(mine), len(other)), 10):
                end = min(begin + 10, len(mine), len(other))
                means, difference = _means(mine[begin:end], other[begin:end])
                rows.append([result.name, name, f"{begin + 1} to {end}", *means, difference])
    head = ["run", "quantity", "rounds", "ours, mean", "original, mean", "difference"]
    return Table("tens", "Means over every ten rounds", head, rows)


def _means(mine: Sequence[float], other: Sequence[float]) -> tuple[list[Value], Value]:
    """(the means of both, their difference)."""
    one, two = (math.fsum(values) / len(values) for values in (mine, other))
    return [Value(one, digits=3), Value(two, digits=3)], Value(one - two, digits=3, sign=True)


def _quantities(result: Result, theirs: Original) -> Iterator[tuple[str, Sequence[float], Sequence[float]]]:
    lines = result.lines
    yield "accuracy (%)", [100 * line["test_acc"] for line in lines], [100 * value for value in theirs.accuracy]
    yield "loss", [line["test_loss"] for line in lines], theirs.loss
    for way, name, original in (("s2c", "S2C", theirs.s2c), ("c2s", "C2S", theirs.c2s)):
        for mine, other in (("sum", "sum"), ("sigma", "sig"), ("psi", "psi"), ("helpers", "hlp")):
            if other in original:
                percent = [100 * value for value in original[other]]
                yield f"{name}, {mine} (%)", [100 * line[way][mine] for line in lines], percent


def clients_table(ours: Sequence[Result], theirs: Original) -> Table:
    """Means over all entries of the clients' logs, which both write in the same format."""
    rows = []
    for folder in (theirs.folder, *(result.folder for result in ours)):
        clients = theirs.clients if folder == theirs.folder else _clients_of(Path(folder))
        cells = [printable(Path(folder).name), str(len(clients))]
        for name in _OF_CLIENTS:
            values = [value for client in clients.values() for value in client[name]]
            cells.append(f"{math.fsum(values) / len(values):.4g}" if values else "")
        rows.append(cells)
    head = ["logs", "clients", "validation loss", "validation accuracy", "test accuracy"]
    return Table("clients", "Clients, mean over their rounds (the original's first)", head, rows)


def _clients_of(run: Path) -> Mapping[int, Mapping[str, Sequence[float]]]:
    """The clients' logs of one of our runs; records that ship with the code have none."""
    return read_original(run).clients if (run / "server.txt").is_file() else {}


def settings_table(result: Result, theirs: Original) -> Table:
    """Every setting that differs between ours, the original's run and the two profiles."""
    task = str(result.settings["task"])
    of_paper = make_config(task, profile="paper") if DATASETS[parse_task(task)[2]].in_paper else None
    changed = changed_settings(Config(**{**result.settings, "profile": "official"}))
    rows = []
    for name in (name for name in settings() if name == "seed" or name not in OF_MACHINE | ONLY_WATCHES | {"profile"}):
        mine, other = result.settings[name], theirs.option(name)
        paper = getattr(of_paper, name) if of_paper else ""
        if other is None:
            differs = name != "seed" and name in changed
        else:
            differs = not _equal(mine, other) or (paper not in ("", mine) and name not in ("model", "arch", "seed"))
        if differs:
            recorded = "not recorded" if other is None else _shown(other)
            rows.append([name.replace("_", "-"), str(paper), recorded, str(mine)])
    name = f"settings-{file_name(result.name)}"
    return Table(name, f"Settings that differ: {result.name}", ["setting", "paper", "original", "ours"], rows)


OVERVIEW = ("accuracy (%)", "loss", "S2C, sum (%)", "C2S, sum (%)")


def _figures(ours: Sequence[Result], theirs: Original) -> Iterator[tuple[str, str, Figure]]:
    """The most important quantities side by side, then one figure per quantity."""
    looks = style.of_models([result.settings["model"] for result in ours])
    by_name = [{name: (mine, other) for name, mine, other in _quantities(result, theirs)} for result in ours]

    def draw(axes: Axes, name: str, label: str, legend: bool) -> None:
        original = by_name[0][name][1]
        drawing.curve(axes, style.ORIGINAL, "original", range(1, len(original) + 1), original)
        for look, result, quantities in zip(looks, ours, by_name):
            drawing.curve(axes, look, result.name, range(1, len(result.lines) + 1), quantities[name][0])
        if "%" in name:
            axes.set_ylim(bottom=0)  # shares and costs, so that noise looks as small as it is
        drawing.finish(axes, "round", label, legend)

    overview = Figure(figsize=(13, 3.4), layout="constrained")
    for axes, name in zip(overview.subplots(1, len(OVERVIEW)), OVERVIEW):
        axes.set_title(name)
        if name in by_name[0]:
            draw(axes, name, "", legend=name == OVERVIEW[0])
    yield "overview", "Ours and the original's", overview
    for name in by_name[0]:
        figure, axes = plots.new(f"{name}, ours and the original's")
        draw(axes, name, name, legend=True)
        yield file_name(name), name, figure
