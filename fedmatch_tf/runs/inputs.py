"""What a run opens again whenever a worker starts, and that it is then what the run began with."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmatch_tf.base import untrusted
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config
from fedmatch_tf.data.loader import Partitions, open_partitions
from fedmatch_tf.workers import own_code


def checksums(config: Config, read: Callable[[Path], bytes] = untrusted.read_bytes) -> dict[str, str]:
    """Of the files, beside the partitions, on which results depend whenever a worker starts: by flag."""
    found = {}
    if config.probe_image is not None:
        found["--probe-image"] = read(Path(config.probe_image))
    if (module := own_code.file_of(config.arch)) is not None:
        found["--arch"] = untrusted.read_bytes(module)
    return {name: hashlib.sha256(content).hexdigest() for name, content in found.items()}


class WithInputs:
    """Makes a worker, if what it reads is what the run began with: it may be started long after the others.

    Args:
        partitions: fingerprint of the run's.
        others: checksums of the other files.
        network: the content of a Keras file, which goes to every worker.
    """

    def __init__(
        self, worker: Callable[..., Any], partitions: str, others: Mapping[str, str], network: bytes | None = None
    ) -> None:
        self._worker, self._partitions, self._others = worker, partitions, others
        self._network = {} if network is None else {"network": network}

    def __call__(self, config: Config, partitions: Partitions | None = None) -> Any:
        """The worker; DataError if something has been replaced, or if this machine lacks it.

        Args:
            partitions: if they are not to be looked up on this disk.
        """
        folder, host = config.partition_folder, socket.gethostname()
        if partitions is None and folder.is_dir():
            partitions = open_partitions(Path(config.dataset_path), config.task)
        if partitions is None or partitions.fingerprint != self._partitions:
            raise DataError(
                f"{folder}: expected the partitions of this run on {host}, found {'others' if partitions else 'none'}. "
                f"Put them back and go on with --resume, or give a --dataset-path that every machine sees; on Ray, "
                f"--ray-data ship sends them"
            )
        worker = self._worker(config, partitions=partitions, **self._network)
        others = checksums(config, partitions.read)  # now: what was checked before could change before it is used
        for name, checksum in self._others.items():
            if others.get(name) != checksum:
                raise DataError(f"{name}: expected on {host} the file that the run began with, found another content")
        return worker
