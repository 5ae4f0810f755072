"""--work-type export: the trained model as a file or folder that needs nothing of this project."""

from __future__ import annotations

import contextlib
import errno
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable

from fedmatch_tf.base.atomic import writing_to
from fedmatch_tf.base.quiet import load_tensorflow
from fedmatch_tf.config import ConfigError
from fedmatch_tf.networks import files
from fedmatch_tf.results import models

_FILES: dict[str, Callable[[Any], bytes]] = {".keras": files.keras_file, ".h5": files.h5_file}


def export(run: Path, to: Path) -> Path:
    """Writes a `.keras` or `.h5` file, or a SavedModel folder if the path has no ending; returns it."""
    if to.suffix not in (*_FILES, ""):
        raise ConfigError(
            f"--to: expected a path that ends in .keras or .h5, or a folder without ending; received {to}"
        )
    if not to.suffix and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to: expected a new or empty folder for a SavedModel, received {to}, which has content")
    if to.name in ("", ".", ".."):
        raise ConfigError(f"--to: expected the name of a file or folder to write, received {to}")
    model = models.plain(models.read(run))
    if to.suffix:
        content = _FILES[to.suffix](model)
        if to.suffix == ".keras" and (foreign := files.only_in_keras_2(content)):
            raise ConfigError(
                f"--to: Keras 3 could not open {to.name}, because of {', '.join(foreign)} in the network. Give a name "
                f"that ends in .h5 for Keras 2, or a folder for TensorFlow"
            )
        with writing_to(to, "--to", content[:4]) as file:
            file.write(content)
    else:
        _write_folder(model, to)
    return to


def _write_folder(model: Any, to: Path) -> None:
    """Writes a SavedModel, whole or not at all.

    TensorFlow writes it elsewhere: it knows no names that are not UTF-8, and has other words for a full disk.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".export-", dir=to.parent))
    try:
        with tempfile.TemporaryDirectory() as folder:
            try:
                with contextlib.redirect_stdout(io.StringIO()):  # Keras tells how to load it
                    model.export(f"{folder}/model")
            except load_tensorflow().errors.OpError as error:
                raise OSError(errno.EIO, f"TensorFlow could not write the model ({error.message})", folder) from error
            for path in sorted(Path(folder).rglob("*")):  # a folder before what is in it
                copy = partial / path.relative_to(folder)
                copy.mkdir() if path.is_dir() else shutil.copyfile(path, copy)
        (partial / "model").replace(to)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
