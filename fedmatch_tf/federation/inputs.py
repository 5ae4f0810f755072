"""Files that a user gives to a run: starting weights and a probe image. Untrusted until checked."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.files import decode_npy

Read = Callable[[Path], bytes]


def read_kernels(path: Path, shapes: Sequence[tuple[int, ...]], read: Read = untrusted.read_bytes) -> list[np.ndarray]:
    """float32 kernels: `sigma_0`, `sigma_1`, ... of an .npz, or the original's .npy, a list of kernels."""
    try:
        content = read(path)
        kernels = _npz_kernels(content, shapes) if path.suffix == ".npz" else _npy_kernels(content)
    except DataError as error:
        raise DataError(f"--init-weights: {path}: {error}") from error
    except OSError as error:
        raise DataError(f"--init-weights: {path}: expected a file that can be read ({error.strerror})") from error
    except Exception as error:  # NumPy and zipfile raise many kinds for a damaged file
        raise DataError(f"--init-weights: {path}: damaged or unreadable ({error})") from error
    received = [tuple(kernel.shape) for kernel in kernels]
    if received != list(shapes):
        wrong = next((i for i, (a, b) in enumerate(zip(received, shapes)) if a != b), min(len(received), len(shapes)))
        raise DataError(
            f"--init-weights: {path}: expected {len(shapes)} kernels, received {len(received)}; the first "
            f"difference is sigma_{wrong}: expected {_nth(shapes, wrong)}, received {_nth(received, wrong)}"
        )
    kernels = [kernel.astype(np.float32) for kernel in kernels]
    if not all(np.isfinite(kernel).all() for kernel in kernels):
        raise DataError(f"--init-weights: {path}: expected finite numbers, received NaN or infinity")
    return kernels


def _nth(shapes: Sequence[tuple[int, ...]], index: int) -> str:
    return str(list(shapes[index])) if index < len(shapes) else "none"


def _npz_kernels(payload: bytes, shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    number = len(shapes)
    most = 2 * sum(8 * math.prod(shape) + 1000 for shape in shapes)  # as float64, with headers; others may lie beside
    arrays = untrusted.arrays_of(io.BytesIO(payload), max(most, len(payload)))
    names = [name for name in arrays if name.startswith("sigma_")]
    missing = [f"sigma_{i}" for i in range(max(number, len(names))) if f"sigma_{i}" not in names]
    if missing:
        raise DataError(f"expected arrays sigma_0 .. sigma_{number - 1}, missing {', '.join(missing)}")
    return [_numbers(arrays[f"sigma_{i}"]) for i in range(len(names))]


def _npy_kernels(payload: bytes) -> list[np.ndarray]:
    content = decode_npy(payload)
    if not isinstance(content, (list, tuple, np.ndarray)) or (isinstance(content, np.ndarray) and content.ndim == 0):
        raise DataError(f"expected a list of kernels, received {type(content).__name__}")
    return [_numbers(kernel) for kernel in content]


def _numbers(kernel: object) -> np.ndarray:
    if not isinstance(kernel, np.ndarray) or kernel.dtype.kind not in "fiu":
        raise DataError(f"expected kernels of numbers, received {getattr(kernel, 'dtype', type(kernel).__name__)}")
    return kernel


def read_probe(path: Path, image_shape: Sequence[int], read: Read = untrusted.read_bytes) -> np.ndarray:
    """What models are embedded on: an image, float32 [1, h, w, c] in [0, 1], or a vector, float32 [1, n]."""
    try:
        image = np.load(io.BytesIO(read(path)), allow_pickle=False)
    except Exception as error:  # as above
        raise DataError(f"--probe-image: {path}: expected an .npy file ({error})") from error
    expected = [1, *image_shape]
    if not isinstance(image, np.ndarray) or image.dtype != np.float32 or list(image.shape) != expected:
        received = f"{image.dtype} {list(image.shape)}" if isinstance(image, np.ndarray) else type(image).__name__
        raise DataError(f"--probe-image: {path}: expected float32 {expected}, received {received}")
    if not np.isfinite(image).all() or (len(image_shape) > 1 and (image.min() < 0 or image.max() > 1)):
        raise DataError(f"--probe-image: {path}: expected values in [0, 1], received {image.min()} to {image.max()}")
    return image
