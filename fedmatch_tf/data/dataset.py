"""What a dataset is: one record in one file of `datasets/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable

from fedmatch_tf.base.plugins import LAST
from fedmatch_tf.base.quiet import load_tensorflow
from fedmatch_tf.data.raw import Raw


@dataclass(frozen=True)
class Dataset:
    """All that is known of a dataset before it is read."""

    name: str  # in tasks: lc-biid-<name>
    title: str
    file_name: str  # in partitions: u_<file_name>_3.npy
    num_classes: int | None = None  # None: as many as the source has
    class_names: tuple[str, ...] = ()  # by label, where the source has no names; empty: labels' numbers
    sizes: tuple[int, int] | None = None  # training and test images; None: as many as the source has
    num_extra: int = 0  # images that may be there as well
    image_shape: tuple[int, ...] | None = None  # as published; None: they differ
    pads: bool = False  # images of 28x28 get a black frame of 32x32, which keeps every pixel

    files: tuple[str, ...] = ()  # files or folders in $FEDMATCH_DATA, the first one that is there
    loose: str | None = None  # pattern of files that may lie in $FEDMATCH_DATA itself
    keras_files: tuple[str, ...] = ()  # the same in Keras' cache
    elsewhere: tuple[tuple[Path, str], ...] = ()  # other places, and whose they are
    wanted: str | None = None  # what to put into $FEDMATCH_DATA; None: it is given by --source
    download: Callable[[], Any] | None = None  # into Keras' cache
    embedded: Callable[[], Raw] | None = None  # needs no file
    read: Callable[[Path], Raw] | None = None  # of a file or folder in a format of its own; None: `readers` knows it
    checksum: str | None = None  # `sources.content_checksum` of what is published, whatever file it comes in

    defaults: Mapping[str, Any] = field(default_factory=dict)  # of the settings of its tasks
    overrides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by scenario, profile, `semifl-ls`
    in_paper: bool = False
    place: int = LAST

    @property
    def num_images(self) -> int | None:
        """Training and test images together; None where only the source knows."""
        return sum(self.sizes) if self.sizes else None

    @property
    def given_by_source(self) -> bool:
        """Whether it is whatever --source says."""
        return self.wanted is None and self.embedded is None


def keras_download(name: str) -> Callable[[], Any]:
    """Keras' own download of that dataset, which checks its own checksums."""
    return lambda: getattr(load_tensorflow().keras.datasets, name).load_data()


LARGE = {"num_clients": 100, "num_rounds": 200, "num_test": 2000, "num_valid": 2000}
SMALL = {"num_clients": 10, "num_rounds": 100, "num_test": 200, "num_valid": 200}
# The server holds what ten clients of 5 labels per class would hold together.
FEW_LABELS = {"ls": {"labels_per_class": 50}}
