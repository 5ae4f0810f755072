"""Command lines one after the other in one process, so that TensorFlow is loaded once.

`python -m tests.command_server` reads one JSON list per line from stdin, a directory and the arguments of a command to
run there; it answers with one JSON list per line: exit code, stdout, stderr.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


class CommandServer:
    """The process, from outside. Started when it is first needed.

    Args:
        root: of the project that it runs.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> CommandServer:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._process is not None:
            self._process.communicate(timeout=60)  # closes its stdin, and so ends it

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """As if `python main.py` had been called with these arguments in that directory."""
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps([str(cwd), *arguments]) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        assert answer, f"the process that runs commands ended with {process.wait()}"
        code, out, errors = json.loads(answer)
        return subprocess.CompletedProcess(arguments, code, out, errors)

    def _start(self) -> subprocess.Popen[str]:
        clean = {name: value for name, value in os.environ.items() if name != "FEDMATCH_DATA"}
        clean.update({"PYTHONPATH": str(self._root), "MPLBACKEND": "Agg", "KERAS_HOME": "/nonexistent"})
        command = [sys.executable, "-m", "tests.command_server"]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self._root, env=clean, text=True, stdin=pipe, stdout=pipe)


def main() -> None:
    from main import main as command

    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        directory, *arguments = json.loads(line)
        os.chdir(directory)
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            try:
                code = command(arguments)
            except SystemExit as stop:
                code = int(stop.code or 0)
        answers.write(json.dumps([code, out.getvalue(), errors.getvalue()]) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
