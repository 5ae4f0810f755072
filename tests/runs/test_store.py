"""What clients held, on disk: which files stay, and what they give back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmatch_tf.core.params import Params
from fedmatch_tf.core.schedule import Plateau
from fedmatch_tf.runs.store import DamagedFile, DiskStore, check_files, no_files
from fedmatch_tf.simulation.store import Held

CLIENTS = 4
puts = st.lists(st.integers(0, CLIENTS - 1), max_size=6)


def held(number: int) -> Held:
    vector = np.arange(number, number + 3, dtype=np.float32)
    return Held(Params(vector[:2], vector[2:]), Plateau(0.1 + number, float("inf"), number))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(puts, min_size=1, max_size=6), reopened=st.integers(0, 6))
def test_what_two_checkpoints_name_stays_and_nothing_else(
    rounds: list[list[int]], reopened: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("clients")
    store, number = DiskStore(folder, no_files(CLIENTS)), 0
    checkpoints = [store.files()]
    last: dict[int, int] = {}
    for place, clients in enumerate(rounds):
        if place == reopened:  # a process that was killed left something, and another goes on
            (folder / ".0-9.npy.partial").touch()
            (folder / "0-99.npy").touch()
            store = DiskStore(folder, checkpoints[-1])
        for client in clients:
            number += 1
            store.put(client, held(number))
            last[client] = number
        checkpoints.append(store.files())
        store.keep(*checkpoints[-2:])
        named = {f"{c}-{row['version']}.npy" for table in checkpoints[-2:] for c, row in enumerate(table) if row[0]}
        assert {path.name for path in folder.iterdir()} == named
        for table in checkpoints[-2:]:
            check_files(folder, table, 3)
    for client in range(CLIENTS):
        found = store.get(client)
        if client not in last:
            assert found is None
        else:
            assert found is not None
            expected = held(last[client])
            assert found.plateau == expected.plateau
            np.testing.assert_array_equal(np.concatenate(found.params), np.concatenate(expected.params))


def test_a_file_that_was_changed_is_named(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "clients", no_files(CLIENTS))
    store.put(2, held(1))
    path = tmp_path / "clients" / "2-1.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"2-1\.npy: its content is not what was written"):
        check_files(tmp_path / "clients", store.files(), 3)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_found_whatever_the_checksum_says(value: float, tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "clients", no_files(CLIENTS))
    store.put(1, Held(Params(np.array([1, value], np.float32), np.zeros(1, np.float32)), Plateau(0.1, 1.0, 1)))
    with pytest.raises(DamagedFile, match=r"1-1\.npy: expected 3 finite numbers"):
        check_files(tmp_path / "clients", store.files(), 3)
    store.put(1, held(1))
    with pytest.raises(DamagedFile, match=r"1-2\.npy: expected 4 finite numbers"):
        check_files(tmp_path / "clients", store.files(), 4)
