"""scikit-learn's handwritten digits, which need no download."""

import numpy as np

from fedmatch_tf.data.dataset import FEW_LABELS, SMALL, Dataset
from fedmatch_tf.data.raw import Raw


def read_digits() -> Raw:
    """Its 1,797 images, each pixel enlarged to 4x4."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    grey = np.round(digits.images * (255 / 16)).astype(np.uint8)  # they are stored as 0 .. 16
    return Raw(grey.repeat(4, axis=1).repeat(4, axis=2), digits.target.astype(np.int64), "scikit-learn's digits")


DIGITS = Dataset(
    name="digits",
    title="8x8 digits, embedded",
    file_name="digits",
    num_classes=10,
    sizes=(1_797, 0),
    image_shape=(8, 8),
    embedded=read_digits,
    defaults=SMALL,
    overrides=FEW_LABELS,
    place=6,
)
