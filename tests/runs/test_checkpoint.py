"""A checkpoint's file: whatever bit of it is flipped, the one before is taken, and nothing of the damage is parsed."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmatch_tf.algorithms.algorithm import Best, ServerState
from fedmatch_tf.base import atomic
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.federation.records import RoundRecord
from fedmatch_tf.federation.server import Held
from fedmatch_tf.learners import schedule
from fedmatch_tf.networks.params import Params
from fedmatch_tf.runs import checkpoint
from fedmatch_tf.runs.checkpoint import Checkpoint
from fedmatch_tf.runs.partition_folder import DataAbout
from fedmatch_tf.runs.records import encode
from fedmatch_tf.runs.store import ClientStore, Damaged, check_files, no_files
from tests.results.made_up_runs import record
from tests.runs.test_store import at_once, one_round


def vector(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


PARAMS = Params(vector(1, 2, 3), vector(4, 5))


SETTINGS = {"task": "lc-biid-c10", "num_clients": 2, "num_rounds": 3, "seed": 1}


def round_of(number: int) -> RoundRecord:
    cost = {"sum": 1.5, "sigma": 1.0, "psi": 0.5, "helpers": 0.0, "bytes": 100}
    scores = {"train_loss": 2.5, "valid_loss": 2.3, "valid_acc": 0.1}
    clients = [{"client": client, "s2c": cost, "c2s": cost, "lr": 0.1, "scores": scores} for client in (0, 1)]
    more = {"s2c": cost, "c2s": cost, "helpers": {"0": [1]}, "actors": {"clients": clients, "server": {}}}
    return record(number, 0.1, **more)


def saved(folder: Path) -> np.ndarray:
    """Two checkpoints of a tiny run, after one and after two rounds; the clients' table of the newest."""
    store, records = ClientStore(folder / "clients", no_files(2), at_once), b""
    for done in (1, 2):
        one_round(store, {0: Held(PARAMS, schedule.start(0.1, 5))})
        best = Best(0, 0.5, vector(9, 9, 9))
        state = ServerState(done, PARAMS, schedule.start(0.1, 5), {0: vector(0.25, 0.75)}, (0.1,), best, (vector(7),))
        about = DataAbout((8, 8, 3), ("cat", "dog"))
        files = store.files()
        records += encode(round_of(done - 1))
        checkpoint.save(folder, Checkpoint(SETTINGS, {"numpy": "1"}, "f" * 64, about, state, files, records))
        if done == 1:
            store.keep(files)
    return store.files()


def test_plain_parameters_are_sigma_alone(tmp_path: Path) -> None:
    saved(tmp_path)
    found, *_ = checkpoint.load(tmp_path)
    checkpoint.save(tmp_path, found._replace(state=found.state._replace(params=Params(vector(1, 2, 3)))))
    assert checkpoint.load_model(tmp_path).state.params.psi is None
    with np.load(tmp_path / "state.npz") as file:
        assert (file["sigma"].tolist(), "psi" in file) == ([1, 2, 3], False)


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    saved(tmp_path)
    found, problem, _ = checkpoint.load(tmp_path)
    assert problem is None
    assert found.state.rounds_done == 2
    assert [part.tolist() for part in found.state.params.parts] == [[1, 2, 3], [4, 5]]
    assert found.state.best is not None
    assert (*found.state.best[:2], found.state.best.theta.tolist()) == (0, 0.5, [9, 9, 9])
    assert (found.state.device_lrs, found.state.memory[0].tolist()) == ((0.1,), [7])
    assert found.data == ((8, 8, 3), ("cat", "dog"))
    assert found.records == encode(round_of(0)) + encode(round_of(1))
    with np.load(tmp_path / "state.npz") as file:  # and NumPy reads it, as the interface says
        assert file["sigma"].tolist() == [1, 2, 3]


