"""Who answers nonsense, late or never is left out of the round, and everybody else goes on.

Needs flwr (requirements/flower.txt); the nodes are the app's own client in this process, without a network.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import ROOT

pytest.importorskip("flwr", reason="flwr is not installed (requirements/flower.txt)")
sys.path.insert(0, str(ROOT / "deploy" / "flower"))

from fedmatch_flower import backend, client_app
from fedmatch_flower.backend import FlowerBackend, Limits, Nodes
from fedmatch_flower.client_app import _watch as watch  # the true one
from flwr.app import Array, Error, Message, MessageType, RecordDict

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config, make_config
from fedmatch_tf.data import generator, sources
from fedmatch_tf.federation import loop, server
from fedmatch_tf.federation.records import RoundRecord
from fedmatch_tf.federation.tasks import InitTask
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import partition_spec
from fedmatch_tf.workers.inline import InlineBackend
from tests.deploy.federation import hand_out
from tests.deploy.memory_grid import MemoryGrid, Node
from tests.stand_in import MemoryStore, StandIn

ROUNDS = 3


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three clients' files, each in a folder of its own."""
    folder = tmp_path_factory.mktemp("hosts")
    config = _config(folder)
    source = sources.load_source(config.dataset, None, config.image_size, progress_for(True))
    generator.generate(partition_spec(config), source, folder, progress=progress_for(True))
    return [hand_out(folder / config.task, folder / f"host{client}", client) for client in range(3)]


