"""Entry: reads the command line, then does one of gen_data, train, reproduce, report or compare."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.display import progress_for
from parser import Command, parse

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


def main(arguments: Sequence[str]) -> int:
    """Runs the command and returns its exit code."""
    command = parse(arguments)
    from data.errors import DataError

    try:
        return _run(command)
    except (ConfigError, DataError) as error:
        print(f"main.py: error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        print(f"main.py: error: {error}", file=sys.stderr)
        return FAILED
    except Exception:
        traceback.print_exc()
        print("main.py: error: this is a defect of the program; please report it with the lines above", file=sys.stderr)
        return FAILED


def _run(command: Command) -> int:
    if command.work_type == "gen_data" and command.config is not None:
        return gen_data(command.config, command.force, command.quiet)
    raise ConfigError(f"--work-type {command.work_type}: not built yet; this version has gen_data")


def gen_data(config: Config, force: bool, quiet: bool) -> int:
    """Makes the task's partitions, or verifies them if they are there; prints what they hold and their folder."""
    from data.generator import generate
    from data.manifest import describe
    from data.partition import PartitionSpec
    from data.sources import load_source

    spec = PartitionSpec(
        scenario=config.scenario,
        kind=config.kind,
        dataset=config.dataset,
        num_clients=config.num_clients,
        labels_per_class=config.labels_per_class,
        num_test=config.num_test,
        num_valid=config.num_valid,
        num_steps=config.num_steps,
        image_size=config.image_size,
        seed=config.seed,
    )
    progress = progress_for(quiet)
    source = load_source(config.dataset, config.source, config.image_size, progress)
    if source.official is False:
        print(f"main.py: note: this is not the published {config.dataset} (its checksum differs)", file=sys.stderr)
    generated = generate(spec, source, Path(config.dataset_path), force, progress)
    if not quiet:
        print(describe(generated.manifest))
        print("written" if generated.written else "unchanged: every file is as its manifest says")
    print(generated.folder)
    return DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
