"""The command line: arguments to a Command. Bad flags and values end here, with the rule and the value."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Callable, NamedTuple, NoReturn

from fedmatch_tf import __version__
from fedmatch_tf.base.errors import printable, short, shortened
from fedmatch_tf.base.program import program, program_for, say
from fedmatch_tf.config import (
    DATA,
    Config,
    ConfigError,
    Setting,
    combinations,
    depends_on,
    flag,
    from_text,
    make_config,
    one_of,
    settings,
    without_effect,
)
from fedmatch_tf.config.defaults import MOST_SEEDS


class Command(NamedTuple):
    """What the user asked for."""

    work: str  # the function of main.py that does it
    arguments: dict[str, Any]  # by its parameters' names


class Work(NamedTuple):
    """A kind of work: what its `--help` shows, and what it needs."""

    what: str
    flags: tuple[str, ...]  # of FLAGS
    needs: tuple[str, ...] = ()
    settings: Mapping[str, str] = MappingProxyType({})  # and their meaning, where it is another than in training
    takes_all: bool = False  # of the settings, so that the flags of a training run can be given


_EVERY = dict.fromkeys(settings(), "")
_OUTPUT = {"output_path": ""}
_PRECISION = {"precision": "what convolutions and dense layers compute in; unset: as in the run"}
WORK = {
    "train": Work("trains a model", ("resume", "seeds", "sweep", "jobs", "quiet"), ("task",), _EVERY),
    "gen_data": Work(
        "makes a task's partitions",
        ("force", "quiet"),
        ("task",),
        {name: "" for name in _EVERY if settings()[name].group == DATA or name in ("task", "profile", "seed")},
        takes_all=True,
    ),
    "reproduce": Work(
        "does the runs of a table or figure of the paper",
        ("experiment", "seeds", "jobs", "list", "dry_run", "quiet"),
        settings={name: "" for name in _EVERY if name not in ("task", "model", "seed")},  # an experiment decides those
        takes_all=True,
    ),
    "report": Work("makes tables and figures of runs", ("runs", "quiet"), ("runs",), _OUTPUT),
    "compare": Work("sets runs beside the original's", ("runs", "official", "quiet"), ("runs", "official"), _OUTPUT),
    "evaluate": Work(
        "says how good a trained model is",
        ("run", "quiet"),
        ("run",),
        {
            "source": "labelled images, as for training (docs/DATA.md); unset: the run's test set",
            "dataset_path": "where the run's partitions are; unset: where they were",
            **_PRECISION,
            **_OUTPUT,
        },
    ),
    "predict": Work(
        "writes the classes of image files",
        ("run", "images", "output", "quiet"),
        ("run", "images"),
        {**_PRECISION, **_OUTPUT},
    ),
    "export": Work("writes a trained model as a file of its own", ("run", "to", "quiet"), ("run", "to")),
}
# What a kind of work needs, and an example.
_NEEDED = {
    "task": ("a task", "lc-biid-c10"),
    "runs": ("folders of runs", "outputs/logs/*"),
    "official": ("the original's log folder", "path/to/logs"),
    "run": ("one", "outputs/logs/<run>"),
    "images": ("one", "photos/"),
    "to": ("one", "model.keras"),
}


def parse(arguments: Sequence[str]) -> Command:
    """The Command; on bad input prints one message and exits with 2."""
    work, rest = _work_of(arguments)
    parser = _build(work, *_meant(rest))
    _refuse_unknown(parser, work, rest)
    given = vars(parser.parse_args(rest))
    if (other := given.pop("work_type")) != work:
        parser.error(f"--work-type: expected one kind of work, received {work} and {other}")
    own = {name: given.pop(name) for name in WORK[work].flags if name in given}
    for name in WORK[work].needs:
        if name not in {**own, **given} and "resume" not in own:
            what, example = _NEEDED[name]
            parser.error(f"{flag(name)}: expected {what} with --work-type {work}, for example {example}")
    if work == "reproduce":
        if not {"experiment", "list"} & set(own):
            parser.error("--experiment: expected a name with --work-type reproduce; --list shows them")
        return Command(work, {**own, "given": given})
    if work not in ("train", "gen_data"):
        return Command(work, {**own, **given})
    several = next((name for name in ("sweep", "seeds", "jobs") if name in own), None)
    if several and "resume" in own:
        parser.error(f"--{several}: --resume goes on with one run; give the first command again to go on with all")
    if "seeds" in own and "seed" in given:
        parser.error("--seeds: give --seeds or --seed, not both")
    if "resume" in own:
        return Command("resume", {"run": own.pop("resume"), **own, "given": given})
    try:
        if several in ("sweep", "seeds"):
            swept = own.pop("sweep", ())
            grid = dict(swept)
            if len(grid) < len(swept):
                parser.error("--sweep: give each name once, with all its values")
            runs = combinations(grid, own.pop("seeds", [given.get("seed", settings()["seed"].default)]), given)
            _say_without_effect(runs, {name: value for name, value in given.items() if name not in grid})
            return Command("sweep", {**own, "runs": runs, "given": given})
        config = make_config(**given)
        _say_without_effect([config], given)
    except ConfigError as error:
        parser.error(str(error))
    if several:
        parser.error("--jobs: expected several runs, by --seeds or --sweep")
    return Command(work, {**own, "config": config})


def _work_of(arguments: Sequence[str]) -> tuple[str, Sequence[str]]:
    """(the kind of work, its arguments): the first argument, or that of --work-type, or training."""
    if arguments and arguments[0] in WORK:
        return arguments[0], arguments[1:]
    first = _Parser(prog=program(), add_help=False, allow_abbrev=False)
    if arguments and not arguments[0].startswith("-"):
        close = difflib.get_close_matches(arguments[0], WORK, n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        first.error(f"expected a flag or one of {', '.join(WORK)}; received {short(arguments[0])}{meant}")
    first.add_argument("--work-type", default="train")
    work = first.parse_known_args(arguments)[0].work_type
    return (work if work in WORK else "train"), arguments  # its own parser says what is wrong with another


def _say_without_effect(configs: Sequence[Config], given: dict[str, Any]) -> None:
    """A flag that does nothing in any of these runs: a note; an error if the runs would be elsewhere."""
    config, reasons = configs[0], [without_effect(config) for config in configs]
    idle = {name: reason for name, reason in reasons[0].items() if name in given and all(name in of for of in reasons)}
    for name, reason in idle.items():
        if settings()[name].refuse and settings()[name].of_machine:
            raise ConfigError(f"{flag(name)}: {reason}, received --backend {config.backend}")
    for name, reason in idle.items():
        say("note", f"{flag(name)} has no effect with {config.model} on {config.task}: {reason}")
    pull = max((2 * each.lambda_l2 * each.lr for each in configs if each.decomposed), default=0.0)  # of eq. 5
    if pull >= 1:
        say(
            "note",
            f"every unlabelled step takes psi - sigma times 1 - 2 lambda_l2 lr = {1 - pull:g}: psi oscillates, "
            f"or jumps to sigma; a --lr or --lambda-l2 of which 2 lambda_l2 lr is below 1 avoids that",
        )


_LONGEST = 1000  # characters of a message: argparse quotes what it got in full


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        say("error", shortened(printable(message.replace("argument ", "", 1)), _LONGEST))
        print(f"`{self.prog} --help` lists every flag", file=sys.stderr)
        sys.exit(2)


def _seeds(text: str) -> tuple[int, ...]:
    """`3` -> (1, 2, 3); `1,2,5` -> (1, 2, 5)."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 10 and int(part) < 2**32 for part in parts):
        raise argparse.ArgumentTypeError(
            f"expected a number of seeds from 1 to 1000, or seeds as 1,2,5; received {short(text)}"
        )
    numbers = tuple(int(part) for part in parts)
    if len(numbers) == 1:
        if not 1 <= numbers[0] <= MOST_SEEDS:
            raise argparse.ArgumentTypeError(f"expected a number of seeds from 1 to 1000, received {short(text)}")
        return tuple(range(1, numbers[0] + 1))
    if len(set(numbers)) != len(numbers) or len(numbers) > MOST_SEEDS:
        raise argparse.ArgumentTypeError(f"expected different seeds, 1000 at most; received {short(text)}")
    return numbers


