"""Names and contents of partition files, in the original's format."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedmatch_tf.base import safe_pickle
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.datasets import DATASETS


@dataclass(frozen=True)
class Examples:
    """Images, or vectors, and their labels."""

    x: np.ndarray  # uint8 [n, h, w, c], or float32 [n, d]
    y: np.ndarray  # float32 one-hot [n, classes]

    def __len__(self) -> int:
        return len(self.x)


def file_name(dataset: str, role: str, client: int | None = None, step: int | None = None) -> str:
    """`test_cifar_10.npy`, `s_cifar_10_3.npy`, `s_cifar_10.npy` (the server's), `u_fashion_mnist_3_0.npy`, ..."""
    prefix = {"labeled": "s", "unlabeled": "u"}.get(role, role)
    parts = [prefix, DATASETS[dataset].file_name, *(str(number) for number in (client, step) if number is not None)]
    return "_".join(parts) + ".npy"


def encode(name: str, x: np.ndarray, y: np.ndarray, num_classes: int) -> bytes:
    """The file's bytes: `np.save` of the original's dict."""
    one_hot = np.eye(num_classes, dtype=np.float32)[y]
    stem = name[: -len(".npy")]
    # The original takes the unique values of the class numbers, but of the one-hot rows for test and valid.
    labels = np.unique(one_hot if stem.startswith(("test_", "valid_")) else y).astype(np.float32)
    buffer = io.BytesIO()
    content = {"x": np.ascontiguousarray(x), "y": one_hot, "labels": labels, "name": stem}
    np.save(buffer, content, allow_pickle=True)  # type: ignore[arg-type]
    return buffer.getvalue()


def decode(payload: bytes) -> Examples:
    """Images and labels of a file's bytes; DataError says what is wrong with them."""
    content = _pickled_dict(payload)
    missing = [key for key in ("x", "y") if not isinstance(content.get(key), np.ndarray)]
    if missing:
        raise DataError(f"expected arrays x and y, missing {' and '.join(missing)}")
    x, y = content["x"], content["y"]
    if (x.dtype, x.ndim) not in ((np.uint8, 4), (np.float32, 2)):
        received = f"{x.dtype} {list(x.shape)}"
        raise DataError(f"wrong images: expected uint8 [n,h,w,c], received {received}; vectors are float32 [n,d]")
    if x.ndim == 2 and not np.isfinite(x).all():
        raise DataError("wrong vectors: expected finite numbers, received NaN or infinity")
    if y.dtype != np.float32 or y.ndim != 2:
        raise DataError(f"wrong labels: expected float32 one-hot [n,classes], received {y.dtype} {list(y.shape)}")
    if len(x) != len(y) or len(x) == 0:
        raise DataError(f"wrong number: expected one label per image and at least one, received {len(x)} and {len(y)}")
    if not (np.isin(y, (0, 1)).all() and (y.sum(axis=1) == 1).all()):
        raise DataError("wrong labels: expected one-hot rows, a single 1 in each")
    return Examples(x, y)


def _pickled_dict(payload: bytes) -> dict[str, Any]:
    """The dict inside a 0-dimensional object array."""
    content = decode_npy(payload)
    if isinstance(content, np.ndarray) and content.shape == () and content.dtype.kind == "O":
        content = content.item()
    if not isinstance(content, dict):
        shape = f" of {content.dtype} {list(content.shape)}" if isinstance(content, np.ndarray) else ""
        raise DataError(f"expected one pickled dict, received {type(content).__name__}{shape}")
    return content


def decode_npy(payload: bytes) -> Any:
    """The content of an .npy file; what is pickled in it is read by the restricted unpickler."""
    stream = io.BytesIO(payload)
    try:
        version = np.lib.format.read_magic(stream)
        read_header = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[version[0]]
        _, _, dtype = read_header(stream)
        if not dtype.hasobject:
            return np.load(io.BytesIO(payload), allow_pickle=False)
    except Exception as error:  # NumPy raises many kinds for a damaged header
        what = "the file is truncated" if len(payload) < 128 else "expected a whole .npy file"
        raise DataError(f"{what} ({error})") from error
    return safe_pickle.loads(stream.read())
