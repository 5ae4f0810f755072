"""Raw datasets: where each is looked up, how it is read and checked, and the images it becomes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data import readers
from fedmatch_tf.data.dataset import Dataset
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.raw import Progress, Raw, silent


@dataclass(frozen=True)
class Source:
    """A dataset, ready to be dealt out."""

    x: np.ndarray  # uint8 [n, size, size, 3], or vectors float32 [n, d]
    y: np.ndarray  # int64 [n], every class 0 .. C-1 present
    class_names: tuple[str, ...]
    origin: str
    checksum: str  # of images and labels as read, before they are resized
    official: bool | None  # whether they are the published ones; None where no checksum is known
    groups: np.ndarray | None  # int64 [n], equal for exact copies; None where copies may fall on two sides
    num_test: int = 0  # the last ones, which the dataset itself has as its test set
    skipped: tuple[str, ...] = ()  # files that could not be read and were left out


class Place(NamedTuple):
    """A place where a dataset may be."""

    path: Path
    what: str
    is_users: bool  # its files are the user's own


def load_source(
    dataset: str,
    source: str | None = None,
    image_size: int = 32,
    progress: Progress = silent,
    skip_broken: bool = False,
) -> Source:
    """The dataset from `source` if given, else from the first place that has it, else downloaded.

    Args:
        skip_broken: leave out images that can't be read.
    """
    record = DATASETS[dataset]
    if source is not None:
        raw = _read(record, Path(source), image_size, progress, skip_broken)
        return _finished(record, raw, image_size, True, progress)
    if record.embedded is not None:
        return _finished(record, record.embedded(), image_size, False, progress)
    remarks: list[str] = []
    for place in places(dataset):
        remark = "nothing there"
        if place.path.exists():
            try:
                return _from_place(record, place, image_size, progress, skip_broken)
            except DataError as error:
                if place.is_users:
                    raise
                remark = str(error)  # somebody else's damaged copy: look on
        remarks.append(f"{place.path} ({place.what}): {remark}")
    return _finished(record, _download(record, image_size, progress, remarks), image_size, False, progress)


def _read(dataset: Dataset, path: Path, image_size: int, progress: Progress, skip_broken: bool = False) -> Raw:
    if dataset.read is not None:
        return dataset.read(path)
    most = (dataset.num_images or 0) + dataset.num_extra
    return readers.read(path, image_size, progress, dataset.pads, most, skip_broken)


def _from_place(dataset: Dataset, place: Place, image_size: int, progress: Progress, skip_broken: bool) -> Source:
    raw = _read(dataset, place.path, image_size, progress, skip_broken)
    if raw.class_names and dataset.num_classes not in (None, len(raw.class_names)):
        raise DataError(
            f"{place.path}: expected {dataset.num_classes} class folders of {dataset.title}, found "
            f"{', '.join(raw.class_names)}. For other classes give the folder by --source"
        )
    return _finished(dataset, raw, image_size, place.is_users, progress)


def places(dataset: str) -> list[Place]:
    """Where the dataset is looked up, in order."""
    record, found = DATASETS[dataset], list[Place]()
    if os.environ.get("FEDMATCH_DATA"):
        root = Path(os.environ["FEDMATCH_DATA"])
        found += [Place(root / name, "$FEDMATCH_DATA", True) for name in record.files]
        if record.loose is not None and any(root.glob(record.loose)):
            found.append(Place(root, "$FEDMATCH_DATA", True))
    home = os.path.expanduser("~/.keras")  # noqa: PTH111, Path's raises where there is no home
    keras = Path(os.environ.get("KERAS_HOME") or home) / "datasets"
    found += [Place(keras / name, "Keras' cache", False) for name in record.keras_files]
    return found + [Place(path, whose, False) for path, whose in record.elsewhere]


def _download(dataset: Dataset, image_size: int, progress: Progress, remarks: Sequence[str]) -> Raw:
    """The dataset by its downloader; an error says where we looked before."""
    cause = "there is no download for it"
    if dataset.download is not None:
        list(progress([], 0, f"Downloading {dataset.title}"))
        patience = socket.getdefaulttimeout()
        socket.setdefaulttimeout(60)
        try:
            with contextlib.redirect_stdout(io.StringIO()):  # its own progress display
                dataset.download()
            for place in places(dataset.name):
                if place.path.exists():
                    return _read(dataset, place.path, image_size, progress)
        except Exception as error:  # Keras raises plain Exception when it can't reach the address
            cause = f"the download failed ({error})"
        finally:
            socket.setdefaulttimeout(patience)
    looked = "".join(f"\n  {remark}" for remark in remarks) or "\n  nowhere"
    folder = f", or set FEDMATCH_DATA to a folder with {dataset.wanted}" if dataset.wanted else ""
    raise DataError(
        f"expected the dataset {dataset.name}, and {cause}. Looked at:{looked}\n"
        f"Give a file or folder by --source{folder}"
    )


def _finished(dataset: Dataset, raw: Raw, image_size: int, is_users: bool, progress: Progress) -> Source:
    """The dataset checked and its images brought to image_size x image_size x 3."""
    check_labels(raw)
    checksum = content_checksum(raw.x, raw.y)
    published = dataset.checksum
    official = raw.published if published is None else checksum == published
    if official is False and not is_users:
        identified = "by the checksums of its files" if published is None else f"sha256 of its content {published}"
        raise DataError(
            f"expected the published {dataset.title} ({identified}), received content of sha256 {checksum}: "
            f"the {raw.origin} are damaged. Delete them, or give another copy by --source"
        )
    num_classes = int(raw.y.max()) + 1
    names = raw.class_names or dataset.class_names
    if len(names) != num_classes:
        names = tuple(str(label) for label in range(num_classes))
    x = _inputs(raw.x, dataset, image_size, progress)
    groups = copies(x) if raw.origin == "image folder" else None
    return Source(x, raw.y, names, raw.origin, checksum, official, groups, raw.num_test, raw.skipped)


def read_labelled(
    source: Path, dataset: str, image_size: int, class_names: Sequence[str], progress: Progress = silent
) -> tuple[np.ndarray, np.ndarray]:
    """(images uint8 [n, size, size, 3], or vectors, and labels [n]) of a source, for a model of these classes.

    Class folders are matched by name, and a source may have fewer classes than the model; without names, labels are
    the model's class numbers.
    """
    raw = _read(DATASETS[dataset], source, image_size, progress)
    if len(raw.y) == 0:
        raise DataError(f"{source}: expected images, received none")
    if raw.class_names:
        unknown = [name for name in raw.class_names if name not in class_names]
        if unknown:
            raise DataError(f"{source}: expected folders of the classes {', '.join(class_names)}; found {unknown[0]}")
        y = np.array([class_names.index(name) for name in raw.class_names])[raw.y]
    else:
        y = raw.y
    if y.min() < 0 or y.max() >= len(class_names):
        raise DataError(f"{source}: expected labels 0 to {len(class_names) - 1}, received {y.min()} to {y.max()}")
    return _inputs(raw.x, DATASETS[dataset], image_size, progress), y


def read_image_like(dataset: str, file: Path, image_size: int) -> np.ndarray:
    """An image file as the images of this dataset are given to a network: uint8 [image_size, image_size, 3]."""
    return readers.read_image(file, image_size, pad=DATASETS[dataset].pads)


def check_labels(raw: Raw) -> None:
    """Raises unless there are images, and labels 0 .. C-1 that all occur."""
    if len(raw.y) == 0:
        raise DataError("expected images, received none")
    found = np.unique(raw.y)
    if found[0] < 0 or len(found) != found[-1] + 1:
        shown = ", ".join(str(label) for label in found[:12]) + (", ..." if len(found) > 12 else "")
        raise DataError(
            f"expected labels 0 .. C-1 with at least one image each, received labels {shown}. Renumber the classes"
        )
    if len(found) < 2:
        raise DataError("expected at least two classes, received one")


def content_checksum(x: np.ndarray, y: np.ndarray) -> str:
    """sha256 over the images' shape and bytes and the labels as int64."""
    digest = hashlib.sha256(repr(tuple(x.shape)).encode())
    digest.update(np.ascontiguousarray(x).data)
    digest.update(np.ascontiguousarray(y, "<i8").data)
    return digest.hexdigest()


