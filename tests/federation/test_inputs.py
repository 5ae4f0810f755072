"""Starting weights that are not what they look like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.federation.inputs import read_kernels


def test_weights_that_unpack_to_more_than_the_network_has_are_refused_before_they_do(tmp_path: Path) -> None:
    path, shapes = tmp_path / "weights.npz", [(4, 3), (3, 2)]
    kernels = {f"sigma_{number}": np.ones(shape) for number, shape in enumerate(shapes)}
    np.savez_compressed(path, **kernels)
    assert [kernel.shape for kernel in read_kernels(path, shapes)] == shapes
    np.savez_compressed(path, **kernels, more=np.zeros(10**6))  # 8 MB of zeros in a few kB
    with pytest.raises(DataError, match=r"--init-weights: .*its arrays: expected at most .* received 8.0 MB"):
        read_kernels(path, shapes)
