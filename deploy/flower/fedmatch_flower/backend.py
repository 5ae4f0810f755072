"""A backend of the package's rounds whose clients are Flower's nodes; all else runs in the server's own process.

A client that does not answer properly is left out of the round, and the record says why, as long as enough others do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from flwr.app import Message, MessageType
from flwr.serverapp import Grid

from fedmatch_flower import messages, vectors
from fedmatch_flower.messages import Hello, Lacks, Question, Test, Tested
from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.base.errors import DataError, printable, shortened
from fedmatch_tf.config import Config
from fedmatch_tf.config.resume import INPUT_PATHS, OF_MACHINE
from fedmatch_tf.federation.crew import Backend
from fedmatch_tf.federation.scoring import client_splits
from fedmatch_tf.federation.server import Store
from fedmatch_tf.federation.tasks import (
    ClientResult,
    ClientTask,
    ConfusionTask,
    EvalResult,
    EvalTask,
    LeftOut,
    TrainingError,
)
from fedmatch_tf.networks.params import Params

POLL = 0.2  # seconds between two looks for answers
LOOK = 3.0  # seconds between two looks at who is connected
REMIND = 30.0  # seconds between two remarks on who is waited for
PAUSE = 10.0  # seconds before a task is sent again
HELLO = 120.0  # seconds that a new node may take to say who it is
AGAIN = 60.0  # seconds before a node that can't take part is asked again


@dataclass(frozen=True)
class Limits:
    """What the server waits for."""

    min_clients: int
    time_limit: float  # seconds for a client's answer
    join_time: float  # seconds that the first round waits for more than min_clients


class Nodes:
    """Who is connected, and which client each node is.

    Args:
        classes: of the federation; none: those of the first client.
        shape: of its images; of no dimensions: that of the first client's.
    """

    def __init__(
        self, grid: Grid, config: Config, classes: Sequence[str], shape: Sequence[int], note: Callable[[str], None]
    ) -> None:
        self._grid, self._config, self._note = grid, config, note
        self.classes, self._shape = tuple(classes), tuple(shape)
        self._asked: dict[str, tuple[int, float]] = {}  # message -> node, and until when
        self._refused: dict[int, float] = {}  # node -> when it is asked again
        self._claims: dict[int, Hello] = {}  # node -> the client that it says it is, while another node is that
        self._told: set[int] = set()
        self._looked = 0.0
        self.online: set[int] = set()
        self.node_of: dict[int, int] = {}  # client -> node
        self.hellos: dict[int, Hello] = {}  # client -> what it said
        self.holds: dict[int, str] = {}  # client -> digest of the parameters that it holds, as far as is known

    def look(self) -> None:
        """Sees who has come and gone; asks newcomers who they are."""
        if time.monotonic() - self._looked > LOOK:
            self._looked = time.monotonic()
            self.online = set(self._grid.get_node_ids())
            self._refused = {node: when for node, when in self._refused.items() if when > time.monotonic()}
            known = {*self.node_of.values(), *self._refused, *self._claims, *(node for node, _ in self._asked.values())}
            question = messages.pack(Question(sent_config(self._config), self.classes))
            asked = [Message(question, node, MessageType.QUERY, ttl=HELLO) for node in sorted(self.online - known)]
            for message, identity in zip(asked, self._grid.push_messages(asked) if asked else ()):
                if identity is not None:  # else it is asked again
                    self._asked[identity] = message.metadata.dst_node_id, time.monotonic() + HELLO
        for reply in self._grid.pull_messages(list(self._asked)) if self._asked else ():
            node, _ = self._asked.pop(reply.metadata.reply_to_message_id)
            self._take_in(node, reply)
        for identity, (node, until) in list(self._asked.items()):
            if time.monotonic() > until or node not in self.online:
                del self._asked[identity]
        self._settle()

    def _take_in(self, node: int, reply: Message) -> None:
        try:
            if reply.has_error():
                raise DataError(reply.error.reason)
            hello, _ = messages.unpack(Hello, reply.content, messages.SMALL)
            self._check(hello)
        except DataError as error:
            self._refused[node] = time.monotonic() + AGAIN
            self._note(f"Node {node} can't take part: {said(error)}")
            return
        self._claims[node] = hello

    def _settle(self) -> None:
        """A client is the node that says so, unless another one is it already: until that is gone."""
        for node, hello in list(self._claims.items()):
            if node not in self.online:
                del self._claims[node]
            elif not self.connected(hello.client):
                del self._claims[node]
                self._told.discard(node)
                self._know(node, hello)
            elif node not in self._told:
                self._told.add(node)
                other = self.node_of[hello.client]
                self._note(f"Node {node} says that it is client {hello.client}, as node {other} does: it has to wait")

    def _know(self, node: int, hello: Hello) -> None:
        self.node_of[hello.client], self.hellos[hello.client] = node, hello
        self.holds[hello.client] = hello.holds
        self._note(f"Client {hello.client} is node {node}, with {hello.num_examples} images")

    def _check(self, hello: Hello) -> None:
        if hello.client >= self._config.num_clients or hello.num_examples == 0:
            raise DataError(
                f"expected clients 0 to {self._config.num_clients - 1} with images, received client {hello.client} "
                f"with {hello.num_examples}"
            )
        self.classes, self._shape = self.classes or hello.classes, self._shape or hello.image_shape
        if (self.classes, self._shape) != (hello.classes, hello.image_shape):
            raise DataError(
                f"expected images {list(self._shape)} of classes {', '.join(self.classes)}, received "
                f"{list(hello.image_shape)} of {', '.join(hello.classes)}"
            )

    def connected(self, client: int) -> bool:
        """Whether the client's node is there."""
        return self.node_of.get(client) in self.online

    def join(self, limits: Limits) -> dict[int, int]:
        """Waits for the first round's clients; the examples of each."""
        began, told = time.monotonic(), float("-inf")
        while True:
            self.look()
            missing = [client for client in range(self._config.num_clients) if not self.connected(client)]
            waited = time.monotonic() - began
            there = self._config.num_clients - len(missing)
            if not missing or (there >= limits.min_clients and waited > limits.join_time):
                return {client: hello.num_examples for client, hello in self.hellos.items()}
            if time.monotonic() - told > REMIND:
                told = time.monotonic()
                self._note(waiting(missing, there, limits.min_clients))
            time.sleep(POLL)


