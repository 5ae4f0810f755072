"""What a run will take, before its first round: image passes, and of the machine memory, open files and disk.

What is needed is what a run takes at least, and what there is includes what the system can reclaim: a run that works is
not refused. Workers' memory for activations is not counted, as nobody knows it before they train.
"""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.config import Config
from fedmatch_tf.config.models import learner_of
from fedmatch_tf.federation.scoring import client_splits
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs.store import is_on_disk

TRAINING = 3.0  # a training pass over a forward pass
LOADED = 3e8  # bytes of a worker that has loaded TensorFlow and nothing else, at least
OPEN_FILES = 30  # of a command with no worker, and of each worker: with two, AlexNet took 45 to 54
OPEN_FILES_OF_WORKER = 6


def passes_per_round(config: Config, unlabeled: float) -> float:
    """Forward passes of images in a round, training included.

    Args:
        unlabeled: examples of a client in a round.
    """
    sizes = {"valid": config.num_valid, "test": config.num_test}
    tests = sum(sizes[split] for split in client_splits(config))
    client = TRAINING * unlabeled * learner_of(config.model).passes * config.num_epochs_client + tests
    server = TRAINING * 10 * config.labels_per_class * config.num_epochs_server
    validated = config.num_valid if config.keep_best or config.lr_source != "client" else 0
    return config.clients_per_round * client + server + config.num_test + validated


def check_workers(config: Config) -> None:
    """Raises ConfigError if this machine has no room for the workers, whatever they train."""
    if config.ray_address:
        return
    workers = config.workers or 1
    _check_memory(workers * LOADED, f"{workers} workers", "Give fewer by --workers")
    if config.backend == "process":
        needed, most = OPEN_FILES + OPEN_FILES_OF_WORKER * workers, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if most != resource.RLIM_INFINITY and needed > most:
            raise ConfigError(
                f"--workers: {workers} workers need about {needed} open files, this process may have {most}. "
                f"Allow more with `ulimit -n`, or give fewer --workers"
            )


def check_parameters(config: Config, params: Params) -> None:
    """Raises ConfigError if the parameters of this network can't be kept: in memory, or on disk.

    Args:
        params: those of the global model, in memory already.
    """
    size, clients = sum(part.nbytes for part in params.parts), expected_clients(config)
    kept = 0 if make_algorithm(config).keep(params) is None else clients * size
    in_memory = 0 if is_on_disk(config, size) else kept
    workers = 0 if config.ray_address else config.workers or 1
    # The round's sums, and of every worker what it is sent, its gradients and what it sends back.
    _check_memory(
        in_memory + 2 * size + 3 * workers * size,
        f"parameters of {_bytes(size)} for {workers} workers" + (f" and {clients} clients" if in_memory else ""),
        ("Use --store disk, or give" if in_memory else "Give") + " fewer --workers or a smaller --arch",
    )
    nearest = next(parent for parent in (Path(config.output_path).absolute() / "x").parents if parent.exists())
    on_disk = 0.9 * 2 * kept + 2 * size  # each client's file has a copy
    free = shutil.disk_usage(nearest).free
    if on_disk > free:
        raise ConfigError(
            f"--output-path: checkpoints need about {_bytes(on_disk)} of disk ({clients} clients, {_bytes(size)} "
            f"each), {nearest} has {_bytes(free)}. Give another --output-path, fewer --num-clients or a smaller --arch"
        )


def expected_clients(config: Config) -> int:
    """How many clients will have taken part at the end, on average."""
    absent = (1 - config.clients_per_round / config.num_clients) ** config.num_rounds
    return round(config.num_clients * (1 - absent))


def runs_beside(workers: int) -> int:
    """How many runs of so many workers have room beside each other, at 1.5 GB a worker; at least 1."""
    has = free_memory()
    return 1000 if has is None else max(1, int(has / (OF_RUN + OF_WORKER * workers)))


OF_RUN, OF_WORKER = 5e8, 1.5e9  # bytes that AlexNet and ResNet-9 take at their peak


def _check_memory(needed: float, what: str, advice: str) -> None:
    has = free_memory()
    if has is not None and needed > has:
        raise ConfigError(
            f"{what} need at least {_bytes(needed)} of memory, this machine has {_bytes(has)} left. {advice}"
        )


def free_memory(root: Path = Path("/")) -> int | None:
    """Bytes that this process could still have, reclaimable ones and swap included; None where nobody says."""
    try:
        told = {name: int(text.split()[0]) for name, text in _table(root / "proc/meminfo", ":")}
        free = [1024 * (told["MemAvailable"] + told.get("SwapFree", 0))]
    except (OSError, ValueError, LookupError):
        return None
    for folder, limit, usage, reclaimable in _CONTAINERS:
        try:
            used = int((root / folder / usage).read_text())
            cache = {name: int(text) for name, text in _table(root / folder / "memory.stat", " ")}[reclaimable]
            free.append(int((root / folder / limit).read_text()) - used + cache)
        except (OSError, ValueError, LookupError):  # none, or `max`
            continue
    return max(0, min(free))


# Where a container's limit stands: cgroups of version 2 and 1.
_CONTAINERS = (
    ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
    ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)


def _table(path: Path, separator: str) -> list[tuple[str, str]]:
    rows = [line.partition(separator) for line in path.read_text().splitlines()]
    return [(name, text) for name, _, text in rows]


def _bytes(number: float) -> str:
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"
