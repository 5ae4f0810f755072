"""What must be set before TensorFlow begins to work, and what its devices are."""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.base.quiet import load_tensorflow
from fedmatch_tf.config import ConfigError


def worker_variables(gpu: int | None, given: Mapping[str, str]) -> dict[str, str]:
    """The environment of a worker that sees only this GPU, or none.

    Args:
        gpu: position among the GPUs that the user lets us see.
        given: the environment of the command; its CUDA_VISIBLE_DEVICES says which GPUs those are.
    """
    if gpu is None:
        return {"CUDA_VISIBLE_DEVICES": "-1"}
    visible = [name.strip() for name in given.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return {
        "CUDA_DEVICE_ORDER": given.get("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),  # ids as nvidia-smi has them
        "CUDA_VISIBLE_DEVICES": visible[gpu] if gpu < len(visible) else str(gpu),
        "TF_DETERMINISTIC_OPS": given.get("TF_DETERMINISTIC_OPS", "1"),  # the same result every time
    }


@contextmanager
def variables(given: Mapping[str, str]) -> Iterator[None]:
    """The environment of this process has these meanwhile."""
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class Gpu(NamedTuple):
    """A GPU that TensorFlow finds."""

    name: str
    capability: tuple[int, int] | None = None  # of Nvidia's; None: not known


def check_gpus(ids: Sequence[int], found: Sequence[Gpu], precision: str = "float32") -> None:
    """Raises ConfigError unless all ids are among the GPUs found, and these compute in the precision."""
    if not found:
        raise ConfigError(
            f"--gpu: expected GPUs {', '.join(map(str, ids))}, but TensorFlow finds no GPU on this machine. "
            f"Leave out --gpu to train on the CPU, or see docs/INSTALL.md for the GPU libraries"
        )
    missing = [gpu for gpu in ids if gpu >= len(found)]
    if missing:
        listed = ", ".join(f"{number} ({gpu.name})" for number, gpu in enumerate(found))
        raise ConfigError(f"--gpu: there is no GPU {', '.join(map(str, missing))} here; there is {listed}")
    for gpu in ids:
        check_gpu_precision(found[gpu], precision)


def check_gpu_precision(gpu: Gpu, precision: str) -> None:
    """Raises ConfigError if the GPU is known not to compute in the precision."""
    if precision == "bfloat16" and gpu.capability is not None and gpu.capability < (8, 0):
        raise ConfigError(
            f"--precision: bfloat16 needs a GPU of compute capability 8.0 or higher; {gpu.name} has "
            f"{'.'.join(map(str, gpu.capability))}. Use --precision float16 or float32"
        )


def check_cpu_precision(precision: str, cpuinfo: Path = Path("/proc/cpuinfo")) -> None:
    """Raises ConfigError if this machine's processor would fail in the precision, or be slower than in float32.

    Args:
        cpuinfo: what the system says of its processors.
    """
    if precision != "bfloat16":
        return
    wanted = "--precision: bfloat16 needs a processor that computes in it (on x86: avx512_bf16 or amx_bf16)"
    try:
        lines = [line.partition(":") for line in cpuinfo.read_text(errors="replace").splitlines()]
    except OSError as error:
        raise ConfigError(f"{wanted}; whether this one does is not known. Use --precision float32") from error
    about = {name.strip().lower(): value.strip() for name, _, value in lines}
    if not _BFLOAT16 & set(about.get("flags", about.get("features", "")).split()):
        name = about.get("model name", "this one")
        raise ConfigError(
            f"{wanted}; {name} does not: it would fail, or be slower than float32. Use --precision float32"
        )
    if os.environ.get("TF_ENABLE_ONEDNN_OPTS") == "0":
        raise ConfigError(
            "--precision: bfloat16 needs oneDNN, which TF_ENABLE_ONEDNN_OPTS=0 turns off: training steps would take "
            "times as long as in float32. Unset that variable, or use --precision float32"
        )


_BFLOAT16 = {"avx512_bf16", "amx_bf16", "bf16"}  # the last one on ARM


def list_gpus() -> list[Gpu]:
    """The GPUs that TensorFlow, which this loads, finds."""
    tf = load_tensorflow()
    gpus = tf.config.list_physical_devices("GPU")
    details = [tf.config.experimental.get_device_details(gpu) for gpu in gpus]
    return [
        Gpu(about.get("device_name", gpu.name), about.get("compute_capability")) for gpu, about in zip(gpus, details)
    ]


def prepare(threads: int | None = None, gpu_memory: int | None = None, precision: str = "float32") -> None:
    """TensorFlow with this number of threads (its own choice if None), taking GPU memory as it needs it.

    Args:
        gpu_memory: MB that it may take at most.

    Raises ConfigError if the environment promises a GPU and there is none: training on the CPU instead helps nobody.
    The same if what it computes on lacks the precision.
    """
    tf = load_tensorflow()
    check_keras(tf)
    if threads is not None:
        _use_threads(tf, threads)
    gpus = tf.config.list_physical_devices("GPU")
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "-1")
    if given not in ("", "-1") and not gpus:
        raise ConfigError(
            f"expected GPU {given} of {platform.node()}, which was given to this worker, but TensorFlow finds no GPU "
            f"there. See docs/INSTALL.md for the GPU libraries; a Ray node without them is started with --num-gpus 0"
        )
    check_precision(precision)
    if gpu_memory is None:
        grow_memory()
    else:
        limit_memory(tf.config, gpu_memory)


def check_precision(precision: str) -> None:
    """Raises ConfigError if what TensorFlow computes on in this process lacks the precision."""
    gpus = list_gpus()
    for gpu in gpus:
        check_gpu_precision(gpu, precision)
    if not gpus:
        check_cpu_precision(precision)


def keep_memory() -> None:
    """What large arrays leave is kept for the next ones, instead of going back to the system and being cleared anew."""
    with suppress(OSError, AttributeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, 2**30)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def check_keras(tf: Any) -> None:
    """Raises ConfigError unless tf.keras is Keras 2, which our layers are written for."""
    found = getattr(tf.keras, "__version__", "2")  # Keras 2 has none there
    if not found.startswith("2"):
        raise ConfigError(
            f"expected tf.keras to be Keras 2, received Keras {found} of TensorFlow {tf.__version__}. Install the "
            f"packages of requirements.txt (tf-keras among them), and import fedmatch_tf before tf.keras is "
            f"used, or set TF_USE_LEGACY_KERAS=1"
        )


def _use_threads(tf: Any, threads: int) -> None:
    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    except RuntimeError as error:  # it has begun to work, with another number
        now = tf.config.threading.get_intra_op_parallelism_threads()
        raise ConfigError(
            f"--threads-per-worker: expected {threads}, but TensorFlow runs in this process already, with "
            f"{now or 'as many threads as there are cores'}. Use backend process, or train before anything else uses "
            f"TensorFlow here"
        ) from error


def limit_memory(tf_config: Any, megabytes: int) -> None:
    """No GPU gives this process more memory; raises ConfigError if it has begun to use them."""
    for gpu in tf_config.list_physical_devices("GPU"):
        try:
            tf_config.set_logical_device_configuration(
                gpu, [tf_config.LogicalDeviceConfiguration(memory_limit=megabytes)]
            )
        except RuntimeError as error:
            raise ConfigError(
                f"--gpu-memory: expected to set {megabytes} MB before TensorFlow uses {gpu.name}, which it does "
                f"already in this process. Use backend process, or train before anything else uses TensorFlow here"
            ) from error


def grow_memory() -> None:
    """TensorFlow takes GPU memory as it needs it, not all of it at once; no effect once it has taken it."""
    import tensorflow as tf

    for gpu in tf.config.list_physical_devices("GPU"):
        with suppress(RuntimeError, ValueError):  # it works already; or an earlier run here has set a limit
            tf.config.experimental.set_memory_growth(gpu, True)