def flipped(content: bytes, number: int) -> bytes:
    """The content with one of its bits flipped."""
    damaged = bytearray(content)
    damaged[number // 8] ^= 1 << number % 8
    return bytes(damaged)


def test_a_flipped_bit_or_a_missing_end_falls_back_to_the_checkpoint_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path)
    path = tmp_path / "state.npz"
    whole = path.read_bytes()
    for number in range(8 * len(whole)):
        assert checkpoint._seal(flipped(whole, number)) != flipped(whole, number)[-checkpoint.SEAL :]
    monkeypatch.setattr("json.loads", lambda text: pytest.fail("damage is parsed"))
    damaged = [flipped(whole, number) for number in range(0, 8 * len(whole), 101)]
    for content in (*damaged, *(whole[:length] for length in range(0, len(whole), 41))):
        path.write_bytes(content)
        with pytest.raises(Damaged, match="checksum"):
            checkpoint._read(path)
    monkeypatch.undo()
    found, problem, _ = checkpoint.load(tmp_path)
    assert (found.state.rounds_done, problem) == (1, f"{path}: its content is not what was written (checksum)")


def test_every_flipped_bit_of_a_clients_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = saved(tmp_path)
    monkeypatch.setattr(atomic, "DIRECT", 0)  # so as not to wait for the disk a thousand times
    path = tmp_path / "clients" / "0-2.npy"
    whole = path.read_bytes()
    (path.parent / "copies" / path.name).unlink()
    check_files(path.parent, files, 5)
    assert np.load(path).tolist() == [1, 2, 3, 4, 5]
    for number in range(8 * len(whole)):
        path.unlink()  # a file that is written over may have to wait for the disk
        path.write_bytes(flipped(whole, number))
        with pytest.raises(Damaged, match="not what was written"):
            check_files(path.parent, files, 5)
    for content in (whole[:-1], whole[:-4], whole + b"0000", b""):
        path.write_bytes(content)
        with pytest.raises(Damaged):
            check_files(path.parent, files, 5)


def test_without_a_whole_one_the_message_names_both(tmp_path: Path) -> None:
    saved(tmp_path)
    for name in ("state.npz", "previous.npz"):
        content = bytearray((tmp_path / name).read_bytes())
        content[50] ^= 1
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=r"state.npz: its content is not .*previous.npz: its content is not"):
        checkpoint.load(tmp_path)


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Edits a checkpoint as somebody would who knows its format: its checksum is right."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    about = json.loads(arrays["about"].tobytes())
    change(about, arrays)
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    archive = io.BytesIO()
    np.savez(archive, **arrays)
    path.write_bytes(checkpoint._sealed(archive))


