"""Container formats of image datasets: each reader returns images and labels as stored, train before test."""

from __future__ import annotations

import math
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Callable

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError, shortened
from fedmatch_tf.base.untrusted import StoredArray
from fedmatch_tf.data import cifar, svhn
from fedmatch_tf.data.raw import Progress, Raw, check_complete, silent

if TYPE_CHECKING:
    from PIL.Image import Image

IDX_PAIRS = (
    ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
)
IMAGE_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF")  # nothing else is decoded, whatever a file is called
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff")


def read(
    path: Path,
    image_size: int,
    progress: Progress = silent,
    pad: bool = False,
    images: int = 0,
    skip_broken: bool = False,
) -> Raw:
    """Images and labels of a file or folder in any format we know, told apart by names inside it.

    Args:
        pad: put image files of 28x28 into a black frame of 32x32 first.
        images: how many are expected at most, if more than usual; what needs much more memory than those is refused.
        skip_broken: leave out images that can't be read.
    """
    most = most_bytes(image_size, images)
    if not path.exists():
        raise DataError(f"{path}: expected a file or folder, found nothing there")
    try:
        if path.is_dir():
            return _read_folder(path, partial(_read_images, image_size, progress, pad, most, skip_broken), most)
        (raw,) = [_read_file(file, most) for file in progress([path], 0, f"Reading {path.name}")]
        return raw
    except DataError as error:
        raise DataError(f"{path}: {error}") from error
    except (OSError, EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, RecursionError) as error:
        raise DataError(f"{path}: damaged or unreadable ({type(error).__name__}: {error})") from error


USUAL = 100_000  # images of a dataset
SMALLEST = 16  # width and height for which there is room: datasets of 32x32 can be made smaller still
ROOM = 8  # times what they take at the size that is wanted: they may be stored larger
CIFAR_BYTES = 4096  # of an image with its labels and the name of its file


def most_bytes(image_size: int, images: int = 0) -> int:
    """What is read into memory at most for so many images at this size."""
    return ROOM * max(images, USUAL) * 3 * max(image_size, SMALLEST) ** 2


def _read_file(path: Path, most: int) -> Raw:
    if path.suffix == ".npz":
        return read_npz(path, most)
    if path.name.endswith((".tar.gz", ".tgz", ".tar")):
        return cifar.read(untrusted.tar_members(path, cifar.FILES, min(most, USUAL * CIFAR_BYTES)))
    if path.suffix == ".mat":
        return svhn.read(_paths(path.parent, svhn.FILES))
    raise DataError("expected .npz, .tar.gz, .mat or a folder")


def _read_folder(path: Path, read_images: ReadImages, most: int) -> Raw:
    for folder in (path, *(path / name for name in cifar.FOLDERS)):
        paths = _paths(folder, cifar.FILES)
        if paths:
            paths = {name: paths[name] for name in cifar.format_of(paths).files if name in paths}
            return cifar.read(_contents(paths, min(most, USUAL * CIFAR_BYTES)))
    names = {name.name for name in path.iterdir()}
    if svhn.FILES[0] in names:
        return svhn.read(_paths(path, svhn.FILES))
    if {"train", "test"} <= names and any(child.is_dir() for child in (path / "train").glob("*")):
        return read_split_folders(path, read_images)
    if any(name in names or f"{name}.gz" in names for pair in IDX_PAIRS for name in pair):
        return read_idx(path, most)
    return read_image_folder(path, read_images)


def _paths(folder: Path, names: Sequence[str]) -> dict[str, Path]:
    """The files of these names that the folder has; a folder of such a name is something else."""
    return {name: folder / name for name in names if (folder / name).exists() and not (folder / name).is_dir()}


