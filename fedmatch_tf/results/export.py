"""--work-type export: the trained model as a file or folder that needs nothing of this project."""

from __future__ import annotations

import contextlib
import io
import shutil
from pathlib import Path

from fedmatch_tf.base.atomic import replacing
from fedmatch_tf.config import ConfigError
from fedmatch_tf.results import models


def export(run: Path, to: Path) -> Path:
    """Writes a `.keras` file, or a SavedModel folder if the path has no ending; returns it."""
    if to.suffix not in (".keras", ""):
        raise ConfigError(f"--to: expected a path that ends in .keras, or a folder without ending; received {to}")
    if to.suffix and to.is_dir():
        raise ConfigError(f"--to: expected a file to write, received the folder {to}")
    if not to.suffix and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to: expected a new or empty folder for a SavedModel, received {to}, which has content")
    if to.name in ("", ".", ".."):
        raise ConfigError(f"--to: expected the name of a file or folder to write, received {to}")
    found = models.read(run)
    if to.suffix:
        content = models.keras_file(found)
        to.parent.mkdir(parents=True, exist_ok=True)
        with replacing(to) as file:
            file.write(content)
        return to
    model = models.plain(found)
    to.parent.mkdir(parents=True, exist_ok=True)
    partial = to.with_name(f".{to.name}.partial")
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # Keras tells how to load it
            model.export(str(partial))
        if to.exists():
            to.rmdir()
        partial.replace(to)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return to
