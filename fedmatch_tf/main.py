"""Entry: reads the command line, then does one piece of work with the functions that Python users have, too."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmatch_tf.api import Shown
    from fedmatch_tf.config import Config
    from fedmatch_tf.parser import Command
    from fedmatch_tf.results.references import References, Study
    from fedmatch_tf.runs.display import Progress

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


def main(arguments: Sequence[str], study: Study | None = None) -> int:
    """Runs the command and returns its exit code.

    Args:
        study: what a checkout knows of papers; an installation has none.
    """
    _asked_to_end.clear()  # of an earlier command in this process
    try:
        _end_by_signals()  # before anything that takes a while to load
        from fedmatch_tf.base.quiet import set_variables
        from fedmatch_tf.parser import parse

        for stream in (sys.stdout, sys.stderr):  # what a terminal can't show is shown as an escape
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        set_variables()
        return _run(parse(arguments), study)
    except KeyboardInterrupt:
        return _interrupted()
    except ModuleNotFoundError as error:
        if _asked_to_end:
            return _interrupted()
        print(
            f"main.py: error: expected the packages of requirements.txt, but {error.name} is not installed here. "
            f"Use .venv/bin/python, which `make demo` makes, or see docs/INSTALL.md",
            file=sys.stderr,
        )
        return FAILED
    except Exception as error:
        return _interrupted() if _asked_to_end else _failure(error)


_asked_to_end: list[int] = []  # signals; a library that is being loaded may make an error of its own of the interrupt


def _end_by_signals() -> None:
    """From now on SIGTERM and SIGHUP end the command as Ctrl-C does: everything it made for the time being goes."""
    from fedmatch_tf.base.signals import endings

    def end(number: int, frame: Any) -> None:
        _asked_to_end.append(number)
        raise KeyboardInterrupt

    ctrl_c = [signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else []
    for number in (*ctrl_c, *endings()):
        signal.signal(number, end)


def _interrupted() -> int:
    """Says so."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # nothing is left to be interrupted
    with suppress(OSError):  # the terminal may be gone
        print("\nInterrupted.", file=sys.stderr, flush=True)
    return INTERRUPTED


def _is_lack_of_memory(error: Exception) -> bool:
    """Python, TensorFlow and the system have different words for it; a thread needs memory, too."""
    no_thread = isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    no_room = isinstance(error, MemoryError) or type(error).__name__ == "ResourceExhaustedError"
    return no_room or no_thread or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def _failure(error: Exception) -> int:
    """Says what went wrong; a traceback only for our own defects."""
    from fedmatch_tf.base.errors import DataError, printable, shortened
    from fedmatch_tf.base.program import short_program
    from fedmatch_tf.config import ConfigError
    from fedmatch_tf.federation.tasks import TrainingError

    if _is_lack_of_memory(error):
        what = " ".join(str(error).split())[:200] or type(error).__name__
        print(
            f"{short_program()}: error: this machine has too little memory for what was asked for ({what}). A smaller "
            f"--image-size, smaller batches, fewer --workers or --threads-per-worker need less",
            file=sys.stderr,
        )
        return FAILED
    if isinstance(error, BrokenPipeError):  # who read our output has gone away, as `head` does
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, (ConfigError, DataError, OSError, TrainingError)):
        print(f"{short_program()}: error: {shortened(printable(str(error)))}", file=sys.stderr)
        bad_path = isinstance(error, OSError) and error.errno in BAD_PATH
        return BAD_INPUT if bad_path or isinstance(error, (ConfigError, DataError)) else FAILED
    traceback.print_exception(type(error), error, error.__traceback__)
    what = "this is a defect of the program; please report it with the lines above"
    print(f"{short_program()}: error: {what}", file=sys.stderr)
    return FAILED


