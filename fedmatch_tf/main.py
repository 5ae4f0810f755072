"""Entry: reads the command line, then does one piece of work with the functions that Python users have, too."""

from __future__ import annotations

import errno
import io
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from fedmatch_tf.api import TrainingResult
    from fedmatch_tf.config import Config
    from fedmatch_tf.results.references import References, Study
    from fedmatch_tf.runs.display import Progress

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
OUTPUTS = "outputs"

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
        from fedmatch_tf.base import signals

        signals.interrupt(_asked_to_end)  # before anything that takes a while to load
        from fedmatch_tf.base.quiet import set_variables
        from fedmatch_tf.parser import parse

        for stream in (sys.stdout, sys.stderr):  # what a terminal can't show is shown as an escape
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        set_variables()
        command = parse(arguments)
        extra = {"study": study} if command.work in WITH_STUDY else {}
        WORK[command.work](**command.arguments, **extra)
        return DONE
    except KeyboardInterrupt:
        return _interrupted()
    except ModuleNotFoundError as error:
        if _asked_to_end:
            return _interrupted()
        from fedmatch_tf.base.program import say

        say(
            "error",
            f"expected the packages of requirements.txt, but {error.name} is not installed here. Use .venv/bin/python, "
            f"which `make demo` makes, or see docs/INSTALL.md",
        )
        return FAILED
    except Exception as error:
        return _interrupted() if _asked_to_end else _failure(error)


_asked_to_end: list[int] = []  # signals; a library that is being loaded may make an error of its own of the interrupt


def _interrupted() -> int:
    """The exit code, once the user is told."""
    from fedmatch_tf.base import signals

    signals.ignore()
    with suppress(OSError):  # the terminal may be gone
        print("\nInterrupted.", file=sys.stderr, flush=True)
    return INTERRUPTED


def _failure(error: Exception) -> int:
    """Says what went wrong; a traceback only for our own defects."""
    from fedmatch_tf.base.errors import DataError, lack_of_memory, printable, shortened
    from fedmatch_tf.base.program import say
    from fedmatch_tf.config import ConfigError
    from fedmatch_tf.federation.tasks import TrainingError

    if (lack := lack_of_memory(error)) is not None:
        say("error", f"this machine has {lack}")
        return FAILED
    if isinstance(error, BrokenPipeError):  # who read our output has gone away, as `head` does
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    if isinstance(error, (ConfigError, DataError, OSError, TrainingError)):
        say("error", shortened(printable(str(error))))
        bad_path = isinstance(error, OSError) and error.errno in BAD_PATH
        return BAD_INPUT if bad_path or isinstance(error, (ConfigError, DataError)) else FAILED
    traceback.print_exception(type(error), error, error.__traceback__)
    say("error", "this is a defect of the program; please report it with the lines above")
    return FAILED


def train(config: Config, study: Study | None = None, quiet: bool = False) -> None:
    """Trains one run; prints its result, and its folder last."""
    import fedmatch_tf
    from fedmatch_tf.workers.environment import keep_memory

    keep_memory()  # this process is ours; one that imports us may have its own ideas
    _show(fedmatch_tf.train(config, progress="notes" if quiet else True), study)


def sweep(
    runs: Sequence[Config],
    given: Mapping[str, Any],
    study: Study | None = None,
    quiet: bool = False,
    jobs: int = 1,
) -> None:
    """Does those of several runs that are not done; prints results, then folders, and the report's last."""
    from fedmatch_tf.results.sweep import sweep_all
    from fedmatch_tf.runs.training import Watch

    swept = sweep_all(runs, given, Watch(quiet, _progress(quiet)), _references(study), jobs)
    print(swept.text, *map(_from_here, swept.folders), *([swept.report] if swept.report else []), sep="\n")


def resume(run: str, given: Mapping[str, Any], study: Study | None = None, quiet: bool = False) -> None:
    """Goes on with a run; prints its result, and its folder last."""
    import fedmatch_tf
    from fedmatch_tf.workers.environment import keep_memory

    keep_memory()
    _show(fedmatch_tf.resume(run, progress="notes" if quiet else True, **given), study)


def _show(result: TrainingResult, study: Study | None) -> None:
    from fedmatch_tf.results.outcome import describe

    print(describe(result.record, _references(study)))
    print(_from_here(result.folder))


def _references(study: Study | None) -> References | None:
    return study.references if study else None


