"""FedMatch in TensorFlow: federated semi-supervised learning with inter-client consistency and disjoint learning.

    import fedmatch_tf as fm

    result = fm.train("lc-biid-digits", model="fedmatch", arch="alexnet", num_rounds=12)
    model = fm.load_model(result.folder)

What is named here is loaded when it is first used, so importing this package costs nothing.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fedmatch_tf.base.program import VERSION as __version__

if find_spec("tf_keras") is not None:  # the second base, where tf.keras would otherwise be Keras 3
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
else:  # the first base: tf.keras is Keras 2, and with this variable it could not be loaded
    os.environ.pop("TF_USE_LEGACY_KERAS", None)

if TYPE_CHECKING:
    from fedmatch_tf.api import SweepResult, TrainingResult, load_model, load_run, resume, sweep, train
    from fedmatch_tf.base.errors import DataError
    from fedmatch_tf.config import ConfigError, make_config
    from fedmatch_tf.federation.tasks import TrainingError

__all__ = [
    "ConfigError",
    "DataError",
    "SweepResult",
    "TrainingError",
    "TrainingResult",
    "__version__",
    "load_model",
    "load_run",
    "make_config",
    "resume",
    "sweep",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("fedmatch_tf.api"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