def copies(x: np.ndarray) -> np.ndarray:
    """A number for each image, the same for exact copies."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(hashlib.sha256(image.tobytes()).digest(), len(numbers)) for image in x])


def _inputs(x: np.ndarray, dataset: Dataset, image_size: int, progress: Progress) -> np.ndarray:
    """What a network is given: images of this size, or vectors as they are."""
    if x.ndim == 2 and not dataset.given_by_source:
        raise DataError(
            f"expected the images of {dataset.title}, received vectors {list(x.shape)}; use the dataset own"
        )
    return x if x.ndim == 2 else fit_images(_three_channels(x), image_size, dataset.pads, progress)


def _three_channels(x: np.ndarray) -> np.ndarray:
    if x.ndim == 3:
        x = x[..., np.newaxis]
    if x.shape[-1] not in (1, 3):
        raise DataError(f"expected images of 1 or 3 channels, received {list(x.shape)}")
    return x if x.shape[-1] == 3 else x.repeat(3, axis=-1)


def fit_images(x: np.ndarray, image_size: int, pad: bool, progress: Progress = silent) -> np.ndarray:
    """Images as [n, image_size, image_size, 3]: unchanged if they are, else resized bilinearly.

    Args:
        pad: put 28x28 images into a black frame of 32x32 first, which keeps every pixel.
    """
    if pad and x.shape[1:3] == (28, 28):
        x = np.pad(x, ((0, 0), (2, 2), (2, 2), (0, 0)))
    if x.shape[1:3] == (image_size, image_size):
        return x
    from PIL import Image

    images = progress(x, len(x), f"Resizing to {image_size}x{image_size}")
    return np.stack([np.asarray(readers.resized(Image.fromarray(image), image_size)) for image in images])