def _config(folder: Path | None = None, **given: Any) -> Config:
    settings = {"num_clients": 3, "num_rounds": ROUNDS, "num_test": 50, "num_valid": 50, "helper_interval": 2, **given}
    return make_config("lc-biid-digits", dataset_path=str(folder or "datasets"), workers=3, **settings)


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in instead of a network, no waiting for what comes at once, and nothing that ends this process."""
    monkeypatch.setattr(client_app, "make_worker", lambda config, **given: StandIn(config))
    monkeypatch.setattr(client_app, "_watch", lambda seconds: nullcontext())
    for name, value in {"POLL": 0.0, "LOOK": -1.0, "PAUSE": 0.0}.items():
        monkeypatch.setattr(backend, name, value)


class Trial:
    """A federation in this process, and what its rounds came to."""

    def __init__(self, hosts: list[Path], min_clients: int = 1, time_limit: float = 60, **given: Any) -> None:
        self.config = _config(**given)
        self.nodes = {10 + client: Node(10 + client, {"partition": str(host)}) for client, host in enumerate(hosts)}
        self.grid, self.notes, self.store = MemoryGrid(self.nodes), list[str](), MemoryStore()
        self.limits = Limits(min_clients, time_limit, join_time=0)
        self.records: list[RoundRecord] = []
        self.tests_here = True

    def run(self) -> np.ndarray:
        """The global model after all rounds: sigma and psi."""
        inline = InlineBackend(lambda: StandIn(self.config))
        with inline:
            (start,) = inline.map([InitTask()])
            nodes = Nodes(self.grid, self.config, (), (), self.notes.append)
            sizes = nodes.join(self.limits)
            made = (self.limits, inline, self.store, self.notes.append, self.tests_here)
            crew = FlowerBackend(self.config, self.grid, nodes, *made)
            state = server.initial_state(self.config, start.params)
            rounds = list(loop.run(self.config, state, crew, self.store, sizes))
        self.records = [record for record, _ in rounds]
        return np.concatenate(rounds[-1][1].params.parts)

    def left_out(self) -> list[dict[int, str]]:
        return [dict(record.hosts.left_out) for record in self.records if record.hosts is not None]


def in_second_round(trial: Trial, mangle: Any, client: int = 1) -> None:
    """The client's answer to the second round's message becomes another."""

    def maybe(asked: Message, answer: Message) -> Any:
        return mangle(asked, answer) if asked.metadata.group_id == "2" else answer

    trial.nodes[10 + client].mangle = maybe


def simulated(config: Config) -> np.ndarray:
    """What the same workers come to without Flower."""
    with InlineBackend(lambda: StandIn(config)) as inline:
        (start,) = inline.map([InitTask()])
        state = server.initial_state(config, start.params)
        *_, (_, last) = loop.run(config, state, inline, MemoryStore(), dict.fromkeys(range(3), 10))
    return np.concatenate(last.params.parts)


def test_if_all_answer_it_is_the_simulated_run(hosts: list[Path]) -> None:
    trial = Trial(hosts)
    np.testing.assert_array_equal(trial.run(), simulated(trial.config))
    assert trial.left_out() == [{}, {}, {}]
    assert [dict(record.helpers) for record in trial.records] != [{}, {}, {}]


def with_about(answer: Message, **fields: Any) -> Message:
    about = json.loads(answer.content["about"]["json"])
    answer.content["about"]["json"] = json.dumps({**about, **fields})
    return answer


def with_sigma(answer: Message, change: Any) -> Message:
    content = change(answer.content["vectors"]["sigma"].data)
    answer.content["vectors"]["sigma"] = Array("uint8", (len(content),), "fedmatch", content)
    return answer


def without(answer: Message, record: str, name: str) -> Message:
    del answer.content[record][name]
    return answer


NONSENSE = {
    "expected finite numbers": lambda asked, answer: with_sigma(answer, lambda sigma: sigma[:-4] + b"\0\0\xc0\x7f"),
    "sigma: expected": lambda asked, answer: with_sigma(answer, lambda sigma: sigma[:-4]),
    "expected at most": lambda asked, answer: with_sigma(answer, lambda sigma: sigma + bytes(2**21)),
    "received round 1": lambda asked, answer: with_about(answer, round_num=0),
    "received round 2, client 2": lambda asked, answer: with_about(answer, client=2),
    "found a field": lambda asked, answer: with_about(answer, more=1),
    "a finite number": lambda asked, answer: with_about(answer, losses={"total": float("nan")}),
    "expected one score of valid, received": lambda asked, answer: with_about(answer, scored=[]),
    "examples that can be, received 3, 2, 4": lambda asked, answer: with_about(answer, num_correct=3),
    "examples that can be, received 1, 5, 4": lambda asked, answer: with_about(answer, confident_rows=5),
    "psi: expected a vector, received none": lambda asked, answer: without(answer, "vectors", "psi"),
    "embedding: expected a vector": lambda asked, answer: without(answer, "vectors", "embedding"),
    "expected the records": lambda asked, answer: Message(RecordDict(), reply_to=asked),
    "it broke": lambda asked, answer: Message(Error(1, "it broke"), reply_to=asked),
}


@pytest.mark.parametrize("why", NONSENSE)
def test_who_answers_nonsense_is_left_out_of_the_round_alone(hosts: list[Path], why: str) -> None:
    trial, absent = Trial(hosts), Trial(hosts)
    in_second_round(trial, NONSENSE[why])
    after = trial.run()
    assert [list(each) for each in trial.left_out()] == [[], [1], []]
    assert why in trial.left_out()[1][1]
    assert [record.clients for record in trial.records] == [(0, 1, 2), (0, 2), (0, 1, 2)]
    assert np.isfinite(after).all()
    in_second_round(absent, lambda asked, answer: Message(Error(1, "gone"), reply_to=asked))
    np.testing.assert_array_equal(after, absent.run())


def test_a_client_whose_examples_do_not_count_is_not_left_out(hosts: list[Path]) -> None:
    trial = Trial(hosts)
    in_second_round(trial, lambda asked, answer: with_about(answer, num_examples=0))
    trial.run()
    assert trial.left_out() == [{}, {}, {}]
    assert [record.clients for record in trial.records] == [(0, 1, 2)] * 3


def test_who_never_answers_is_left_out_when_its_time_is_over(hosts: list[Path]) -> None:
    trial = Trial(hosts, time_limit=0.3)
    in_second_round(trial, lambda asked, answer: None)
    trial.run()
    assert trial.left_out() == [{}, {1: "no answer within 0.3 seconds (time-limit)"}, {}]


def test_a_clients_watch_ends_with_its_task_however_that_ends() -> None:
    others = set(threading.enumerate())
    with suppress(DataError), watch(60):
        (timer,) = set(threading.enumerate()) - others
        raise DataError("damaged")
    timer.join(5)
    assert not timer.is_alive()


def test_who_goes_away_is_left_out_until_it_is_back_under_another_number(hosts: list[Path]) -> None:
    trial = Trial(hosts)

    def go(asked: Message, answer: Message) -> None:
        del trial.nodes[11]

    def come_back(asked: Message, answer: Message) -> Message:
        trial.nodes[44] = Node(44, {"partition": str(hosts[1])})
        return answer

    in_second_round(trial, go)
    in_second_round(trial, come_back, client=2)
    trial.run()
    assert trial.left_out() == [{}, {1: "its node is gone"}, {}]
    assert "Client 1 is node 44" in "\n".join(trial.notes)


def test_a_client_that_lost_its_memory_is_sent_everything_and_nothing_else_changes(hosts: list[Path]) -> None:
    trial = Trial(hosts)

    def forget(asked: Message, answer: Message) -> Message:
        trial.nodes[11].context.state = RecordDict()
        return answer

    in_second_round(trial, forget)
    np.testing.assert_array_equal(trial.run(), simulated(trial.config))
    assert trial.left_out() == [{}, {}, {}]


def test_with_too_few_answers_the_round_waits_and_says_for_whom(
    hosts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "REMIND", 0.0)
    trial, failures = Trial(hosts, min_clients=3), iter("12345")

    def fail(asked: Message, answer: Message) -> Message:
        return Message(Error(1, "not now"), reply_to=asked) if next(failures, None) else answer

    in_second_round(trial, fail)
    np.testing.assert_array_equal(trial.run(), simulated(trial.config))
    assert trial.left_out() == [{}, {}, {}]
    assert "Waiting for clients 1: 2 of at least 3 are there" in trial.notes


def test_two_nodes_cannot_be_one_client(hosts: list[Path]) -> None:
    trial = Trial(hosts)
    trial.nodes[99] = Node(99, {"partition": str(hosts[0])})
    np.testing.assert_array_equal(trial.run(), simulated(trial.config))
    assert any("99 says that it is client 0" in note for note in trial.notes)


def test_a_node_that_cannot_take_part_is_told_of_and_asked_again(
    hosts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "AGAIN", 0.0)
    trial, properly = Trial(hosts), Node.answer
    trial.limits = Limits(1, 60, join_time=60)
    failures = iter("12")

    def answer(node: Node, message: Message) -> Message | None:
        fails = message.metadata.message_type == MessageType.QUERY and node.node == 11 and next(failures, None)
        return Message(Error(1, "damaged"), reply_to=message) if fails else properly(node, message)

    monkeypatch.setattr(Node, "answer", answer)
    np.testing.assert_array_equal(trial.run(), simulated(trial.config))
    assert trial.notes.count("Node 11 can't take part: damaged") == 2


def test_a_message_that_flower_does_not_take_costs_nothing_but_its_answer(
    hosts: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    trial, properly, refused = Trial(hosts), MemoryGrid.push_messages, list[str]()
    trial.tests_here = False
    trial.limits = Limits(1, 60, join_time=60)

    def push(grid: MemoryGrid, messages: list[Message]) -> list[str | None]:
        (kind,) = {message.metadata.message_type for message in messages}
        names: list[str | None] = [*properly(grid, messages)]
        if kind not in refused:
            refused.append(kind)
            names[0] = None
        return names

    monkeypatch.setattr(MemoryGrid, "push_messages", push)
    trial.run()
    assert trial.left_out() == [{0: "its message could not be sent"}, {}, {}]
    assert trial.records[0].test_acc == 0.5
    assert sorted(refused) == ["evaluate", "query", "train"]


@pytest.mark.parametrize(("classes", "shape"), [(("cold", "ill"), ()), ((), (28, 28, 1))])
def test_not_the_first_client_but_the_servers_data_say_what_images_are(
    hosts: list[Path], classes: tuple[str, ...], shape: tuple[int, ...]
) -> None:
    trial = Trial(hosts)
    nodes = Nodes(trial.grid, trial.config, classes, shape, trial.notes.append)
    nodes.look()
    assert nodes.hellos == {}
    assert f"can't take part: expected images {list(shape or (32, 32, 3))} of classes" in trial.notes[0]


def test_what_is_sent_is_what_is_counted_and_a_little_frame(hosts: list[Path]) -> None:
    trial = Trial(hosts, s2c_content="counted")
    trial.run()
    for record in trial.records:
        assert record.hosts is not None
        assert record.c2s.bytes < record.hosts.c2s < record.c2s.bytes + 1500


def test_without_test_data_at_the_server_clients_count_for_it(hosts: list[Path]) -> None:
    trial = Trial(hosts)
    trial.tests_here = False
    after = trial.run()
    np.testing.assert_array_equal(after, simulated(trial.config))  # a test changes nothing
    theta = after[:1000] + after[1000:]
    # Three clients with five passes of ten images each, five of them right; losses are theta's first elements.
    assert trial.records[-1].test_acc == 0.5
    assert trial.records[-1].test_loss == pytest.approx(theta[:5].mean(), rel=1e-6)