def put(place: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    """Sets a field of `about`, or an array; None takes it away."""

    def change(about: dict[str, Any], arrays: dict[str, Any]) -> None:
        *path, last = place.split(".")
        target: Any = arrays if path == ["arrays"] else about
        for step in path if path != ["arrays"] else ():
            target = target[step]
        if value is None:
            del target[last]
        else:
            target[last] = value

    return change


NAN, HUGE = float("nan"), 10**400
EDITS = [
    ("settings", [1, 2], r"about.settings: expected a table, received \[1, 2\]"),
    ("settings.num_clients", "two", "settings.num_clients: expected a whole number"),
    ("settings.num_clients", 3, "clients: expected 3 rows, one per client, received 2"),
    ("settings.num_rounds", 1, "rounds_done: expected a whole number from 0 to 1, received 2"),
    ("settings.task", None, "settings.task: expected a text"),
    ("versions", "2.15", "about.versions: expected a table"),
    ("versions.numpy", 1, "about.versions.numpy: expected a text, received 1"),
    ("partitions", 5, "about.partitions: expected a text"),
    ("partitions", None, "about: expected partitions, found no such field"),
    ("plateau", [0.1], "about.plateau: expected a list of 3"),
    (
        "plateau",
        [HUGE, 1.0, 5],
        r"about.plateau\[0\]: expected a number of 0 or greater, received a whole number of more than 100",
    ),
    ("plateau", [NAN, 1.0, 5], r"about.plateau\[0\]: expected a number of 0 or greater, received nan"),
    ("plateau", [0.1, 1.0, 2.5], r"about.plateau\[2\]: expected a whole number"),
    ("device_lrs", [0.1, None], r"about.device_lrs\[1\]: expected a finite number, received None"),
    ("data", None, "about: expected data, found no such field"),
    ("data", [[8, 8, 3], [1, 2]], r"about.data\[1\]\[0\]: expected a text, received 1"),
    ("data", [[8, 8], ["a", "b"]], r"about.data\[0\]: expected a list of 3"),
    ("data", [[8, 8, 3], ["a"]], r"about.data\[1\]: expected at least two classes"),
    ("data", [[2**20, 2**20, 3], ["a", "b"]], r"about.data\[0\]\[0\]: expected a whole number from 1 to 1024"),
    ("format", None, "KeyError: 'format'"),
    ("best", [0, NAN], r"about.best\[1\]: expected a finite number"),
    ("extra", 1, "about: found a field 'extra' that there is not"),
    ("arrays.sigma", None, "expected an array sigma, found none"),
    ("arrays.sigma", np.array([1, NAN, 3], np.float32), "sigma: expected finite numbers, received NaN or infinity"),
    ("arrays.sigma", np.zeros((3, 1), np.float32), r"sigma: expected float32 \[n\], received float32 \[3, 1\]"),
    ("arrays.psi", np.zeros(4, np.float32), "psi: expected 1 to 3 numbers, as sigma has, received 4"),
    ("arrays.best", None, "best: expected its weights with its round and loss"),
    ("arrays.best", np.zeros(2, np.float32), "best: expected 3 numbers, received 2"),
    ("arrays.memory_0", np.array([np.inf], np.float32), "memory_0: expected finite numbers"),
    ("arrays.memory_3", np.zeros(1, np.float32), "expected an array memory_1, found none"),
    ("arrays.embeddings", np.float32(1), "embeddings: expected 1 rows of finite float32"),
    ("arrays.embeddings", np.zeros((1, 7), np.float32), "embeddings: expected . numbers per client, one per class"),
    ("arrays.rounds_done", np.array(-1), "rounds_done: expected a whole number from 0 to 3, received -1"),
    ("arrays.rounds_done", np.array(99), "rounds_done: expected a whole number from 0 to 3, received 99"),
    ("arrays.rounds_done", np.array(np.inf), "rounds_done: expected a whole number, received float64"),
    ("arrays.rounds_done", np.array(1), r"records: expected 1 rounds, received 2 lines"),
    ("arrays.records", np.frombuffer(b"no json\n" * 2, np.uint8), "records: line 1: expected JSON"),
    ("arrays.records", np.zeros(3, np.float32), r"records: expected text, received float32 \[3\]"),
    ("arrays.embedded", np.array([7]), "embedded: expected a whole number from 0 to 1, received 7"),
    ("arrays.embedded", np.array(["a"]), "embedded: expected different numbers of clients"),
    ("arrays.embeddings", np.zeros((2, 2), np.float32), "embeddings: expected 1 rows"),
    ("arrays.clients", np.zeros(2), "clients: expected a table of the clients' files"),
]


@pytest.mark.parametrize(("place", "value", "message"), EDITS)
def test_an_edited_checkpoint_is_refused_and_nothing_is_changed(
    place: str, value: Any, message: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    rewrite(tmp_path / "state.npz", put(place, value))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    with pytest.raises(DataError, match=message) as error:
        checkpoint.load(tmp_path)
    assert "It was edited" in str(error.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("clients", 0), "x", r"round 1.clients\[0\]: expected a whole number, received 'x'"),
        (("clients", 0), 2, "round 1: expected clients from 0 to 1, received 2"),
        (("clients", 0), True, r"round 1.clients\[0\]: expected a whole number, received True"),
        (("actors", "clients", 0, "client"), 2, "round 1: expected clients from 0 to 1, received 2"),
        (("actors", "clients", 0, "s2c"), [1], r"round 1.actors.clients\[0\].s2c: expected a table, received \[1\]"),
        (
            ("actors", "clients", 1, "scores", "valid_loss"),
            HUGE,
            r"valid_loss: expected a finite number, received a whole",
        ),
        (("clients",), [], "round 1: expected clients, found none"),
        (("helpers",), {"-1": [0]}, "a name in round 1.helpers: expected a whole number, received '-1'"),
        (("helpers",), {"0": ["1x"]}, r"round 1.helpers.0\[0\]: expected a whole number, received '1x'"),
        (("helpers",), {"7": [0]}, "round 1: expected clients from 0 to 1, received 7"),
        (("round",), 5, "round 1: expected the number 0, received 5"),
        (("test_acc",), None, "round 1.test_acc: expected a finite number, received None"),
        (("test_acc",), 1.5, "round 1.test_acc: expected a share from 0 to 1, received 1.5"),
        (("seconds",), "long", "round 1.seconds: expected a finite number, received 'long'"),
        (("seconds",), -5, "round 1.seconds: expected a number of 0 or greater, received -5"),
        (("train_loss",), {"total": "low"}, "round 1.train_loss.total: expected a finite number, received 'low'"),
        (("more",), 1, "round 1: found a field 'more'"),
    ],
)
def test_edited_records_with_a_right_checksum_are_refused(
    place: tuple[Any, ...], value: Any, message: str, tmp_path: Path
) -> None:
    saved(tmp_path)
    fields = json.loads(encode(round_of(0)))
    target: Any = fields
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    content = json.dumps(fields).encode() + b"\n" + encode(round_of(1))
    rewrite(tmp_path / "state.npz", put("arrays.records", np.frombuffer(content, np.uint8)))
    with pytest.raises(DataError, match=message):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("content", [b"[1, 2]", b"no json", b'{"format": ' + b"9" * 5000 + b"}"])
