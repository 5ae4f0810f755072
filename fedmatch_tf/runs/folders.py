"""A run's two folders: its logs, and its checkpoint, from which it goes on bit for bit."""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from fedmatch_tf.algorithms.algorithm import ServerState
from fedmatch_tf.base.errors import DataError, shortened
from fedmatch_tf.base.program import program
from fedmatch_tf.config import Config, ConfigError
from fedmatch_tf.config.resume import continued, recorded_config
from fedmatch_tf.federation.records import RoundRecord
from fedmatch_tf.runs import checkpoint
from fedmatch_tf.runs.checkpoint import CLIENTS, Checkpoint
from fedmatch_tf.runs.original_logs import OriginalLogs
from fedmatch_tf.runs.partition_folder import DataAbout
from fedmatch_tf.runs.records import CurveFile, RoundLog, Sink, decode, encode, versions
from fedmatch_tf.runs.store import COPIES, ClientStore, is_on_disk, no_files
from fedmatch_tf.runs.tensorboard import ScalarLog
from fedmatch_tf.workers.choose import decide


class Run:
    """A run that is being worked on; no other process can open it meanwhile.

    Args:
        recorded: the config that its logs have so far, if it is another: that of a run that goes on.
        newest_is_damaged: `start` is of the checkpoint before the newest one.
        lost: clients of whose files only the copies are whole.
    """

    def __init__(
        self,
        folder: Path,
        check_pts: Path,
        config: Config,
        start: Checkpoint,
        lock: ExitStack,
        recorded: Config | None = None,
        newest_is_damaged: bool = False,
        lost: Collection[int] = (),
    ) -> None:
        self.folder, self.config, self.state = folder, config, start.state
        self.partitions, self.data, self.inputs = start.partitions, start.data, start.inputs
        self.check_pts, self._lock, self._recorded = check_pts, lock, recorded or config
        self._newest = self._saved = start  # checkpoints: one may still be being written
        self._records = start.records
        self.past = decode(start.records, start.state.rounds_done, config.num_clients)  # rounds of earlier sittings
        self.sinks: list[Sink] = []  # what is written into its folder of logs
        self._newest_is_damaged, self._lost = newest_is_damaged, lost
        self._thread = ThreadPoolExecutor(1)  # writes beside the simulation, one thing after the other
        self._begun = False

    def begin(self, keep_settings: bool = True) -> None:
        """Makes the run's files what its checkpoint says; before that, nothing of the run is changed.

        Args:
            keep_settings: what the user has changed on resuming is on record before the first round, for whatever
                happens in it.
        """
        folder, check_pts, start = self.folder, self.check_pts, self._saved
        config = self.config if keep_settings else self._recorded
        if self._newest_is_damaged:
            checkpoint.drop_newest(check_pts)
        folder.mkdir(parents=True, exist_ok=True)
        in_memory = not is_on_disk(self.config, sum(part.nbytes for part in self.state.params.parts))
        self.store = ClientStore(check_pts / CLIENTS, start.clients, self._thread.submit, in_memory, self._lost)
        self.sinks += [
            RoundLog(folder, config, self.past),
            OriginalLogs(folder, check_pts, config, self.past),
            ScalarLog(folder / "tensorboard", self.past, lambda: self.state.embeddings),
            CurveFile(folder, config, self.past),
        ]
        unsynced = no_files(self.config.num_clients)
        self._writing = self._thread.submit(checkpoint.sync, check_pts, start, unsynced)
        self._begun = True
        if keep_settings and start.settings != asdict(self.config):
            self._save()
            self.finish()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self._thread.shutdown()
        if not self._begun:
            self._lock.close()
            return
        with self._lock, nullcontext() if kind is None else suppress(OSError):
            for sink in self.sinks:
                sink.close(failed=kind is not None)
        if kind is None:
            self.finish()

    def add(self, record: RoundRecord, state: ServerState) -> None:
        """Takes in a round: its record, and a checkpoint if one is due."""
        self.state = state
        self._records += encode(record)
        if state.rounds_done % self.config.checkpoint_every == 0 or state.rounds_done == self.config.num_rounds:
            self.save()

    def save(self) -> None:
        """Writes a checkpoint beside the next round, unless there is one of this round."""
        if self.state.rounds_done != self._newest.state.rounds_done:
            self._save()

    def _save(self) -> None:
        settings, files = asdict(self.config), self.store.files()
        about = settings, versions(), self.partitions, self.data
        point = Checkpoint(*about, self.state, files, self._records, self.inputs)
        self._newest = point
        self._writing.result()  # what failed in the last one is raised here
        self._writing = self._thread.submit(self._write_checkpoint, point)

    def _write_checkpoint(self, point: Checkpoint) -> None:
        """A checkpoint outlives this process as soon as it has its name, and a power cut when it is synced."""
        previous = self._saved
        checkpoint.save(self.check_pts, point)
        self._saved = point
        checkpoint.sync(self.check_pts, point, previous.clients)
        self.store.keep(previous.clients, point.clients)

    def finish(self) -> None:
        """Everything is written afterwards, or the reason why not is raised."""
        self._writing.result()

    def resume_command(self) -> str:
        """What to type to go on, and from where."""
        wait([self._writing])
        problem = self._writing.exception()
        failure = f"Writing the checkpoint failed: {problem}. " if problem else ""
        done = f"{self._saved.state.rounds_done} of {self.config.num_rounds} rounds"
        command = f"{program()} --resume {shlex.quote(str(self.folder))}"
        return f"{failure}The last checkpoint is after {done}. To go on:\n  {command}"