def _values(text: str) -> tuple[str, list[Any]]:
    """`lr=1e-3,2e-3` -> ("lr", [0.001, 0.002])."""
    name, _, values = text.partition("=")
    name = name.lstrip("-").replace("-", "_")
    setting = settings().get(name)
    if setting is None or not values:
        close = difflib.get_close_matches(name, settings(), n=1) if setting is None else []
        meant = f"; did you mean {close[0]}?" if close else ""
        raise argparse.ArgumentTypeError(f"expected NAME=VALUE,VALUE as lr=1e-3,2e-3; received {short(text)}{meant}")
    convert = _TRUTH.__getitem__ if setting.kind is bool else _converter(name, setting)
    try:
        return name, [convert(value) for value in values.split(",")]
    except KeyError as error:
        raise argparse.ArgumentTypeError(f"{name}: expected true or false, received {error.args[0]}") from error


_TRUTH = {"true": True, "false": False}


def _jobs(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:10]) <= 1000):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to 1000, received {short(text)}")
    return int(text)


# Flags that are no settings of a run, as argparse takes them.
FLAGS: dict[str, dict[str, Any]] = {
    "resume": {"metavar": "RUN", "help": "continue the run in this folder"},
    "seeds": {
        "metavar": "N|1,2,5",
        "type": _seeds,
        "help": "one run for each of the seeds 1 to N, or of a list; then mean and deviation. The same command again "
        "resumes. unset: --seed alone, for reproduce 3",
    },
    "sweep": {
        "metavar": "NAME=V,V",
        "type": _values,
        "nargs": "+",
        "help": "one run for every combination of these values, with every seed; then a report. The same command again "
        "resumes",
    },
    "jobs": {
        "metavar": "N",
        "type": _jobs,
        "help": "number of runs at a time, if memory allows; they share the cores. default: 1",
    },
    "force": {"action": "store_true", "help": "replace partitions made with other settings"},
    "experiment": {"metavar": "NAME", "help": "a table or figure of the paper"},
    "list": {"action": "store_true", "help": "show the experiments and what they cost"},
    "dry_run": {"action": "store_true", "help": "print the commands only"},
    "runs": {"metavar": "GLOB", "nargs": "+", "help": "folders of runs"},
    "official": {"metavar": "FOLDER", "help": "a log folder of the original, or a file with its curve"},
    "run": {"metavar": "RUN", "help": "the folder of a trained run"},
    "images": {"metavar": "PATH", "nargs": "+", "help": "image files, and folders of them to any depth"},
    "output": {"metavar": "FILE.csv", "help": "what is written; unset: <output-path>/predictions/<time>.csv"},
    "to": {"metavar": "PATH", "help": "a file that ends in .keras or .h5, or a folder for a SavedModel"},
    "quiet": {"action": "store_true", "help": "no progress display"},
}