def _contents(paths: Mapping[str, Path], most: int) -> Iterator[tuple[str, bytes]]:
    """(name, content) of files that have so many bytes in all, and each half of it."""
    untrusted.check_size("its files", sum(path.stat().st_size for path in paths.values()), most)
    for name, path in paths.items():
        yield name, untrusted.read_bytes(path, most // 2)


def read_npz(path: Path, most: int) -> Raw:
    """Arrays x_train, y_train and, if there, x_test, y_test."""
    try:
        with untrusted.open_regular(path) as file, untrusted.stored_arrays(file, most, _ARRAYS) as (arrays, names):
            return _raw_of(arrays, names)
    except (OSError, DataError):
        raise
    except Exception as error:  # NumPy and zipfile raise many kinds for a damaged file
        raise DataError(f"expected an .npz of plain arrays ({type(error).__name__}: {error})") from error


_ARRAYS = ("x_train", "y_train", "x_test", "y_test")


def _raw_of(arrays: Mapping[str, StoredArray], names: Sequence[str]) -> Raw:
    pairs = [("x_train", "y_train")]
    if "x_test" in arrays or "y_test" in arrays:
        pairs.append(("x_test", "y_test"))
    expected = [name for pair in pairs for name in pair]
    check_complete(arrays, expected, f"arrays {', '.join(_ARRAYS)}, found {names}")
    for x, y in pairs:
        _check_pair(arrays[x], arrays[y], x, y)
    images, begin = _room_for([arrays[x].shape for x, _ in pairs]), 0
    for x, _ in pairs:
        rows = slice(begin, begin + arrays[x].shape[0])
        if images.dtype == np.uint8:
            arrays[x].read_into(images[rows])
        else:
            with np.errstate(over="ignore"):
                images[rows] = arrays[x].read()
            if not np.isfinite(images[rows]).all():
                raise DataError(f"{x}: expected finite vectors, as float32 has them, received NaN or infinity")
        begin = rows.stop
    labels = np.concatenate([arrays[y].read().reshape(-1) for _, y in pairs]).astype(np.int64)
    return Raw(images, labels, "npz", num_test=arrays["x_test"].shape[0] if len(pairs) == 2 else 0)


def _check_pair(x: StoredArray, y: StoredArray, x_name: str, y_name: str) -> None:
    is_vectors = len(x.shape) == 2 and x.dtype.kind in "fiu"
    if (not is_vectors and (x.dtype != np.uint8 or len(x.shape) not in (3, 4))) or 0 in x.shape[1:]:
        raise DataError(
            f"{x_name}: expected uint8 [n,h,w] or [n,h,w,channels], or vectors [n,d], received {x.dtype} "
            f"{list(x.shape)}. Scale images to 0..255 and convert them to uint8"
        )
    if y.dtype.kind not in "iu" or len(y.shape) not in (1, 2) or math.prod(y.shape) != y.shape[0]:
        raise DataError(
            f"{y_name}: expected whole numbers [n] or [n,1], received {y.dtype} {list(y.shape)}. "
            f"Turn one-hot labels into class numbers"
        )
    if x.shape[0] != y.shape[0]:
        raise DataError(f"expected one label per image, received {x.shape[0]} in {x_name}, {y.shape[0]} in {y_name}")


def _room_for(shapes: Sequence[tuple[int, ...]]) -> np.ndarray:
    """An array for images uint8, or vectors float32, of these shapes, one after the other."""
    if len({shape[1:] for shape in shapes}) > 1:
        words = " and ".join(str(list(shape)) for shape in shapes)
        raise DataError(f"expected train and test images of one shape, received {words}")
    kind = np.float32 if len(shapes[0]) == 2 else np.uint8
    return np.empty((sum(shape[0] for shape in shapes), *shapes[0][1:]), kind)


def read_idx(folder: Path, most: int) -> Raw:
    """The four IDX files of MNIST's format, gzipped or not."""
    names = [name for pair in IDX_PAIRS for name in pair]
    with ExitStack() as stack:
        files = [stack.enter_context(_idx_file(folder, name)) for name in names]
        shapes = [_idx_shape(file, name, num_dims) for file, name, num_dims in zip(files, names, (3, 1, 3, 1))]
        num_train, num_test = shapes[0][0], shapes[2][0]
        for images, labels in ((num_train, shapes[1][0]), (num_test, shapes[3][0])):
            if images != labels:
                raise DataError(f"expected one label per image, received {images} images, {labels} labels")
        untrusted.check_size("its images", sum(map(math.prod, shapes)), most // 3)  # each pixel becomes three
        x, y = _room_for(shapes[::2]), np.empty(num_train + num_test, np.uint8)
        for file, name, array in zip(files, names, (x[:num_train], y[:num_train], x[num_train:], y[num_train:])):
            try:
                untrusted.fill(file, array)
                rest = file.read(1)
            except DataError:
                rest = None
            if rest != b"":
                found = "more" if rest else "less"
                raise DataError(f"{name}: expected {array.size} bytes for shape {list(array.shape)}, has {found}")
    return Raw(x, y.astype(np.int64), "IDX files", num_test=num_test)


def _idx_file(folder: Path, name: str) -> AbstractContextManager[IO[bytes]]:
    found = [path for path in (folder / name, folder / f"{name}.gz") if path.exists()]
    if not found:
        raise DataError(f"expected {name} or {name}.gz, found neither")
    return untrusted.open_unpacked(found[0])


def _idx_shape(file: IO[bytes], name: str, num_dims: int) -> tuple[int, ...]:
    header = file.read(4 + 4 * num_dims)
    if len(header) < 4 + 4 * num_dims or header[:4] != bytes((0, 0, 8, num_dims)):
        raise DataError(f"{name}: expected an IDX file of bytes with {num_dims} dimensions")
    return struct.unpack(f">{num_dims}I", header[4:])


def read_image_folder(folder: Path, read_images: ReadImages) -> Raw:
    """One class a sub-folder (its images in it, or in its `images` folder), classes and files in order of name."""
    return read_images([_classes_in(folder)])


def _classes_in(folder: Path) -> dict[str, list[Path]]:
    """The images of each class."""
    classes = {}
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.name.startswith("."):
            classes[child.name] = _images_of_class(child)
    if len(classes) < 2:
        raise DataError(
            "expected one of: CIFAR, SVHN or IDX files, or at least two sub-folders of images "
            f"({', '.join(IMAGE_SUFFIXES)}), one for each class; found {len(classes)} such sub-folders"
        )
    return classes


def _read_images(
    image_size: int,
    progress: Progress,
    pad: bool,
    most: int,
    skip_broken: bool,
    parts: Sequence[Mapping[str, Sequence[Path]]],
) -> Raw:
    """The images of one part after the other; the last of several is the test set."""
    files = [
        (file, label, part)
        for part, classes in enumerate(parts)
        for label, images in enumerate(classes.values())
        for file in images
    ]
    untrusted.check_size(f"{len(files):,} images at {image_size}x{image_size}", len(files) * image_size**2 * 3, most)
    x, readable, errors = np.empty((len(files), image_size, image_size, 3), np.uint8), list[tuple[int, int]](), []
    for file, label, part in progress(files, len(files), "Reading images"):
        try:
            x[len(readable)] = read_image(file, image_size, pad)
            readable.append((label, part))
        except DataError as error:
            errors.append((f"{file.parent.name}/{file.name}", f"\n  {shortened(str(error), _LINE)}"))
    if errors and not skip_broken:
        more = f"\n  and {len(errors) - _MOST_NAMED:,} more" if len(errors) > _MOST_NAMED else ""
        raise DataError(
            f"{len(errors):,} of {len(files):,} images can't be read. Repair or remove them; to train without them "
            f"give --skip-broken:{''.join(text for _, text in errors[:_MOST_NAMED])}{more}"
        )
    y = np.array([label for label, _ in readable], np.int64)
    num_test = sum(part == len(parts) - 1 for _, part in readable) if len(parts) > 1 else 0
    skipped = tuple(name for name, _ in errors)
    return Raw(x[: len(y)], y, "image folder", tuple(parts[0]), num_test=num_test, skipped=skipped)


ReadImages = Callable[[Sequence[Mapping[str, Sequence[Path]]]], Raw]
_MOST_NAMED, _LINE = 20, 150  # images that can't be read, and characters of what is said of each


def read_split_folders(folder: Path, read_images: ReadImages) -> Raw:
    """`train`, `valid` if it is there, and `test`, each with one sub-folder per class, as CINIC-10 has them."""
    parts = []
    for name in ("train", "valid", "test"):
        if (folder / name).is_dir():
            try:
                parts.append(_classes_in(folder / name))
            except DataError as error:
                raise DataError(f"{name}: {error}") from error
    if len({tuple(part) for part in parts}) > 1:
        names = " and ".join(", ".join(part) for part in parts)
        raise DataError(f"expected the same class folders in train, valid and test, found {names}")
    return read_images(parts)


def _images_of_class(folder: Path) -> list[Path]:
    """Its images, or those in its `images` folder; never some of them only."""
    direct, deeper = _images_in(folder), _images_in(folder / "images")
    if not direct and not deeper:
        raise DataError(f"expected images in the class folder {folder.name}, found none")
    if direct:
        for child in folder.iterdir():
            if _images_in(child):
                raise DataError(
                    f"expected the images of class {folder.name} in one folder, found others in its {child.name}/"
                )
    return direct or deeper


def _images_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in IMAGE_SUFFIXES and p.is_file())


def read_image(file: Path, image_size: int, pad: bool = False) -> np.ndarray:
    """One image file as uint8 [image_size, image_size, 3]; resized bilinearly, with averaging when it shrinks.

    Args:
        pad: put an image of 28x28 into a black frame of 32x32 first.
    """
    from PIL import Image, UnidentifiedImageError

    name = f"{file.parent.name}/{file.name}"
    try:
        with warnings.catch_warnings(), untrusted.open_regular(file) as content:
            warnings.simplefilter("ignore")  # remarks of decoders on what they can read all the same
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            return _decoded(content, image_size, pad)
    except UnidentifiedImageError as error:
        raise DataError(f"{name}: expected an image, {', '.join(IMAGE_FORMATS)}") from error
    except MemoryError as error:
        raise DataError(f"{name}: too large for this machine's memory") from error
    except Exception as error:  # decoders raise whatever they like
        raise DataError(f"{name}: not a readable image ({error})") from error


def _decoded(content: IO[bytes], image_size: int, pad: bool) -> np.ndarray:
    from PIL import Image, ImageOps

    with Image.open(content, formats=IMAGE_FORMATS) as image:
        if image.mode in ("I", "F"):
            raise ValueError(f"expected 8 or 16 bits a channel, received mode {image.mode}")
        if image.mode.startswith("I;16"):  # Pillow would clip, not scale, 16-bit grey
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        colours = image.convert("RGB")
        if pad and colours.size == (28, 28):
            colours = ImageOps.expand(colours, 2)
        return np.asarray(resized(colours, image_size))


def resized(image: Image, image_size: int) -> Image:
    """The image at image_size x image_size."""
    from PIL.Image import Resampling

    size = (image_size, image_size)
    return image if image.size == size else image.resize(size, Resampling.BILINEAR)
