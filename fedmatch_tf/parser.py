"""The command line: flags to a Command. Bad flags and values end here, with the rule and the value."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Callable, NoReturn

from fedmatch_tf import __version__
from fedmatch_tf.base.errors import printable, short, shortened
from fedmatch_tf.base.plugins import learners
from fedmatch_tf.base.program import program, short_program
from fedmatch_tf.config import (
    WHAT,
    Config,
    ConfigError,
    Setting,
    check_value,
    flag,
    make_config,
    settings,
    without_effect,
)
from fedmatch_tf.config.tables import COMMON, depends_on

WORK_TYPES = ("train", "gen_data", "reproduce", "report", "compare", "evaluate", "predict", "export")


@dataclass(frozen=True)
class Command:
    """What the user asked for."""

    work_type: str
    config: Config | None  # None for work that reads its settings from run folders
    force: bool
    quiet: bool
    resume: str | None
    given: dict[str, Any]  # the settings that were given, by name
    experiment: str | None  # reproduce
    seeds: tuple[int, ...] | None  # train, reproduce: one run each
    list_experiments: bool
    dry_run: bool
    runs: tuple[str, ...]  # report, compare
    official: str | None  # compare
    run: str | None  # evaluate, predict, export
    images: tuple[str, ...]  # predict
    output: str | None  # predict
    to: str | None  # export


def parse(arguments: Sequence[str]) -> Command:
    """The Command; on bad input prints one message and exits with 2."""
    parser = _build(*_meant(arguments))
    _refuse_unknown(parser, arguments)
    given = vars(parser.parse_args(arguments))
    work_type, force, quiet, resume = (given.pop(name) for name in ("work_type", "force", "quiet", "resume"))
    experiment, seeds, listing, dry_run = (given.pop(name) for name in ("experiment", "seeds", "list", "dry_run"))
    runs, official = tuple(given.pop("runs")), given.pop("official")
    of_model = {name: given.pop(name) for name in ("run", "images", "output", "to")}
    config = None
    if work_type != "reproduce" and dry_run:
        parser.error("--dry-run: is for --work-type reproduce")
    _check_seeds(parser, work_type, seeds, resume, given)
    _check_work(parser, work_type, experiment, listing, runs, official, given)
    _check_model_work(parser, work_type, of_model, given)
    if resume is not None and work_type != "train":
        parser.error(f"--resume: expected a training run to go on with, received --work-type {work_type}")
    if work_type in ("train", "gen_data") and resume is None:
        if "task" not in given:
            parser.error(f"--task: expected a task with --work-type {work_type}, for example --task lc-biid-c10")
        try:
            config = make_config(**given)
            _say_without_effect(config, given)
        except ConfigError as error:
            parser.error(str(error))
    return Command(
        work_type,
        config,
        force,
        quiet,
        resume,
        given,
        experiment,
        seeds,
        listing,
        dry_run,
        runs,
        official,
        of_model["run"],
        tuple(of_model["images"]),
        of_model["output"],
        of_model["to"],
    )


def _check_seeds(
    parser: argparse.ArgumentParser,
    work_type: str,
    seeds: tuple[int, ...] | None,
    resume: str | None,
    given: dict[str, Any],
) -> None:
    """Several seeds are several runs, which only two kinds of work make."""
    if seeds is None:
        return
    if work_type not in ("train", "reproduce"):
        parser.error(f"--seeds: is for training and --work-type reproduce, received --work-type {work_type}")
    if "seed" in given and work_type == "train":
        parser.error("--seeds: give --seeds or --seed, not both")
    if resume is not None:
        parser.error("--seeds: --resume goes on with one run; give the first command again to go on with all")


def _check_work(
    parser: argparse.ArgumentParser,
    work_type: str,
    experiment: str | None,
    listing: bool,
    runs: Sequence[str],
    official: str | None,
    given: dict[str, Any],
) -> None:
    """Flags that belong to one kind of work are given with it, and with no other."""
    if work_type == "reproduce" and experiment is None and not listing:
        parser.error("--experiment: expected a name with --work-type reproduce; --list shows them")
    if work_type != "reproduce" and (experiment is not None or listing):
        parser.error("--experiment and --list: are for --work-type reproduce")
    if work_type in ("report", "compare"):
        if not runs:
            parser.error(f"--runs: expected folders of runs with --work-type {work_type}, for example outputs/logs/*")
        other = [flag(name) for name in given if name != "output_path"]
        if other:
            parser.error(f"{other[0]}: has no meaning with --work-type {work_type}")
    elif runs:
        parser.error("--runs: is for --work-type report and compare")
    if (official is not None) != (work_type == "compare"):
        parser.error("--official: expected the original's log folder with --work-type compare, and only there")


# What can be done with a trained model: the flags that each needs, and those that it can take.
_MODEL_WORK: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "evaluate": (("run",), ("source", "dataset_path", "output_path", "precision")),
    "predict": (("run", "images"), ("output", "output_path", "precision")),
    "export": (("run", "to"), ()),
}
_EXAMPLES = {"run": "outputs/logs/<run>", "images": "photos/", "to": "model.keras"}


def _check_model_work(
    parser: argparse.ArgumentParser, work_type: str, of_model: dict[str, Any], given: dict[str, Any]
) -> None:
    """The same for work on a trained model."""
    needed, allowed = _MODEL_WORK.get(work_type, ((), ()))
    for name, value in of_model.items():
        if value and name not in (*needed, *allowed):
            of = [work for work, (first, second) in _MODEL_WORK.items() if name in (*first, *second)]
            parser.error(f"{flag(name)}: is for --work-type {' and '.join(of)}")
        if name in needed and not value:
            parser.error(f"{flag(name)}: expected one with --work-type {work_type}, for example {_EXAMPLES[name]}")
    other = [flag(name) for name in given if name not in allowed]
    if needed and other:
        parser.error(f"{other[0]}: has no meaning with --work-type {work_type}")


def _say_without_effect(config: Config, given: dict[str, Any]) -> None:
    """A flag that does nothing: somebody expects something of it, so a note; an error if the run would be elsewhere."""
    for name in ("ray_address", "ray_data"):
        if name in given and config.backend != "ray":
            raise ConfigError(f"{flag(name)}: is for --backend ray, received --backend {config.backend}")
    idle = [flag(name) for name in given if name in without_effect(config)]
    if idle:
        what = f"{config.model} on {config.task}"
        verb = "have" if len(idle) > 1 else "has"
        text = f"{', '.join(idle)} {verb} no effect with {what} and these settings"
        print(f"{short_program()}: note: {text}", file=sys.stderr)


_LONGEST = 1000  # characters of a message: argparse quotes what it got in full


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        text = shortened(printable(message.replace("argument ", "", 1)), _LONGEST)
        print(f"{short_program()}: error: {text}", file=sys.stderr)
        print(f"`{program()} --help` lists every flag", file=sys.stderr)
        sys.exit(2)


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


def _build(meant: Config | None, reason: str = "") -> argparse.ArgumentParser:
    example = f"{program()} --task ls-simb-fmnist --model fedavg-uda --help"
    if meant is None:
        shown = f"Some defaults depend on task, model and profile. To see those of a run, give them: `{example}`"
        shown = f"{reason}. {shown}" if reason else shown
    else:
        shown = f"Defaults are those of --task {meant.task} --model {meant.model} --profile {meant.profile}."
    parser = _Parser(
        prog=program(),
        description="FedMatch: federated semi-supervised learning with inter-client consistency and disjoint learning.",
        epilog=shown,
        allow_abbrev=False,
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=34, width=120),
    )
    parser.add_argument("--version", action="version", version=f"fedmatch_tf {__version__}")
    groups: dict[str, Any] = {}
    for name, setting in settings().items():
        if setting.group not in groups:
            groups[setting.group] = parser.add_argument_group(setting.group)
        aliases = [flag(alias) for alias in setting.aliases]
        if setting.kind is bool:
            idle = meant is not None and name in without_effect(meant)
            told = setting.text + ("; has no effect here" if idle else "")
            text = {"action": "store_true", "default": argparse.SUPPRESS, "help": told.replace("%", "%%")}
            groups[setting.group].add_argument(flag(name), *aliases, dest=name, **text)
            continue
        groups[setting.group].add_argument(
            flag(name),
            *aliases,
            dest=name,
            type=_converter(setting, flag(name)),
            default=argparse.SUPPRESS,
            metavar=_braced(setting.choices) if setting.choices else _METAVARS[setting.kind],
            help=_help(name, setting, meant),
        )
    groups[WHAT].add_argument(
        "--work-type", choices=WORK_TYPES, default="train", metavar=_braced(WORK_TYPES), help="default: train"
    )
    other = parser.add_argument_group("this command")
    other.add_argument("--resume", metavar="RUN", help="go on with the run in this folder")
    other.add_argument("--force", action="store_true", help="gen_data: replace partitions made with other settings")
    other.add_argument("--experiment", metavar="NAME", help="reproduce: a table or figure of the paper")
    other.add_argument(
        "--seeds",
        type=_seeds,
        metavar="N|1,2,5",
        help="train, reproduce: one run for each of the seeds 1 to N, or of a list; then mean and deviation. "
        "The same command again goes on where it stopped. unset: --seed alone, for reproduce 3",
    )
    other.add_argument("--list", action="store_true", help="reproduce: the experiments and what they cost")
    other.add_argument("--dry-run", action="store_true", help="reproduce: print the commands only")
    other.add_argument("--runs", nargs="+", default=[], metavar="GLOB", help="report, compare: folders of runs")
    other.add_argument(
        "--official", metavar="FOLDER", help="compare: a log folder of the original, or a file with its curve"
    )
    other.add_argument("--run", metavar="RUN", help="evaluate, predict, export: the folder of a trained run")
    other.add_argument(
        "--images", nargs="+", default=[], metavar="PATH", help="predict: image files, and folders of them to any depth"
    )
    other.add_argument(
        "--output", metavar="FILE.csv", help="predict: what is written; unset: <output-path>/predictions/<time>.csv"
    )
    other.add_argument("--to", metavar="PATH", help="export: a file that ends in .keras, or a folder for a SavedModel")
    other.add_argument("--quiet", action="store_true", help="no progress display")
    return parser


def _seeds(text: str) -> tuple[int, ...]:
    """`3` -> (1, 2, 3); `1,2,5` -> (1, 2, 5)."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 10 and int(part) < 2**32 for part in parts):
        raise argparse.ArgumentTypeError(
            f"expected a number of seeds from 1 to 1000, or seeds as 1,2,5; received {short(text)}"
        )
    numbers = tuple(int(part) for part in parts)
    if len(numbers) == 1:
        if not 1 <= numbers[0] <= 1000:
            raise argparse.ArgumentTypeError(f"expected a number of seeds from 1 to 1000, received {short(text)}")
        return tuple(range(1, numbers[0] + 1))
    if len(set(numbers)) != len(numbers) or len(numbers) > 1000:
        raise argparse.ArgumentTypeError(f"expected different seeds, 1000 at most; received {short(text)}")
    return numbers


