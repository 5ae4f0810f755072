"""The command line, as `python main.py ...`; what it does stands in fedmatch_tf/main.py, what papers have in study/."""

import sys
from collections.abc import Sequence

import study
from fedmatch_tf.main import main as run


def main(arguments: Sequence[str]) -> int:
    """Runs the command, with the study at hand; returns its exit code."""
    return run(arguments, study)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