def sent_config(config: Config) -> dict[str, Any]:
    """The settings as clients are told them, without those of the server's machine."""
    kept_here = (INPUT_PATHS | OF_MACHINE) - {"threads_per_worker"}
    return {name: value for name, value in asdict(config).items() if name not in kept_here}


def waiting(missing: Iterable[int], there: int, min_clients: int) -> str:
    """For whom the server waits."""
    return f"Waiting for clients {', '.join(map(str, missing))}: {there} of at least {min_clients} are there"


def said(error: object) -> str:
    """What somebody else's error says, in one short line."""
    return shortened(printable(" ".join(str(error).split())), 300)


@dataclass
class _Sent:
    """A task on its way."""

    task: ClientTask
    node: int
    until: float
    held: Params | None
    num_bytes: int


@dataclass
class _Failed:
    """A task without a result so far."""

    task: ClientTask
    why: str
    when: float


class FlowerBackend:
    """Maps clients' tasks to their nodes, and every other task to `inline`.

    Args:
        store: what the run keeps of its clients.
        tests_here: whether the server has test data; else clients test the global model on theirs.
    """

    def __init__(
        self,
        config: Config,
        grid: Grid,
        nodes: Nodes,
        limits: Limits,
        inline: Backend,
        store: Store,
        note: Callable[[str], None],
        tests_here: bool,
    ) -> None:
        self._config, self._grid, self._nodes, self._limits = config, grid, nodes, limits
        self._inline, self._store, self._note = inline, store, note
        self._algorithm = make_algorithm(config)
        self._embedding_size = len(nodes.classes) if self._algorithm.embeds else None
        self._sent_config, self._tests_here = sent_config(config), tests_here
        self._sent: dict[str, _Sent] = {}
        self._failed: dict[int, _Failed] = {}  # by client

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        """The results; a client's is `LeftOut` if it did not answer properly."""
        answered = 0
        self._nodes.look()
        for task in tasks:
            if isinstance(task, ClientTask):
                self._send(task)
            elif not self._tests_here and isinstance(task, ConfusionTask):
                tested = self._tested(task.params.theta(self._config.l1_thres), confusion=True)
                yield np.sum([each.matrix for each in tested], axis=0)
            elif not self._tests_here and isinstance(task, EvalTask) and task.split == "test":
                if task.part == 0:  # a client's set is a part
                    parts = self._tested(task.theta)
                    for part, each in enumerate(parts):
                        yield EvalResult(task.model, "test", part, len(parts), each.num_rows, each.losses, each.hits)
            elif task is not None:
                yield from self._inline.map([task])
        told = time.monotonic()
        while self._sent or (self._failed and answered < self._limits.min_clients):
            for result in self._answers():
                answered += 1
                yield result
            self._nodes.look()
            self._give_up()
            if not self._sent and self._failed and answered < self._limits.min_clients:
                if time.monotonic() - told > REMIND:
                    told = time.monotonic()
                    self._note(waiting(self._failed, answered, self._limits.min_clients))
                self._try_again()
            time.sleep(POLL)
        failed, self._failed = self._failed, {}
        yield from (LeftOut(client, failure.why) for client, failure in sorted(failed.items()))

    def _send(self, task: ClientTask, in_full: bool = False) -> None:
        client = task.client
        if not self._nodes.connected(client):
            self._fail(task, "not connected")
            return
        kept = self._store.get(client)
        held = None if kept is None else kept.params
        if in_full or held is None or vectors.digest(held) != self._nodes.holds[client]:
            held = None
        limit, node = self._limits.time_limit, self._nodes.node_of[client]
        content = messages.request(task, self._sent_config, self._nodes.classes, held, limit)
        message = Message(content, node, MessageType.TRAIN, ttl=limit, group_id=str(task.round_num + 1))
        (identity,) = self._grid.push_messages([message])
        if identity is None:
            self._fail(task, "its message could not be sent")
            return
        self._sent[identity] = _Sent(task, node, time.monotonic() + limit, held, messages.num_bytes(content))

    def _fail(self, task: ClientTask, why: str) -> None:
        before = self._failed.get(task.client)
        if before is None or before.why != why:
            self._note(f"{task}: {why}")
        self._failed[task.client] = _Failed(task, why, time.monotonic())

    def _answers(self) -> Iterator[ClientResult]:
        for reply in self._grid.pull_messages(list(self._sent)) if self._sent else ():
            sent = self._sent.pop(reply.metadata.reply_to_message_id, None)
            if sent is None:
                continue
            client = sent.task.client
            if sent.held is not None and _lacks(reply):
                self._send(sent.task, in_full=True)
                continue
            self._nodes.holds[client] = ""
            try:
                if reply.has_error():
                    raise DataError(reply.error.reason)
                result = messages.result_of(reply.content, sent.task, client_splits(self._config), self._embedding_size)
            except DataError as error:
                self._fail(sent.task, said(error))
                continue
            received = sent.task.broadcast.params
            sigma = received.sigma if result.sigma is None else result.sigma
            kept = self._algorithm.keep(Params(sigma, result.psi))
            self._nodes.holds[client] = "" if kept is None else vectors.digest(kept)
            self._failed.pop(client, None)
            yield result._replace(on_wire=(sent.num_bytes, messages.num_bytes(reply.content)))

    def _give_up(self) -> None:
        """On nodes that are gone, or take too long."""
        for identity, sent in list(self._sent.items()):
            gone = sent.node not in self._nodes.online
            if gone or time.monotonic() > sent.until:
                del self._sent[identity]
                self._nodes.holds[sent.task.client] = ""
                late = f"no answer within {self._limits.time_limit:g} seconds (time-limit)"
                self._fail(sent.task, "its node is gone" if gone else late)

    def _try_again(self) -> None:
        """Sends their tasks once more to those that are connected, as the round needs them."""
        for client, failure in list(self._failed.items()):
            if self._nodes.connected(client) and time.monotonic() - failure.when > PAUSE:
                self._send(failure.task)

    def _tested(self, theta: np.ndarray, confusion: bool = False) -> list[Tested]:
        """What the connected clients, at least one of them, say of a model that they test on their own images."""
        limit, classes = self._limits.time_limit, self._nodes.classes
        request = Test(self._sent_config, classes, len(theta), confusion, limit)
        content = messages.pack(request, {"theta": vectors.encode(theta)})
        nodes = [node for client, node in sorted(self._nodes.node_of.items()) if self._nodes.connected(client)]
        sent = self._grid.push_messages([Message(content, node, MessageType.EVALUATE, ttl=limit) for node in nodes])
        waiting = {identity: node for identity, node in zip(sent, nodes) if identity is not None}
        until = time.monotonic() + limit
        found: dict[int, Tested] = {}  # by node, so that the order is the same in every run
        while waiting and time.monotonic() < until:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id)
                try:
                    found[node] = _tested(reply, len(classes) if confusion else 0)
                except DataError as error:
                    self._note(f"Test at node {node}: {said(error)}")
            self._nodes.look()
            waiting = {name: node for name, node in waiting.items() if node in self._nodes.online}
            time.sleep(POLL)
        if not found:
            raise TrainingError("expected a client that tests the global model, as the server has no test images")
        return [found[node] for node in nodes if node in found]


def _tested(reply: Message, num_classes: int) -> Tested:
    """What a client says of a model; counts [classes, classes] if there are classes, else a score."""
    if reply.has_error():
        raise DataError(reply.error.reason)
    tested: Tested
    tested, _ = messages.unpack(Tested, reply.content, messages.SMALL)
    if not num_classes:
        messages.check_score(tested)
    elif [len(row) for row in tested.matrix] != [num_classes] * num_classes:
        raise DataError(f"expected counts of {num_classes} classes")
    return tested


def _lacks(reply: Message) -> bool:
    """Whether the client says that it does not hold what differences were taken to."""
    try:
        messages.unpack(Lacks, reply.content, messages.SMALL)
    except (DataError, ValueError):
        return False
    return True
