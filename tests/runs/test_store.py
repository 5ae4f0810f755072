"""What clients held, on disk: which files stay, and what they give back."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedmatch_tf.federation.server import Held
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs.store import ClientStore, Damaged, check_files, no_files

CLIENTS = 4
puts = st.lists(st.integers(0, CLIENTS - 1), max_size=6)


def held(number: int) -> Held:
    vector = np.arange(number, number + 3, dtype=np.float32)
    return Held(Params(vector[:2], vector[2:]), Plateau(0.1 + number, float("inf"), number))


def vectors(kept: Held) -> list[list[float]]:
    assert kept.params is not None
    return [part.tolist() for part in kept.params.parts]


def at_once(work: Callable[..., Any], *what: Any) -> Future[Any]:
    """Done here and now, instead of in another thread."""
    done: Future[Any] = Future()
    done.set_result(work(*what))
    return done


def one_round(store: ClientStore, of_clients: dict[int, Held]) -> None:
    for client, what in of_clients.items():
        store.put(client, what.params)
    store.end_round({client: what.plateau for client, what in of_clients.items()})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rounds=st.lists(puts, min_size=1, max_size=6), reopened=st.integers(0, 6), in_memory=st.booleans())
def test_what_two_checkpoints_name_stays_and_nothing_else(
    rounds: list[list[int]], reopened: int, in_memory: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("clients")
    store, number = ClientStore(folder, no_files(CLIENTS), at_once, in_memory), 0
    checkpoints = [store.files()]
    last: dict[int, int] = {}
    for place, clients in enumerate(rounds):
        if place == reopened:  # a process that was killed left something, and another goes on
            (folder / ".0-9.npy.partial").touch()
            (folder / "0-99.npy").touch()
            (folder / "copies" / "0-99.npy").touch()
            store = ClientStore(folder, checkpoints[-1], at_once, in_memory)
        for client in clients:
            number += 1
            one_round(store, {client: held(number)})
            last[client] = number
        checkpoints.append(store.files())
        store.keep(*checkpoints[-2:])
        named = {f"{c}-{row['version']}.npy" for table in checkpoints[-2:] for c, row in enumerate(table) if row[0]}
        assert {path.name for path in folder.glob("*.npy")} == named
        assert {path.name for path in (folder / "copies").iterdir()} == named
        assert [path.name for path in folder.iterdir() if path.name not in named] == ["copies"]
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
            assert vectors(found) == vectors(expected)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_found_whatever_the_checksum_says(value: float, tmp_path: Path) -> None:
    store = ClientStore(tmp_path / "clients", no_files(CLIENTS), at_once)
    params = Params(np.array([1, value], np.float32), np.zeros(1, np.float32))
    one_round(store, {1: Held(params, Plateau(0.1, 1.0, 1))})
    with pytest.raises(Damaged, match=r"1-1\.npy: expected 3 finite numbers"):
        check_files(tmp_path / "clients", store.files(), 3)
    one_round(store, {1: held(1)})
    with pytest.raises(Damaged, match=r"1-2\.npy: expected 4 finite numbers"):
        check_files(tmp_path / "clients", store.files(), 4)


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_client_may_hold_plain_parameters_or_nothing(in_memory: bool, tmp_path: Path) -> None:
    plateau, plain = Plateau(0.1, 1.0, 1), Params(np.array([1, 2, 3], np.float32))
    store = ClientStore(tmp_path / "clients", no_files(CLIENTS), at_once, in_memory)
    one_round(store, {0: Held(plain, plateau), 1: Held(None, plateau)})
    for again in (store, ClientStore(tmp_path / "clients", store.files(), at_once, in_memory)):
        kept, nothing = again.get(0), again.get(1)
        assert kept is not None
        assert (vectors(kept), nothing) == ([[1, 2, 3]], Held(None, plateau))
    check_files(tmp_path / "clients", store.files(), 3)


@pytest.mark.parametrize("in_memory", [True, False])
def test_within_a_round_everybody_holds_what_they_held_before_it(in_memory: bool, tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        store = ClientStore(tmp_path / "clients", no_files(CLIENTS), thread.submit, in_memory)
        one_round(store, {0: held(1), 1: held(5)})
        store.put(1, held(9).params)
        store.put(2, held(7).params)
        found = store.get(1)
        assert found is not None
        assert vectors(found)[0] == [5, 6]
        assert store.get(2) is None
        store.end_round({1: Plateau(0.5, 2.0, 3), 2: Plateau(0.25, 1.0, 1)})
        found = store.get(2)
        assert found is not None
        assert (vectors(found)[1], found.plateau) == ([9], Plateau(0.25, 1.0, 1))
        assert store.get(0) is not None


def test_no_more_than_two_files_wait_to_be_written(tmp_path: Path) -> None:
    waiting: list[Future[Any]] = []
    with ThreadPoolExecutor(1) as thread:

        def slow(work: Callable[..., Any], *what: Any) -> Future[Any]:
            def later() -> Any:
                time.sleep(0.02)
                return work(*what)

            waiting.append(thread.submit(later))
            assert sum(not one.done() for one in waiting) <= 2
            return waiting[-1]

        store = ClientStore(tmp_path / "clients", no_files(20), slow)
        for client in range(20):
            store.put(client, held(client).params)
        store.end_round({client: held(client).plateau for client in range(20)})
    assert len(list((tmp_path / "clients").glob("*.npy"))) == 20


def test_a_file_that_cannot_be_written_ends_the_round(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as thread:
        store = ClientStore(tmp_path / "clients", no_files(CLIENTS), thread.submit)
        shutil.rmtree(tmp_path / "clients")
        store.put(0, held(0).params)
        with pytest.raises(FileNotFoundError):
            store.end_round({0: held(0).plateau})


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_damaged_file_has_a_copy_and_two_damaged_ones_are_told(in_memory: bool, tmp_path: Path) -> None:
    folder = tmp_path / "clients"
    store = ClientStore(folder, no_files(CLIENTS), at_once, in_memory)
    one_round(store, {1: held(1), 2: held(5)})
    other = folder / "2-1.npy"
    other.write_bytes(other.read_bytes()[:-1] + b"\1")  # another number, as long as before
    lost = check_files(folder, store.files(), 3)
    assert lost == {2: f"{other}: its content is not what was written"}
    found = store.get(2)
    assert found is not None
    assert vectors(found) == [[5, 6], [7]]
    (folder / "copies" / "1-1.npy").unlink()
    again = ClientStore(folder, store.files(), at_once, in_memory, lost)
    assert check_files(folder, store.files(), 3) == {}
    assert [path.read_bytes() for path in sorted(folder.glob("*.npy"))] == [
        path.read_bytes() for path in sorted((folder / "copies").iterdir())
    ]
    found = again.get(2)
    assert found is not None
    assert vectors(found) == [[5, 6], [7]]
    other.unlink()
    other.write_bytes(b"")
    (folder / "copies" / "2-1.npy").unlink()
    with pytest.raises(Damaged, match=r"2-1\.npy: its content.*; .*No such file.*copies/2-1\.npy"):
        check_files(folder, store.files(), 3)
    with pytest.raises(Damaged, match="not what was written"):
        ClientStore(folder, store.files(), at_once).get(2)
