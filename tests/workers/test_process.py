"""Worker processes: results, faults and what is left behind, with a worker that needs no network."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from fedmatch_tf.algorithms.wire import full_broadcast
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import make_config
from fedmatch_tf.federation.tasks import ClientTask, TrainingError
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params
from fedmatch_tf.workers import sharing
from fedmatch_tf.workers.inline import InlineBackend
from fedmatch_tf.workers.process import ProcessBackend
from tests.conftest import kill, processes
from tests.stand_in import SIZE, make_stand_in

CONFIG = make_config("lc-biid-digits")
PARAMS = Params(np.linspace(0, 1, SIZE, dtype=np.float32), np.zeros(SIZE, np.float32))


class Record(NamedTuple):
    name: str
    arrays: tuple[np.ndarray, ...]


@given(st.lists(npst.arrays(st.sampled_from(["<f4", "u1", "<i8"]), npst.array_shapes(min_dims=0, min_side=0))))
@pytest.mark.parametrize("large", [0, 2**16])  # the least size of an array with memory of its own
def test_a_record_arrives_as_it_was_sent(large: int, arrays: list[np.ndarray]) -> None:
    ours, theirs = sharing_pipe()
    arrays = [*arrays, np.arange(2**18, dtype="<f4")]
    record = Record(
        "x" * 10,
        tuple(arrays) + tuple(array.T for array in arrays) + tuple(array[::2] for array in arrays if array.ndim),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharing, "_LARGE", large or 1)
        packer, receiver = sharing.Packer(), sharing.Receiver()
        for _ in range(2):  # the second time, arrays are there already
            sharing.send(ours, packer.pack(record))
            received = receiver.receive(theirs)
            assert received.name == record.name
            for sent, got in zip(record.arrays, received.arrays):
                assert got.dtype == sent.dtype
                np.testing.assert_array_equal(got, sent)
            with pytest.raises(ValueError, match="read-only"):  # others may read the same memory
                received.arrays[len(arrays) - 1][:] = 7
    ours.close()
    theirs.close()


def sharing_pipe() -> tuple[Any, Any]:
    return multiprocessing.Pipe()


def test_arrays_do_not_go_through_the_pipe() -> None:
    ours, theirs = sharing_pipe()
    packer = sharing.Packer()
    parts = packer.pack(Record("large", (np.zeros(10**6, np.float32), np.zeros(10**6, np.float32))))
    rest, *arrays = (part.num_bytes for part in parts)
    assert rest < 2000
    assert arrays == [4 * 10**6, 4 * 10**6]
    sharing.send(ours, parts)  # would block if it went through the pipe, as nobody reads
    packer.forget()
    assert sharing.Receiver().receive(theirs).arrays[1].shape == (10**6,)
    ours.close()
    theirs.close()


def array_of(number: int) -> np.ndarray:
    return np.full(2**16, number, np.float32)


def inodes(parts: Sequence[sharing.Part]) -> set[int]:
    """Of the memories of a message's arrays."""
    return {os.fstat(part.memory.descriptor).st_ino for part in parts[1:]}


def test_an_array_for_several_receivers_is_copied_once_and_few_are_held() -> None:
    packer, weights = sharing.Packer(), [array_of(number) for number in range(12)]

    def inode(array: np.ndarray) -> int:
        parts = packer.pack(Record("one", (array,)))
        packer.drop(parts)
        (found,) = inodes(parts)
        return found

    first = inode(weights[0])
    assert inode(weights[0]) == first
    assert len({inode(array) for array in weights}) == 8
    packer.forget()
    assert len({inode(array) for array in weights * 2}) == 8  # the same ones


def test_memory_is_used_again_when_the_last_view_of_it_is_gone_and_not_before() -> None:
    ours, theirs = sharing_pipe()
    packer, receiver, held, used = sharing.Packer(), sharing.Receiver(), {}, []
    for number in range(6):
        parts = packer.pack(Record("one", (array_of(number),)))
        used.append(inodes(parts))
        sharing.send(ours, parts)
        packer.forget()
        received = receiver.receive(theirs)
        if number in (1, 3):
            held[number] = received.arrays[0].reshape(256, 256)[5:, 3]  # a view of a view
        del received
    assert used[0] == used[1], "nobody reads the first any more"
    assert used[1] != used[2] == used[3] != used[4] == used[5]
    for number, view in held.items():
        assert (view == number).all()
    del held[1], view
    parts = packer.pack(Record("two", (array_of(6), array_of(7))))
    assert inodes(parts) == used[1] | used[4]
    ours.close()
    theirs.close()


