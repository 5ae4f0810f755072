"""Entry: reads the command line, then does one of gen_data, train, reproduce, report or compare."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.display import Progress, progress_for
from parser import Command, parse

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    command = parse(arguments)
    from data.errors import DataError
    from fedmatch_tf.tasks import TrainingError

    try:
        return _run(command)
    except (ConfigError, DataError) as error:
        print(f"main.py: error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    except (OSError, TrainingError) as error:
        print(f"main.py: error: {error}", file=sys.stderr)
        return FAILED
    except Exception:
        traceback.print_exc()
        print("main.py: error: this is a defect of the program; please report it with the lines above", file=sys.stderr)
        return FAILED


def _run(command: Command) -> int:
    progress = progress_for(command.quiet)
    if command.config is not None and command.work_type == "gen_data":
        return gen_data(command.config, command.force, command.quiet, progress)
    if command.config is not None and command.work_type == "train":
        from fedmatch_tf.training import train

        print(train(command.config, command.quiet, progress))
        return DONE
    what = "--resume" if command.resume else f"--work-type {command.work_type}"
    raise ConfigError(f"{what}: not built yet; this version has train and gen_data")


def gen_data(config: Config, force: bool, quiet: bool, progress: Progress) -> int:
    """Makes the task's partitions, or verifies them if they are there; prints what they hold and their folder."""
    from data.generator import generate
    from data.manifest import describe
    from data.sources import load_source
    from fedmatch_tf.training import partition_spec

    source = load_source(config.dataset, config.source, config.image_size, progress)
    if source.official is False:
        print(f"main.py: note: this is not the published {config.dataset} (its checksum differs)", file=sys.stderr)
    generated = generate(partition_spec(config), source, Path(config.dataset_path), force, progress)
    if not quiet:
        print(describe(generated.manifest))
        print("written" if generated.written else "unchanged: every file is as its manifest says")
    print(generated.folder)
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