def test_what_is_sealed_and_no_table_was_edited(content: bytes, tmp_path: Path) -> None:
    saved(tmp_path)
    with np.load(tmp_path / "state.npz") as file:
        arrays = {name: file[name] for name in file.files}
    archive = io.BytesIO()
    np.savez(archive, **{**arrays, "about": np.frombuffer(content, np.uint8)})
    (tmp_path / "state.npz").write_bytes(checkpoint._sealed(archive))
    with pytest.raises(DataError, match="It was edited, and can't be used"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("what", ["unpacks to more than it is", "holds no array"])
def test_a_sealed_archive_that_no_checkpoint_can_be_was_edited(what: str, tmp_path: Path) -> None:
    saved(tmp_path)
    packed, content = io.BytesIO(), io.BytesIO()
    np.save(content, np.zeros(10**6, np.float32))
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("large.npy" if what == "unpacks to more than it is" else "large", content.getvalue())
    (tmp_path / "state.npz").write_bytes(checkpoint._sealed(packed))
    message = "its arrays: expected at most" if what == "unpacks to more than it is" else "expected arrays, each once"
    with pytest.raises(DataError, match=f"{message}.*It was edited"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize("where", ["its own header", "the archive's directory, too"])
def test_a_sealed_checkpoint_that_declares_364_tib_was_edited(where: str, tmp_path: Path) -> None:
    saved(tmp_path)
    declared, archive, header = 364 * 2**40, io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (declared // 4,)})
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("sigma.npy", header.getvalue() + bytes(12))
        if where != "its own header":
            file.filelist[0].file_size = len(header.getvalue()) + declared
    (tmp_path / "state.npz").write_bytes(checkpoint._sealed(archive))
    message = "sigma.npy: expected 400" if where == "its own header" else r"expected at most \d+ bytes, received 400"
    with pytest.raises(DataError, match=f"{message}.*It was edited, and can't be used"):
        checkpoint.load(tmp_path)


def test_too_little_memory_for_a_checkpoint_is_no_edit_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path)

    def no_room(*arguments: Any, **more: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("zipfile.ZipFile", no_room)
    with pytest.raises(MemoryError):
        checkpoint.load(tmp_path)
