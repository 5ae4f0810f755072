"""--work-type compare: our runs beside the original's log folder. The original's files are untrusted."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from fedmatch_tf.base import drawing, untrusted
from fedmatch_tf.base.errors import DataError, printable, short
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
LARGEST = 1e12  # of any figure in a log


class Original(NamedTuple):
    """The original's logs: lists with one entry per round."""

    folder: str
    options: Mapping[str, Any]
    accuracy: Sequence[float]
    loss: Sequence[float]
    s2c: Mapping[str, Sequence[float]]  # sum, sig, psi, hlp
    c2s: Mapping[str, Sequence[float]]  # sum, sig, psi
    clients: Mapping[int, Mapping[str, Sequence[float]]]  # valid_loss, valid_acc, test_loss, test_acc of each


_COMPARED = """
    task model arch seed num_clients num_rounds frac_clients labels_per_class num_test num_valid lr lr_patience
    lr_factor wd num_epochs_client num_epochs_server batch_size_client batch_size_server batch_size_test num_helpers
    helper_interval confidence psi_factor lambda_s lambda_i lambda_a lambda_l1 lambda_l2 l1_thres delta_thres
"""
COMPARED = tuple(_COMPARED.split())
# How far means may lie apart and still agree. Accuracy moves by three points from round to round in the original, too.
TOLERANCE = {"accuracy (%)": 3.0, "loss": 0.15, "S2C": 10.0, "C2S": 5.0}  # costs in % of one parameter set


def read_original(folder: Path) -> Original:
    """The original's log folder; or a file with a curve of it: `aggr_acc`, `aggr_lss`, `s2c` and `c2s` alone.

    A curve may say by `options` what it is of; if it doesn't, runs of any task and model are compared with it.
    """
    if not folder.exists():
        raise DataError(
            f"--official: expected the original's log folder, or a file with a curve of it; found no {folder}"
        )
    if folder.is_file():
        curve = _load(folder)
        return _original(folder, _options(curve, folder), curve, curve, {})
    server = _load(folder / "server.txt")
    scores = _mapping(server, "scores", folder)
    clients = {}
    for path in sorted(folder.glob("client-*.txt"))[:MAX_CLIENTS]:
        number = path.stem.split("-", 1)[1]
        if number.isascii() and number.isdecimal() and len(number) <= 9:
            own = _mapping(_load(path), "scores", path)
            clients[int(number)] = {
                name: _numbers(own.get(name, []), path) for name in ("valid_loss", "valid_acc", "test_acc")
            }
    return _original(folder, _options(server, folder), scores, server, clients)


def _options(content: Mapping[str, Any], where: Path) -> Mapping[str, Any]:
    options = content.get("options", {})
    if not isinstance(options, dict):
        raise DataError(f"{where}: expected a table `options`, found {type(options).__name__}")
    return options


def _original(
    where: Path,
    options: Mapping[str, Any],
    scores: Mapping[str, Any],
    costs: Mapping[str, Any],
    clients: Mapping[int, Any],
) -> Original:
    return Original(
        str(where),
        options,
        _numbers(scores.get("aggr_acc", []), where),
        _numbers(scores.get("aggr_lss", []), where),
        {name: _numbers(values, where) for name, values in _mapping(costs, "s2c", where).items()},
        {name: _numbers(values, where) for name, values in _mapping(costs, "c2s", where).items()},
        clients,
    )


def _load(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise DataError(f"--official: expected the original's log folder with server.txt, found no file {path}")
        content = json.loads(untrusted.read_bytes(path, MAX_BYTES))
        json.dumps(content, ensure_ascii=False).encode()  # text that can be written again
    except DataError:
        raise
    except OSError as error:
        raise DataError(
            f"--official: expected the original's log folder with server.txt; {path}: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: expected JSON, as the original writes it: {str(error)[:200]}") from error
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


def _mapping(content: Mapping[str, Any], name: str, where: Path) -> Mapping[str, Any]:
    found = content.get(name)
    if not isinstance(found, dict):
        raise DataError(f"{where}: expected a table `{name}`, found {type(found).__name__}")
    return found


def _numbers(values: Any, where: Path) -> list[float]:
    fine = isinstance(values, list) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in values
    )
    if not fine or not all(abs(value) < LARGEST for value in values):
        raise DataError(f"{where}: expected lists of numbers")
    return [float(value) for value in values]


_MUST_AGREE = ("task", "model", "arch", "num_clients", "frac_clients")
_ABLATIONS = ("no_icc", "no_decomposition")