def test_what_was_packed_before_a_receiver_died_still_arrives_and_its_memory_is_not_used_again() -> None:
    ours, theirs = sharing_pipe()
    packer = sharing.Packer()
    never_read = packer.pack(Record("one", (array_of(1),)))
    ahead = packer.pack(Record("two", (array_of(2),)))
    packer.renew()
    later = packer.pack(Record("three", (array_of(3),)))
    assert not inodes(later) & (inodes(never_read) | inodes(ahead))
    sharing.send(ours, ahead)
    assert (sharing.Receiver().receive(theirs).arrays[0] == 2).all()
    ours.close()
    theirs.close()


def tasks(count: int, round_num: int = 0) -> Iterator[ClientTask]:
    for client in range(count):
        yield ClientTask(round_num, client, 0, full_broadcast(PARAMS), Plateau(0.1, 1.0, 1), 0.1)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def _nothing_is_left_behind() -> Iterator[None]:
    before = open_files()
    yield
    gc.collect()
    assert children() == []
    assert sum((open_files() - before).values()) <= 1  # the resource tracker's, once started


def open_files() -> Counter[str]:
    """What this process has open, by what it is; pipes and sockets have numbers."""
    found: Counter[str] = Counter()
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists them
            found[str(path.readlink())] += 1
    return found


def children() -> list[int]:
    """Workers among this process's children (the resource tracker of multiprocessing stays)."""
    own = (process for process in processes() if process.parent == os.getpid())
    return [process.pid for process in own if b"spawn_main" in process.command]


def assert_workers(count: int) -> None:
    """As many workers within 5 seconds: a process has its command line a moment after it was started."""
    for _ in range(100):
        if len(children()) == count:
            break
        time.sleep(0.05)
    assert len(children()) == count


def backend(notes: list[str], workers: int = 2, timeout: float = 60.0, **environment: str) -> ProcessBackend:
    return ProcessBackend(partial(make_stand_in, CONFIG), [environment] * workers, timeout, 3, notes.append)


def expected(count: int, round_num: int = 0) -> list[Any]:
    with InlineBackend(partial(make_stand_in, CONFIG)) as backend:
        return list(backend.map(tasks(count, round_num)))


def assert_same(results: list[Any], wanted: list[Any]) -> None:
    assert [result.client for result in results] == [result.client for result in wanted]
    for ours, theirs in zip(results, wanted):
        np.testing.assert_array_equal(ours.sigma, theirs.sigma)
        assert (ours.c2s, ours.losses) == (theirs.c2s, theirs.losses)


def in_order(results: Iterator[Any]) -> list[Any]:
    return sorted(results, key=lambda result: result.client)


@pytest.mark.parametrize("workers", [1, 3])
def test_every_task_has_its_result_whoever_runs_it(workers: int, notes: list[str]) -> None:
    with backend(notes, workers) as pool:
        assert_workers(workers)
        for round_num, count in enumerate((5, 0, 1, 7)):
            assert_same(in_order(pool.map(tasks(count, round_num))), expected(count, round_num))
    assert notes == []


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("raise", "round 1, client 2: ValueError: a fault that was asked for; trying again in a new worker"),
        ("kill", "round 1, client 2: WorkerDied: was killed by SIGKILL (out of memory?); trying again"),
        ("memory", "round 1, client 2: "),
        ("hang", "round 1, client 2: TimeoutError: no answer for 8 seconds (--task-timeout); trying again"),
    ],
)
def test_a_fault_changes_nothing_but_the_time(fault: str, said: str, notes: list[str]) -> None:
    wanted = expected(5)
    Path("fault-0-2").write_text(fault)
    with backend(notes, timeout=8.0 if fault == "hang" else 60.0) as pool:
        assert_same(in_order(pool.map(tasks(5))), wanted)
        assert_workers(2)
    assert notes[0].startswith(said)
    if fault == "raise":
        assert "tests/stand_in.py" in notes[1]
    if fault == "memory":
        assert "MemoryError" in notes[0]


