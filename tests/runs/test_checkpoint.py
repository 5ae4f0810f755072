"""A checkpoint's file: whatever bit of it is flipped, the one before is taken, and nothing of the damage is parsed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from data.errors import DataError
from fedmatch_tf.algorithms.algorithm import Best, ServerState
from fedmatch_tf.core import schedule
from fedmatch_tf.core.params import Params
from fedmatch_tf.runs import checkpoint
from fedmatch_tf.runs.checkpoint import Checkpoint, Damaged
from fedmatch_tf.runs.partition_folder import DataAbout
from fedmatch_tf.runs.records import Mark
from fedmatch_tf.runs.store import DamagedFile, DiskStore, check_files, no_files
from fedmatch_tf.simulation.store import Held


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


PARAMS = Params(vector(1, 2, 3), vector(4, 5))


def saved(folder: Path) -> np.ndarray:
    """Two checkpoints of a tiny run, after one and after two rounds; the clients' table of the newest."""
    (folder / "records.jsonl").touch()
    disk = DiskStore(folder / "clients", no_files(2))
    for done in (1, 2):
        disk.put(0, Held(PARAMS, schedule.start(0.1, 5)))
        best = Best(0, 0.5, vector(9, 9, 9))
        state = ServerState(done, PARAMS, schedule.start(0.1, 5), {0: vector(0.25, 0.75)}, (0.1,), best, (vector(7),))
        about = DataAbout((8, 8, 3), ("cat", "dog"))
        files = disk.files()
        checkpoint.save(folder, Checkpoint({"seed": 1}, {"numpy": "1"}, "f" * 64, state, files, Mark(0, 0), about))
        if done == 1:
            disk.keep(files)
    return disk.files()


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    saved(tmp_path)
    found, problem = checkpoint.load(tmp_path)
    assert problem is None
    assert found.state.rounds_done == 2
    assert [part.tolist() for part in found.state.params] == [[1, 2, 3], [4, 5]]
    assert found.state.best is not None
    assert (*found.state.best[:2], found.state.best.theta.tolist()) == (0, 0.5, [9, 9, 9])
    assert (found.state.device_lrs, found.state.memory[0].tolist()) == ((0.1,), [7])
    assert found.data == ((8, 8, 3), ("cat", "dog"))
    with np.load(tmp_path / "state.npz") as file:  # and NumPy reads it, as the interface says
        assert file["sigma"].tolist() == [1, 2, 3]


def flipped(content: bytes, number: int) -> bytes:
    """The content with one of its bits flipped."""
    damaged = bytearray(content)
    damaged[number // 8] ^= 1 << number % 8
    return bytes(damaged)


def test_every_flipped_bit_is_found_before_anything_is_parsed(tmp_path: Path) -> None:
    saved(tmp_path)
    whole = (tmp_path / "state.npz").read_bytes()
    checkpoint._check_seal(whole)
    for number in range(8 * (len(whole) - checkpoint.SEAL)):
        with pytest.raises(Damaged, match="checksum"):
            checkpoint._check_seal(flipped(whole, number))


def test_a_flipped_bit_or_a_missing_end_falls_back_to_the_checkpoint_before(tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "state.npz"
    whole = path.read_bytes()
    end = len(whole) - checkpoint.SEAL
    damaged = [flipped(whole, number) for number in range(0, 8 * end, 101)]
    for content in (*damaged, *(whole[:length] for length in range(0, end, 41))):
        path.write_bytes(content)
        found, problem = checkpoint.load(tmp_path)
        assert (found.state.rounds_done, problem is None) == (1, False)
    for number in range(8 * end, 8 * len(whole), 7):  # of the checksum: whatever it becomes, all the rest is whole
        path.write_bytes(flipped(whole, number))
        assert checkpoint.load(tmp_path)[0].state.params.sigma.tolist() == [1, 2, 3]


def test_every_flipped_bit_of_a_clients_file_is_found(tmp_path: Path) -> None:
    files = saved(tmp_path)
    path = tmp_path / "clients" / "0-2.npy"
    whole = path.read_bytes()
    check_files(path.parent, files)
    assert np.load(path).tolist() == [1, 2, 3, 4, 5]
    for number in range(8 * len(whole)):
        path.write_bytes(flipped(whole, number))
        with pytest.raises(DamagedFile, match="not what was written"):
            check_files(path.parent, files)
    for content in (whole[:-1], whole[:-4], whole + b"0000", b""):
        path.write_bytes(content)
        with pytest.raises(DamagedFile):
            check_files(path.parent, files)


def test_without_a_whole_one_the_message_names_both(tmp_path: Path) -> None:
    saved(tmp_path)
    for name in ("state.npz", "previous.npz"):
        content = bytearray((tmp_path / name).read_bytes())
        content[50] ^= 1
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"state.npz: its content is not .*previous.npz: its content is not"):
        checkpoint.load(tmp_path)