def create(
    config: Config,
    state: ServerState,
    partitions: str,
    data: DataAbout,
    inputs: Mapping[str, str] = MappingProxyType({}),
    kernels: Sequence[np.ndarray] = (),
    network: bytes | None = None,
) -> Run:
    """A new run, named by the time. It can be resumed as soon as its folder is there.

    Args:
        partitions: their fingerprint.
        data: what the trained model must know of them.
        inputs: checksums of the other files that its workers read.
        kernels: what it starts from, to be kept for others to start there.
        network: the Keras file that its network is made of, if it is; to be kept, as others may change.
    """
    folder, check_pts = _new_folders(Path(config.output_path), f"{config.model}-{config.task}")
    lock = ExitStack()
    try:
        lock.enter_context(checkpoint.locked(check_pts))
        if kernels:
            checkpoint.save_start(check_pts, kernels, network)
        clients = no_files(config.num_clients)
        start = Checkpoint(asdict(config), versions(), partitions, data, state, clients, b"", inputs)
        checkpoint.save(check_pts, start)
        folder.mkdir(parents=True)
        run = Run(folder, check_pts, config, start, lock)
        run.begin()
        return run
    except BaseException:
        lock.close()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(check_pts, ignore_errors=True)
        raise


def reopen(folder: Path, given: Mapping[str, Any]) -> tuple[Run, list[str]]:
    """(the run as its newest whole checkpoint has it, remarks for the user). Nothing is changed before `begin`.

    Args:
        folder: of its logs.
        given: settings that the user gives again or anew.
    """
    folder, check_pts = both(folder, "--resume")
    _check_own(folder, folder / "tensorboard", check_pts, check_pts / CLIENTS, check_pts / CLIENTS / COPIES)
    with ExitStack() as lock:
        lock.enter_context(checkpoint.locked(check_pts))
        start, problem, lost = checkpoint.load(check_pts)
        recorded = replace(config_of(start.settings, folder, "--resume"), output_path=str(folder.parent.parent))
        rates, devices = start.state.device_lrs, recorded.num_devices
        if rates is not None and len(rates) != devices:
            raise DataError(f"{check_pts}: expected rates of {devices} devices, received {len(rates)}. It was edited")
        config = decide(continued(recorded, given))
        notes = [f"The newest checkpoint is damaged ({problem}); going on from the one before"] if problem else []
        notes += [f"{damage}; its copy is used" for damage in lost.values()]
        then, now = start.versions, versions()
        changed = [
            f"{name} {shortened(then.get(name, 'not installed'), 40)}, now {now.get(name, 'not installed')}"
            for name in {**then, **now}
            if then.get(name) != now.get(name)
        ]
        if changed:
            notes.append(f"The run was made with {'; '.join(changed)}: results may differ from an unbroken run")
        return Run(folder, check_pts, config, start, lock.pop_all(), recorded, problem is not None, lost), notes
    raise AssertionError("not reached")


def _check_own(*folders: Path) -> None:
    """Raises ConfigError if something in a run's folders is a link, a pipe or the like: we would write through it."""
    for folder in folders:
        if not folder.exists() and not folder.is_symlink():
            continue
        for path in (folder, *(folder.iterdir() if folder.is_dir() else ())):
            named_as_file = path.suffix in (".npy", ".npz", ".json", ".jsonl", ".txt", ".keras", ".png")
            if path.is_symlink() or not (path.is_file() or (path.is_dir() and not named_as_file)):
                what = "a symbolic link" if path.is_symlink() else "a folder" if path.is_dir() else "no file"
                raise ConfigError(
                    f"--resume: {path} is {what}, which a run's folders do not have. Put the file itself there, or "
                    f"remove it"
                )


_WITHOUT = ". Records that ship with the code have no weights: train with their settings"


def both(folder: Path, flag: str) -> tuple[Path, Path]:
    """(the folder of a run's logs, the folder of its checkpoint), given the first by this flag."""
    whole = Path(os.path.normpath(folder.absolute()))
    folder = folder if folder.name == whole.name else whole  # `.` means the folder that it is
    check_pts = whole.parent.parent / "check_pts" / whole.name
    if whole.parent.name != "logs" or not check_pts.is_dir():
        raise ConfigError(
            f"{flag}: expected the folder of a run, <output-path>/logs/<name>, that has a checkpoint in "
            f"<output-path>/check_pts/<name>; received {folder}{_WITHOUT if whole.parent.name == 'results' else ''}"
        )
    return folder, check_pts


def config_of(settings: Mapping[str, Any], folder: Path, flag: str) -> Config:
    """The Config that a checkpoint has."""
    try:
        return recorded_config(settings)
    except ConfigError as error:
        raise ConfigError(f"{flag}: {folder} was edited, or is of another version of this program: {error}") from error


def _new_folders(output: Path, what: str) -> tuple[Path, Path]:
    """(folder for logs, not made yet; folder for checkpoints, made); waits if a run began in the same second."""
    while True:
        name = f"{datetime.now():%Y%m%d-%H%M%S}-{what}"
        folder, check_pts = output / "logs" / name, output / "check_pts" / name
        try:
            check_pts.mkdir(parents=True)
        except FileExistsError:
            if not check_pts.is_dir():
                raise
        else:
            if not folder.exists():
                return folder, check_pts
            check_pts.rmdir()
        time.sleep(0.2)