@pytest.mark.parametrize("fault", ["raise", "exit", "kill"])
def test_after_the_last_try_the_cause_is_raised(fault: str, notes: list[str]) -> None:
    Path("fault-0-2").write_text(f"{fault} always")
    with backend(notes) as pool, pytest.raises(TrainingError) as error:
        list(pool.map(tasks(5)))
    assert "round 1, client 2" in str(error.value)
    assert "round 1, client 2 failed 3 times" in str(error.value)
    if fault == "raise":
        assert "Traceback (most recent call last)" in str(error.value)
        assert 'ValueError("a fault that was asked for")' in str(error.value)
    elif fault == "exit":
        assert "round 1, client 2: SystemExit: 0\n" in str(error.value)
    else:
        assert "was killed by SIGKILL" in str(error.value)
    assert sum("trying again" in note for note in notes) == 2


def test_a_task_that_wants_to_end_this_process_is_an_error(notes: list[str]) -> None:
    Path("fault-0-2").write_text("exit")
    with InlineBackend(partial(make_stand_in, CONFIG)) as pool, pytest.raises(TrainingError, match="SystemExit: 0"):
        list(pool.map(tasks(5)))


def test_a_users_mistake_is_not_tried_again(notes: list[str]) -> None:
    Path("fault-0-2").write_text("data always")
    with backend(notes) as pool, pytest.raises(DataError, match=r"^a user's mistake$"):
        list(pool.map(tasks(5)))
    assert notes == []


@pytest.mark.parametrize("fault", ["raise", "kill", "hang"])
def test_a_worker_that_does_not_start_is_replaced(fault: str, notes: list[str]) -> None:
    Path("fault-start").write_text(fault)
    with backend(notes, workers=1, timeout=8.0 if fault == "hang" else 60.0) as pool:
        results = in_order(pool.map(tasks(5)))
    assert_same(results, expected(5))
    assert notes[0].startswith("start of worker 0: ")


def fail_first(folder: str) -> Any:
    """A worker whose slot fails to start the first time."""
    slot = multiprocessing.current_process().name
    marker = Path(folder) / slot
    if not marker.exists():
        marker.touch()
        raise ValueError("first start")
    return make_stand_in(CONFIG)


def test_failed_starts_are_counted_for_each_worker(notes: list[str], tmp_path: Path) -> None:
    with ProcessBackend(partial(fail_first, str(tmp_path)), [{}] * 3, 60.0, 2, notes.append) as pool:
        while sum("first start" in note and "trying again" in note for note in notes) < 3:
            assert len(list(pool.map(tasks(5)))) == 5


def test_a_time_out_of_years_is_one(notes: list[str]) -> None:
    with backend(notes, workers=1, timeout=3e8) as pool:
        assert len(list(pool.map(tasks(1)))) == 1


def test_workers_that_never_start_end_the_run(notes: list[str]) -> None:
    Path("fault-start").write_text("raise always")
    with backend(notes) as pool, pytest.raises(TrainingError, match=r"start of worker . failed 3 times"):
        list(pool.map(tasks(5)))


def test_a_worker_that_dies_between_two_tasks_is_replaced(notes: list[str]) -> None:
    with backend(notes) as pool:
        list(pool.map(tasks(5)))
        kill(children())
        time.sleep(0.2)
        assert_same(in_order(pool.map(tasks(5))), expected(5))


def test_results_nobody_waits_for_do_not_turn_up_later(notes: list[str]) -> None:
    with backend(notes, FEDMATCH_SECONDS="0.2") as pool:
        abandoned = pool.map(tasks(6))
        next(abandoned)
        abandoned.close()  # type: ignore[attr-defined]
        assert_same(in_order(pool.map(tasks(4, round_num=1))), expected(4, round_num=1))


def test_tasks_are_made_as_they_are_needed_and_one_ahead(notes: list[str]) -> None:
    taken: list[int] = []

    def watched() -> Iterator[ClientTask]:
        for task in tasks(9):
            taken.append(task.client)
            yield task

    with backend(notes, workers=2) as pool:
        for done, _ in enumerate(pool.map(watched()), start=1):
            # Two are being worked on and one waits, packed; a result may be here before its worker has the next task.
            assert len(taken) <= done + 3
    assert len(taken) == 9


class Environment:
    """Says what it sees of its environment."""

    def run(self, name: str) -> str | None:
        return os.environ.get(name)


def test_a_worker_has_its_own_environment(notes: list[str]) -> None:
    environments = [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "3"}]
    with ProcessBackend(Environment, environments, 60.0, 3, notes.append) as pool:
        seen: set[str] = set()
        while len(seen) < 2:
            seen |= set(pool.map(["CUDA_VISIBLE_DEVICES"] * 4))
    assert seen == {"0", "3"}
    assert os.environ.get("CUDA_VISIBLE_DEVICES") is None
