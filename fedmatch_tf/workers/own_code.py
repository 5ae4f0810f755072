"""A user's own code: the network's module, found from the working directory wherever a worker runs, and his script."""

from __future__ import annotations

import ast
import inspect
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedmatch_tf.base import temporary
from fedmatch_tf.base.errors import in_one_line
from fedmatch_tf.base.plugins import is_own_network
from fedmatch_tf.config import ConfigError


def check_script() -> None:
    """Raises ConfigError if worker processes would run the user's script again: they load it, as they are spawned."""
    script = getattr(sys.modules["__main__"], "__file__", None)
    if script is None:  # a notebook, or typed in: workers load nothing
        return
    if script == "<stdin>":
        raise ConfigError(
            "expected a script in a file, received one on standard input, which worker processes can't load. Save it, "
            'use `python -c` or a notebook, or use backend="inline"'
        )
    frame = inspect.currentframe()
    while frame is not None and (frame.f_globals.get("__name__"), frame.f_code.co_name) != ("__main__", "<module>"):
        frame = frame.f_back
    if frame is None:
        return
    try:
        tree = ast.parse(Path(frame.f_code.co_filename).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):  # typed in, or a notebook: nothing that a worker could load
        return
    guards = [part for part in ast.walk(tree) if isinstance(part, ast.If) and "__name__" in ast.unparse(part.test)]
    line = frame.f_lineno
    inside = any(guard.lineno <= line <= (guard.end_lineno or line) for guard in guards)
    behind = any(guard.lineno <= line and "!=" in ast.unparse(guard.test) for guard in guards)  # workers end there
    if not inside and not behind:
        raise ConfigError(
            f"{frame.f_code.co_filename}, line {frame.f_lineno}: expected the training inside "
            f'`if __name__ == "__main__":`, because worker processes load the script again and would train, too. '
            f'Put it there, or use backend="inline"'
        )


def check(arch: str) -> None:
    """Raises ConfigError unless the network's module can be imported; nothing is imported but its package."""
    if is_own_network(arch):
        _spec(arch.split(":")[0])


def file_of(arch: str) -> Path | None:
    """The file that the network's function is in; None for a network of ours, or in no file."""
    path = Path(_spec(arch.split(":")[0]).origin or "") if is_own_network(arch) else Path()
    return path if path.is_file() else None


def _spec(module: str) -> Any:
    """Where the module is. The working directory is on the path of Python from now on; spawned workers inherit it."""
    here = os.getcwd()  # noqa: PTH109, sys.path has texts
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
    if module.endswith(".py"):
        raise ConfigError(f"--arch: expected a module's name, received {module}; did you mean {module[:-3]}?")
    try:
        spec = find_spec(module)
    except (Exception, SystemExit) as error:  # a package runs its own code when it is imported
        raise ConfigError(f"--arch: {module} can't be imported: {in_one_line(error)}") from error
    if spec is None:
        raise ConfigError(
            f"--arch: expected a module {module}, which the network is in, found none in the working directory {here}. "
            f"Use the folder that has it"
        )
    return spec


@contextmanager
def as_packages(arch: str) -> Iterator[list[str]]:
    """Folders that bring the network's code to other machines, as Ray takes it: a package as it is.

    A module that is a single file is made a package of that name.
    """
    if not is_own_network(arch):
        yield []
        return
    top = arch.split(":")[0].split(".")[0]
    spec = _spec(top)
    if spec.submodule_search_locations:
        yield [str(next(iter(spec.submodule_search_locations)))]
        return
    with temporary.new_folder("code-") as folder:
        (Path(folder) / top).mkdir()
        shutil.copy(spec.origin, Path(folder) / top / "__init__.py")
        yield [str(Path(folder) / top)]