def _run(command: Command, study: Study | None) -> int:
    from fedmatch_tf.runs.display import progress_for

    progress, references = progress_for(command.quiet), study.references if study else None
    if command.config is not None and command.work_type == "gen_data":
        return gen_data(command.config, command.force, command.quiet, progress)
    if command.work_type == "train":
        return train(command, references) if command.seeds is None else train_seeds(command, progress, references)
    if command.work_type == "reproduce":
        return reproduce(command, progress, study)
    if command.run is not None:
        return use_model(command, progress)
    output = Path(command.given.get("output_path", "outputs"))
    if command.work_type == "compare":
        from fedmatch_tf.results.compare import compare

        print(compare(command.runs, Path(command.official or ""), output))
    else:
        from fedmatch_tf.results.build import report

        print(report(command.runs, output, progress, references))
    return DONE


def train(command: Command, references: References | None) -> int:
    """Trains, or goes on with a run; prints its result, and its folder last."""
    import fedmatch_tf
    from fedmatch_tf.results.outcome import describe
    from fedmatch_tf.workers.environment import keep_memory

    keep_memory()  # this process is ours; one that imports us may have its own ideas
    shown: Shown = "notes" if command.quiet else True
    if command.resume is not None:
        result = fedmatch_tf.resume(command.resume, progress=shown, **command.given)
    else:
        assert command.config is not None
        result = fedmatch_tf.train(command.config, progress=shown)
    print(describe(result.folder, references))
    print(_from_here(result.folder))
    return DONE


def _from_here(folder: Path) -> Path:
    """Its path from this directory, if it lies below it."""
    folder, here = folder.absolute(), Path.cwd()
    return folder.relative_to(here) if here in folder.parents else folder


def train_seeds(command: Command, progress: Progress, references: References | None) -> int:
    """Trains one run per seed; prints mean and deviation, and the folders last."""
    from fedmatch_tf.results.sweep import sweep_seeds

    assert command.config is not None
    assert command.seeds is not None
    folders, text = sweep_seeds(command.config, command.seeds, command.given, command.quiet, progress, references)
    print(text)
    for folder in folders:
        print(_from_here(folder))
    return DONE


def use_model(command: Command, progress: Progress) -> int:
    """Evaluates a trained model, predicts with it or exports it; prints what was written last."""
    run, output = Path(command.run or ""), Path(command.given.get("output_path", "outputs"))
    if command.work_type == "evaluate":
        from fedmatch_tf.results.evaluation import evaluate

        given = {name: command.given.get(name) for name in ("dataset_path", "precision")}
        done = evaluate(run, command.given.get("source"), output, progress, **given)
        print(done.text)
        print(done.folder)
    elif command.work_type == "predict":
        from fedmatch_tf.results.prediction import predict

        to = Path(command.output) if command.output else None
        precision = command.given.get("precision")
        written = predict(
            run, command.images, to, output, progress, lambda text: print(text, file=sys.stderr), precision
        )
        print(f"{written.predicted:,} images predicted, {written.skipped:,} skipped")
        print(written.path)
    else:
        from fedmatch_tf.results.export import export

        print(export(run, Path(command.to or "")))
    return DONE


def reproduce(command: Command, progress: Progress, study: Study | None) -> int:
    """Lists experiments, prints their commands, or runs one and reports on it."""
    from fedmatch_tf.config import ConfigError

    if study is None:
        raise ConfigError(
            "--work-type reproduce: needs a checkout of the project, whose study/ has the paper's experiments; there, "
            "python main.py --work-type reproduce --list"
        )
    study.reproduce(
        command.experiment or "",
        command.seeds,
        command.given,
        listing=command.list_experiments,
        dry_run=command.dry_run,
        quiet=command.quiet,
        progress=progress,
    )
    return DONE


def gen_data(config: Config, force: bool, quiet: bool, progress: Progress) -> int:
    """Makes the task's partitions, or verifies them if they are there; prints what they hold and their folder."""
    from fedmatch_tf.data.generator import generate
    from fedmatch_tf.data.manifest import describe
    from fedmatch_tf.data.sources import load_source
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


def command() -> int:
    """What the installed command `fedmatch` calls."""
    return main(sys.argv[1:])
