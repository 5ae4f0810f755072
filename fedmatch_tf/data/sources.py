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

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.quiet import load_tensorflow
from fedmatch_tf.data import readers
from fedmatch_tf.data.raw import Progress, Raw, silent

DEBIAN_FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")

# sha256 of images and labels as published (see `content_checksum`), whatever file they come in.
KNOWN_CHECKSUMS = {
    "c10": "b16dd405789d423f76919f61e103c3199c7b2dd0c7da8b27d752a9ab9c80dba9",
    "fmnist": "934f3500fd399dd42ff58ebc4bc3c558c3e497052c8674425a66b408e22fd6d2",
}

FILE_NAMES = {
    "c10": "cifar_10",
    "c100": "cifar_100",
    "svhn": "svhn",
    "cinic10": "cinic_10",
    "fmnist": "fashion_mnist",
    "covid": "covid",
    "digits": "digits",
    "own": "own",
}

_C100 = """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can
    castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin
    elephant flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster
    man maple_tree motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck
    pine_tree plain plate poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk
    skyscraper snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger
    tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CLASS_NAMES = {
    "c100": tuple(_C100.split()),
    "svhn": tuple(str(digit) for digit in range(10)),
    "c10": ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    "fmnist": ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"),
}


@dataclass(frozen=True)
class Source:
    """A dataset, ready to be dealt out."""

    x: np.ndarray  # uint8 [n, size, size, 3]
    y: np.ndarray  # int64 [n], every class 0 .. C-1 present
    class_names: tuple[str, ...]
    origin: str
    checksum: str  # of images and labels as read, before they are resized
    official: bool | None  # whether they are the published ones; None where no checksum is known
    groups: np.ndarray | None  # int64 [n], equal for exact copies; None where copies may fall on two sides
    num_test: int = 0  # the last ones, which the dataset itself has as its test set


class _Place:
    """A place where a dataset may be, and whether its files are the user's own."""

    def __init__(self, path: Path, what: str, own: bool) -> None:
        self.path, self.what, self.own = path, what, own


def load_source(dataset: str, source: str | None = None, image_size: int = 32, progress: Progress = silent) -> Source:
    """The dataset from `source` if given, else from the first place that has it, else downloaded."""
    if dataset == "digits" and source is None:
        return _finished(dataset, read_digits(), image_size, False, progress)
    if source is not None:
        raw = readers.read(Path(source), image_size, progress, _is_framed(dataset), IMAGES.get(dataset, 0))
        return _finished(dataset, raw, image_size, True, progress)
    remarks: list[str] = []
    for place in places(dataset):
        remark = "nothing there"
        if place.path.exists():
            try:
                return _from_place(dataset, place, image_size, progress)
            except DataError as error:
                if place.own:
                    raise
                remark = str(error)  # somebody else's damaged copy: look on
        remarks.append(f"{place.path} ({place.what}): {remark}")
    return _finished(dataset, _download(dataset, image_size, progress, remarks), image_size, False, progress)


def _from_place(dataset: str, place: _Place, image_size: int, progress: Progress) -> Source:
    raw = readers.read(place.path, image_size, progress, images=IMAGES.get(dataset, 0))
    if dataset == "covid" and len(raw.class_names) != 3:
        raise DataError(
            f"{place.path}: expected 3 class folders of X-rays, found {', '.join(raw.class_names)}. "
            f"For other classes give the folder by --source"
        )
    return _finished(dataset, raw, image_size, place.own, progress)


IMAGES = {"svhn": 630_420, "cinic10": 270_000}  # of datasets that are larger than usual


def places(dataset: str) -> list[_Place]:
    """Where the dataset is looked up, in order."""
    found: list[_Place] = []
    if os.environ.get("FEDMATCH_DATA"):
        root = Path(os.environ["FEDMATCH_DATA"])
        found += [_Place(root / name, "$FEDMATCH_DATA", True) for name in _FEDMATCH_DATA[dataset]]
        if dataset == "fmnist" and any(root.glob("*-idx?-ubyte*")):
            found.append(_Place(root, "$FEDMATCH_DATA", True))
    home = os.path.expanduser("~/.keras")  # noqa: PTH111, Path's raises where there is no home
    keras = Path(os.environ.get("KERAS_HOME") or home) / "datasets"
    found += [_Place(keras / name, "Keras' cache", False) for name in _KERAS_CACHE[dataset]]
    if dataset == "fmnist":
        found.append(_Place(DEBIAN_FASHION_MNIST, "Debian's dataset-fashion-mnist", False))
    return found


_FEDMATCH_DATA: dict[str, tuple[str, ...]] = {
    "c10": (
        "cifar10.npz",
        "cifar-10-batches-py",
        "cifar-10-batches-bin",
        "cifar-10-python.tar.gz",
        "cifar-10-binary.tar.gz",
    ),
    "c100": (
        "cifar100.npz",
        "cifar-100-python",
        "cifar-100-binary",
        "cifar-100-python.tar.gz",
        "cifar-100-binary.tar.gz",
    ),
    "svhn": ("svhn", "SVHN"),
    "cinic10": ("cinic10", "CINIC-10", "cinic-10"),
    "fmnist": ("fashion_mnist", "fashion_mnist.npz"),
    "covid": ("covid",),
    "digits": (),
    "own": (),
}
_KERAS_CACHE: dict[str, tuple[str, ...]] = {
    "c10": ("cifar-10-batches-py", "cifar-10-batches-py-target/cifar-10-batches-py", "cifar-10-batches-py.tar.gz"),
    "c100": ("cifar-100-python", "cifar-100-python-target/cifar-100-python", "cifar-100-python.tar.gz"),
    "svhn": (),
    "cinic10": (),
    "fmnist": ("fashion-mnist",),
    "covid": (),
    "digits": (),
    "own": (),
}