def _build(name: str, meant: Config | None, reason: str) -> _Parser:
    """The parser of a kind of work. Help has the defaults of the run that is meant, or why none is."""
    work = WORK[name]
    others = "; ".join(f"`{program_for(other)}` {each.what}" for other, each in WORK.items() if other != "train")
    parser = _Parser(
        prog=program_for(name),
        description=f"FedMatch, federated semi-supervised learning: {work.what}."
        + (f" Other commands have their own --help: {others}." if name == "train" else ""),
        epilog=_epilog(meant, reason) if "profile" in work.settings else None,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=120),
    )
    parser.add_argument("--version", action="version", version=f"fedmatch_tf {__version__}")
    _add_settings(parser, work, meant)
    group = parser.add_argument_group("this command")
    for other in work.flags:
        group.add_argument(flag(other), **FLAGS[other])
    text = "the same as the first argument; default: train" if name == "train" else argparse.SUPPRESS
    group.add_argument("--work-type", choices=tuple(WORK), default=name, metavar=one_of(WORK), help=text)
    return parser


def _add_settings(parser: argparse.ArgumentParser, work: Work, meant: Config | None) -> None:
    idle = without_effect(meant) if meant is not None else {}
    groups: dict[str, Any] = {}
    for name in settings() if work.takes_all else work.settings:
        setting, is_shown = settings()[name], name in work.settings
        if is_shown and setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        text = work.settings.get(name) or _help(name, setting, meant, name in idle)
        options: dict[str, Any] = {"help": text if is_shown else argparse.SUPPRESS}
        if setting.kind is bool:
            options["action"] = "store_true"
        else:
            options["type"] = _converter(name, setting)
            options["metavar"] = one_of(setting.choices) if setting.choices else _METAVARS[setting.kind]
        names = [flag(each) for each in (name, setting.alias) if each]
        (groups[setting.group] if is_shown else parser).add_argument(*names, dest=name, **options)


