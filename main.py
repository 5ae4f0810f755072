"""Entry: reads the command line, then does one of gen_data, train, reproduce, report or compare."""

from __future__ import annotations

import errno
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedmatch_tf.config import Config
    from fedmatch_tf.runs.display import Progress
    from parser import Command

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130

# Paths that a user can put right; any other error of the system, such as a full disk, is not his mistake.
BAD_PATH = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENAMETOOLONG,
    errno.EROFS,
    errno.ELOOP,
)


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    try:
        from fedmatch_tf.backends.environment import set_variables
        from parser import parse

        set_variables()
        return _run(parse(arguments))
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    except ModuleNotFoundError as error:
        print(
            f"main.py: error: expected the packages of requirements.txt, but {error.name} is not installed here. "
            f"Use .venv/bin/python, which `make demo` makes, or see docs/INSTALL.md",
            file=sys.stderr,
        )
        return FAILED
    except Exception as error:
        return _failure(error)


def _failure(error: Exception) -> int:
    """Says what went wrong; a traceback only for our own defects."""
    from data.errors import DataError
    from fedmatch_tf.config import ConfigError
    from fedmatch_tf.simulation.tasks import TrainingError

    if isinstance(error, (ConfigError, DataError, OSError, TrainingError)):
        print(f"main.py: error: {error}", file=sys.stderr)
        bad_path = isinstance(error, OSError) and error.errno in BAD_PATH
        return BAD_INPUT if bad_path or isinstance(error, (ConfigError, DataError)) else FAILED
    traceback.print_exception(type(error), error, error.__traceback__)
    print("main.py: error: this is a defect of the program; please report it with the lines above", file=sys.stderr)
    return FAILED


def _run(command: Command) -> int:
    from fedmatch_tf.runs.display import progress_for

    progress = progress_for(command.quiet)
    if command.config is not None and command.work_type == "gen_data":
        return gen_data(command.config, command.force, command.quiet, progress)
    if command.config is not None and command.work_type == "train":
        from fedmatch_tf.runs.training import train

        return show(train(command.config, command.quiet, progress))
    if command.resume is not None:
        from fedmatch_tf.runs.training import resume

        return show(resume(Path(command.resume), command.given, command.quiet, progress))
    if command.work_type == "reproduce":
        return reproduce(command, progress)
    output = Path(command.given.get("output_path", "outputs"))
    if command.work_type == "compare":
        from fedmatch_tf.report.compare import compare

        print(compare(command.runs, Path(command.official or ""), output))
    else:
        from fedmatch_tf.report.build import report

        print(report(command.runs, output, progress))
    return DONE


def show(run: Path) -> int:
    """Prints a run's result, and its folder last."""
    from fedmatch_tf.report.outcome import describe

    print(describe(run))
    print(run)
    return DONE


def reproduce(command: Command, progress: Progress) -> int:
    """Lists experiments, prints their commands, or runs one and reports on it."""
    from fedmatch_tf.report import reproduce as reproduction

    if command.list_experiments:
        print(reproduction.list_experiments(command.seeds, command.given))
    elif command.dry_run:
        for config in reproduction.plan(command.experiment or "", command.seeds, command.given):
            print(reproduction.command(config))
    else:
        name = command.experiment or ""
        print(reproduction.reproduce(name, command.seeds, command.given, command.quiet, progress))
    return DONE


def gen_data(config: Config, force: bool, quiet: bool, progress: Progress) -> int:
    """Makes the task's partitions, or verifies them if they are there; prints what they hold and their folder."""
    from data.generator import generate
    from data.manifest import describe
    from data.sources import load_source
    from fedmatch_tf.runs.partition_folder import partition_spec

    try:
        source = load_source(config.dataset, config.source, config.image_size, progress)
        if source.official is False:
            print(f"main.py: note: this is not the published {config.dataset} (its checksum differs)", file=sys.stderr)
        generated = generate(partition_spec(config), source, Path(config.dataset_path), force, progress)
    except KeyboardInterrupt:
        print("\nNothing was changed; the same command begins anew.", file=sys.stderr)
        raise
    if not quiet:
        print(describe(generated.manifest))
        print("written" if generated.written else "unchanged: every file is as its manifest says")
    print(generated.folder)
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