_METAVARS = {int: "N", float: "X", str: "TEXT", tuple: "0,1"}


def _braced(choices: Sequence[str]) -> str:
    return "{" + ",".join(choices) + "}"


def _help(name: str, setting: Setting, meant: Config | None) -> str:
    text, by = setting.text, depends_on(name)
    value = COMMON.get(name) if meant is None else getattr(meant, name)
    if name == "task":
        text += "; required for train and gen_data"
    elif meant is None and (by or name in _BY_MODEL):
        text += f"; default: by {' and '.join([*by, *(['model'] if name in _BY_MODEL else [])])}"
    elif meant is not None and name in ("model", "profile"):
        text += f"; here: {value}; default: {COMMON[name]}"
    elif meant is not None and name in without_effect(meant):
        text += "; has no effect here"
    elif value is not None and not setting.input_path:
        text += f"; default: {value}"
    elif name == "dataset_path":
        text += f"; default: {COMMON[name]}"
    return text.replace("%", "%%")


_BY_MODEL = frozenset(name for entry in learners().values() for name in entry.defaults)


def _converter(setting: Setting, name: str) -> Callable[[str], Any]:
    """Text of the command line -> checked value."""

    def convert(text: str) -> Any:
        value: Any = text
        try:
            if setting.kind is tuple:
                value = tuple(int(part) for part in text.split(","))
            elif setting.kind is not str:
                value = setting.kind(text)
        except ValueError:
            value = text  # the check says what was expected
        try:
            check_value(name, value, setting)
        except ConfigError as error:
            raise argparse.ArgumentTypeError(str(error).split(": ", 1)[1]) from error
        return value

    return convert


def _refuse_unknown(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> None:
    """An unknown flag ends here, with the one that was probably meant."""
    known = [option for action in parser._actions for option in action.option_strings]
    for argument in arguments:
        name = argument.split("=")[0]
        if name.startswith("--") and name != "--" and name not in known:
            longer = [option for option in known if option.endswith(f"-{name[2:]}")]  # --rounds: --num-rounds
            close = longer or difflib.get_close_matches(name, known, n=1)
            parser.error(f"{name}: expected a known flag" + (f"; did you mean {close[0]}?" if close else ""))