_METAVARS = {int: "N", float: "X", str: "TEXT", tuple: "0,1"}


def _meant(arguments: Sequence[str]) -> tuple[Config | None, str]:
    """For --help: (the settings of the run that the other flags describe; or None, and why they describe none)."""
    if not {"-h", "--help"} & set(arguments):
        return None, ""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("task", "model", "profile"):
        first.add_argument(flag(name), default=argparse.SUPPRESS)
    try:
        given = vars(first.parse_known_args(arguments)[0])
        return (make_config(source="your images", **given), "") if "task" in given else (None, "")
    except (argparse.ArgumentError, ConfigError, SystemExit) as error:
        return None, printable(str(error)).replace("%", "%%")


def _epilog(meant: Config | None, reason: str) -> str:
    if meant is not None:
        return f"Defaults are those of --task {meant.task} --model {meant.model} --profile {meant.profile}."
    example = f"{program()} --task ls-simb-fmnist --model fedavg-uda --help"
    text = f"Some defaults depend on task, model and profile. To see those of a run, give them: `{example}`"
    return f"{reason}. {text}" if reason else text


def _help(name: str, setting: Setting, meant: Config | None, is_idle: bool) -> str:
    text, by = setting.text, depends_on(name)
    value = setting.default if meant is None else getattr(meant, name)
    if name == "task":
        text += "; required for train and gen_data"
    elif is_idle:
        text += "; has no effect here"
    elif setting.kind is bool:
        pass
    elif meant is not None and name in ("model", "profile"):
        text += f"; here: {value}; default: {setting.default}"
    elif meant is None and by:
        text += f"; default: by {' and '.join(by)}"
    elif value is not None and (not setting.input_path or name == "dataset_path"):
        text += f"; default: {value}"
    return text.replace("%", "%%")


def _converter(name: str, setting: Setting) -> Callable[[str], Any]:
    """Text of the command line -> checked value."""

    def convert(text: str) -> Any:
        try:
            return from_text(flag(name), text, setting)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).split(": ", 1)[1]) from error

    return convert


def _refuse_unknown(parser: argparse.ArgumentParser, work: str, arguments: Sequence[str]) -> None:
    """A flag that this kind of work does not read ends here: who does, or the one that was probably meant."""
    readers = {flag(name): [kind for kind, each in WORK.items() if name in each.flags] for name in FLAGS}
    shown = [option for action in parser._actions for option in action.option_strings]
    for argument in arguments:
        name = argument.split("=")[0]
        if not name.startswith("--") or name == "--" or name in shown:
            continue
        if name in readers:
            parser.error(f"{name}: is for --work-type {', '.join(readers[name])}; received --work-type {work}")
        if name in map(flag, settings()):
            parser.error(f"{name}: has no meaning with --work-type {work}")
        longer = [option for option in shown if option.endswith(f"-{name[2:]}")]  # --rounds: --num-rounds
        close = longer or difflib.get_close_matches(name, shown, n=1)
        parser.error(f"{name}: expected a known flag" + (f"; did you mean {close[0]}?" if close else ""))
