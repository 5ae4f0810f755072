"""Command lines one after the other in one process, so that TensorFlow is loaded once.

Reads one JSON list of arguments per line from stdin; answers with one JSON object per line.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys


def main() -> None:
    from main import main as command

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                code = command(json.loads(line))
            except SystemExit as stop:
                code = int(stop.code or 0)
        answers.write(json.dumps({"code": code, "out": out.getvalue(), "errors": errors.getvalue()}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