def _download(dataset: str, image_size: int, progress: Progress, remarks: Sequence[str]) -> Raw:
    """The dataset by Keras' downloader, which checks its own checksums; an error says where we looked before."""
    cause = "there is no download for it"
    if dataset in _KERAS_NAMES:
        list(progress([], 0, f"Downloading {FILE_NAMES[dataset]} with Keras"))
        patience = socket.getdefaulttimeout()
        socket.setdefaulttimeout(60)
        try:
            datasets = load_tensorflow().keras.datasets
            with contextlib.redirect_stdout(io.StringIO()):  # its own progress display
                getattr(datasets, _KERAS_NAMES[dataset]).load_data()
            for place in places(dataset):
                if place.path.exists():
                    return readers.read(place.path, image_size, progress)
        except Exception as error:  # Keras raises plain Exception when it can't reach the address
            cause = f"the download failed ({error})"
        finally:
            socket.setdefaulttimeout(patience)
    looked = "".join(f"\n  {remark}" for remark in remarks) or "\n  nowhere"
    raise DataError(
        f"expected the dataset {dataset}, and {cause}. Looked at:{looked}\n"
        f"Give a file or folder by --source, or set FEDMATCH_DATA to a folder with {_WHAT_TO_PUT[dataset]}"
    )


_KERAS_NAMES = {"c10": "cifar10", "c100": "cifar100", "fmnist": "fashion_mnist"}
_WHAT_TO_PUT = {
    "c100": "CIFAR-100's python or binary files (cifar-100-python/, or the tar.gz), or cifar100.npz",
    "svhn": "svhn/ and train_32x32.mat, test_32x32.mat and, if wanted, extra_32x32.mat in it",
    "cinic10": "cinic10/ and CINIC-10's folders train, valid and test, each with its class folders",
    "c10": "cifar10.npz (x_train, y_train, x_test, y_test) or CIFAR-10's python or binary batches",
    "fmnist": "fashion_mnist/ and its four IDX files, or install Debian's dataset-fashion-mnist",
    "covid": "covid/ and its class folders COVID-19, NORMAL and Viral Pneumonia (COVID-19 Radiography Database)",
}


def read_digits() -> Raw:
    """scikit-learn's 1,797 digits, each pixel enlarged to 4x4."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = np.round(digits.images * (255 / 16)).astype(np.uint8)  # they are stored as 0 .. 16
    return Raw(grey.repeat(4, axis=1).repeat(4, axis=2), digits.target.astype(np.int64), "scikit-learn's digits")


def _finished(dataset: str, raw: Raw, image_size: int, own: bool, progress: Progress) -> Source:
    """The dataset checked and its images brought to image_size x image_size x 3."""
    check_labels(raw)
    checksum = content_checksum(raw.x, raw.y)
    published = KNOWN_CHECKSUMS.get(dataset)
    official = raw.published if published is None else checksum == published
    if official is False and not own:
        identified = "by the checksums of its files" if published is None else f"sha256 of its content {published}"
        raise DataError(
            f"expected the published {FILE_NAMES[dataset]} ({identified}), received content of sha256 {checksum}: "
            f"the {raw.origin} are damaged. Delete them, or give another copy by --source"
        )
    num_classes = int(raw.y.max()) + 1
    names = raw.class_names or CLASS_NAMES.get(dataset, ())
    if len(names) != num_classes:
        names = tuple(str(label) for label in range(num_classes))
    x = fit_images(_three_channels(raw.x), image_size, _is_framed(dataset), progress)
    groups = copies(x) if raw.origin == "image folder" else None
    return Source(x, raw.y, names, raw.origin, checksum, official, groups, raw.num_test)


def read_labelled(
    source: Path, dataset: str, image_size: int, class_names: Sequence[str], progress: Progress = silent
) -> tuple[np.ndarray, np.ndarray]:
    """(images uint8 [n, size, size, 3], labels [n]) of a source, for a model of these classes.

    Class folders are matched by name, and a source may have fewer classes than the model; without names, labels are
    the model's class numbers.
    """
    raw = readers.read(source, image_size, progress, _is_framed(dataset), IMAGES.get(dataset, 0))
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
    return fit_images(_three_channels(raw.x), image_size, _is_framed(dataset), progress), y


def read_image_like(dataset: str, file: Path, image_size: int) -> np.ndarray:
    """An image file as the images of this dataset are given to a network: uint8 [image_size, image_size, 3]."""
    return readers.read_image(file, image_size, pad=_is_framed(dataset))


def _is_framed(dataset: str) -> bool:
    """Whether images of 28x28 get a frame rather than being enlarged."""
    return dataset == "fmnist"


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