def not_comparable(result: Result, theirs: Original) -> str:
    """Why a run says nothing about the original's; empty if it does."""
    if not result.lines:
        return result.remark or "no round is done"
    reasons = []
    for name in _MUST_AGREE:
        other = theirs.options.get(settings()[name].original or name)
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
    warning += (
        ""
        if theirs.options
        else " The original's file does not say what it is of, so runs of any task and model are compared."
    )
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
            count = min(len(mine), len(other))
            if not count:
                rows.append([result.name, name, *[""] * 7, "not recorded by both"])
                continue
            left, right = math.fsum(mine[:count]) / count, math.fsum(other[:count]) / count
            allowed = TOLERANCE[name.split(",")[0]]
            rows.append(
                [
                    result.name,
                    name,
                    Value(left, digits=3),
                    Value(right, digits=3),
                    Value(left - right, digits=3, sign=True),
                    Value(allowed),
                    Value(count, digits=0),
                    Value(mine[count - 1], digits=3),
                    Value(other[count - 1], digits=3),
                    "agrees" if abs(left - right) <= allowed else "differs",
                ]
            )
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
                means = [math.fsum(values[begin:end]) / (end - begin) for values in (mine, other)]
                difference = Value(means[0] - means[1], digits=3, sign=True)
                both = [Value(each, digits=3) for each in means]
                rows.append([result.name, name, f"{begin + 1} to {end}", *both, difference])
    head = ["run", "quantity", "rounds", "ours, mean", "original, mean", "difference"]
    return Table("tens", "Means over every ten rounds", head, rows)


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
        for name in ("valid_loss", "valid_acc", "test_acc"):
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
    rows = []
    for name in COMPARED:
        mine, other = result.settings[name], theirs.options.get(settings()[name].original or name)
        if other is None:
            continue  # not said
        paper = getattr(of_paper, name) if of_paper else ""
        if not _equal(mine, other) or (paper not in ("", mine) and name not in ("model", "arch", "seed")):
            rows.append([name.replace("_", "-"), str(paper), _shown(other), str(mine)])
    for name, mine in changed_settings(Config(**{**result.settings, "profile": "official"})).items():
        is_said = name in COMPARED and theirs.options.get(settings()[name].original or name) is not None
        if not is_said and name not in OF_MACHINE | ONLY_WATCHES:
            paper = getattr(of_paper, name) if of_paper else ""
            rows.append([name.replace("_", "-"), str(paper), "not recorded", str(mine)])
    name = f"settings-{file_name(result.name)}"
    return Table(name, f"Settings that differ: {result.name}", ["setting", "paper", "original", "ours"], rows)


OVERVIEW = ("accuracy (%)", "loss", "S2C, sum (%)", "C2S, sum (%)")


def _figures(ours: Sequence[Result], theirs: Original) -> Iterator[tuple[str, str, Figure]]:
    """The most important quantities side by side, then one figure per quantity."""
    yield "overview", "Ours and the original's", _overview(ours, theirs)
    by_name = [{name: mine for name, mine, _ in _quantities(result, theirs)} for result in ours]
    for name, _, original in _quantities(ours[0], theirs):
        figure, axes = plots.new(f"{name}, ours and the original's")
        drawing.curve(axes, style.ORIGINAL, "original", range(1, len(original) + 1), original)
        for look, result, quantities in zip(_looks(ours), ours, by_name):
            drawing.curve(axes, look, result.name, range(1, len(result.lines) + 1), quantities[name])
        _from_zero(axes, name)
        drawing.finish(axes, "round", name)
        yield file_name(name), name, figure


def _looks(ours: Sequence[Result]) -> list[drawing.Style]:
    return style.of_models([result.settings["model"] for result in ours])


def _from_zero(axes: Any, name: str) -> None:
    """Shares and costs begin at 0, so that noise looks as small as it is."""
    if "%" in name:
        axes.set_ylim(bottom=0)


def _overview(ours: Sequence[Result], theirs: Original) -> Figure:
    figure = Figure(figsize=(13, 3.4), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(OVERVIEW)), OVERVIEW):
        for number, (look, result) in enumerate(zip(_looks(ours), ours)):
            for quantity, mine, other in _quantities(result, theirs):
                if quantity != name:
                    continue
                if number == 0:
                    drawing.curve(axes, style.ORIGINAL, "original", range(1, len(other) + 1), other)
                drawing.curve(axes, look, result.name, range(1, len(mine) + 1), mine)
        _from_zero(axes, name)
        axes.set_title(name)
        drawing.finish(axes, "round", "", legend=name == OVERVIEW[0])
    return figure