def _from_here(folder: Path) -> Path:
    """Its path from this directory, if it lies below it."""
    folder, here = folder.absolute(), Path.cwd()
    return folder.relative_to(here) if here in folder.parents else folder


def _progress(quiet: bool) -> Progress:
    from fedmatch_tf.runs.display import progress_for

    return progress_for(quiet)


def gen_data(config: Config, force: bool = False, quiet: bool = False) -> None:
    """Makes the task's partitions, or verifies them if they are there; prints what they hold and their folder."""
    from fedmatch_tf.base.program import say
    from fedmatch_tf.data.generator import generate
    from fedmatch_tf.data.manifest import describe, note_on_skipped
    from fedmatch_tf.data.sources import load_source
    from fedmatch_tf.runs.partition_folder import partition_spec

    progress = _progress(quiet)
    try:
        source = load_source(config.dataset, config.source, config.image_size, progress, config.skip_broken)
        if source.official is False:
            say("note", f"this is not the published {config.dataset} (its checksum differs)")
        generated = generate(partition_spec(config), source, Path(config.dataset_path), force, progress)
    except KeyboardInterrupt:
        print("\nNothing was changed; the same command begins anew.", file=sys.stderr)
        raise
    if skipped := note_on_skipped(generated.manifest.source.skipped or ()):
        say("note", skipped)
    if not quiet:
        print(describe(generated.manifest))
        print("written" if generated.written else "unchanged: every file is as its manifest says")
    print(generated.folder)


def reproduce(
    given: Mapping[str, Any],
    study: Study | None = None,
    experiment: str = "",
    seeds: Sequence[int] | None = None,
    list: bool = False,
    dry_run: bool = False,
    quiet: bool = False,
    jobs: int = 1,
) -> None:
    """Lists experiments, prints their commands, or runs one and reports on it."""
    from fedmatch_tf.config import ConfigError

    if study is None:
        raise ConfigError(
            "--work-type reproduce: needs a checkout of the project, whose study/ has the paper's experiments; there, "
            "python main.py --work-type reproduce --list"
        )
    progress = _progress(quiet)
    study.reproduce(experiment, seeds, given, listing=list, dry_run=dry_run, quiet=quiet, progress=progress, jobs=jobs)


def report(runs: Sequence[str], study: Study | None = None, output_path: str = OUTPUTS, quiet: bool = False) -> None:
    """Writes the report of runs; prints its folder."""
    from fedmatch_tf.results.build import report

    print(report(runs, Path(output_path), _progress(quiet), _references(study)))


def compare(runs: Sequence[str], official: str, output_path: str = OUTPUTS, quiet: bool = False) -> None:
    """Writes the comparison of runs with the original's; prints its folder."""
    from fedmatch_tf.results.compare import compare

    print(compare(runs, Path(official), Path(output_path)))


def evaluate(
    run: str, source: str | None = None, output_path: str = OUTPUTS, quiet: bool = False, **given: str
) -> None:
    """Evaluates a trained model; prints figures, and the folder they are in last."""
    from fedmatch_tf.results.evaluation import evaluate

    written = evaluate(Path(run), source, Path(output_path), _progress(quiet), **given)
    print(written.text)
    print(written.folder)


def predict(
    run: str,
    images: Sequence[str],
    output: str | None = None,
    output_path: str = OUTPUTS,
    precision: str | None = None,
    quiet: bool = False,
) -> None:
    """Writes a trained model's predictions of images; prints the file last."""
    from fedmatch_tf.results.prediction import predict

    def note(text: str) -> None:
        print(text, file=sys.stderr)

    file = Path(output) if output else None
    written = predict(Path(run), images, file, Path(output_path), _progress(quiet), note, precision)
    if not written.path.is_file():  # a pipe or a device gets the table, and nothing else
        return
    print(f"{written.predicted:,} images predicted, {written.skipped:,} skipped")
    print(written.path)


def export(run: str, to: str, quiet: bool = False) -> None:
    """Writes a trained model as a file that needs nothing of this project; prints it."""
    from fedmatch_tf.results.export import export

    print(export(Path(run), Path(to)))


# The work of each Command, by its name.
WORK: dict[str, Callable[..., None]] = {
    function.__name__: function
    for function in (train, sweep, resume, gen_data, reproduce, report, compare, evaluate, predict, export)
}
WITH_STUDY = ("train", "sweep", "resume", "reproduce", "report")  # that set a run beside what papers report


def command() -> int:
    """What the installed command `fedmatch` calls."""
    return main(sys.argv[1:])
