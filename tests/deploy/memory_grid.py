"""Flower's grid without processes: nodes answer here, with the app's own client and the stand-in for a network."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fedmatch_flower import client_app
from flwr.app import Context, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

Mangle = Callable[
    [Message, Message], Any
]  # (what was asked, the proper answer) -> what the node answers; None: nothing


class Node:
    """One host: its context, and what becomes of its answers to `train`."""

    def __init__(self, node: int, config: dict[str, Any]) -> None:
        self.node = node
        self.context = Context(run_id=1, node_id=node, node_config=config, state=RecordDict(), run_config={})
        self.mangle: Mangle = lambda asked, answer: answer
        self.asked: list[Message] = []

    def answer(self, message: Message) -> Message | None:
        self.asked.append(message)
        if message.metadata.message_type == MessageType.EVALUATE:
            return client_app.evaluate(message, self.context)
        if message.metadata.message_type == MessageType.QUERY:
            return client_app.hello(message, self.context)
        answer: Message | None = self.mangle(message, client_app.train(message, self.context))
        return answer


class MemoryGrid:
    """Who is in `nodes` is connected; a message is worked on when its answer is first asked for."""

    def __init__(self, nodes: dict[int, Node]) -> None:
        self.nodes = nodes
        self._waiting: dict[str, Message] = {}
        self._number = 0
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1  # as Flower sets them in a process

    def get_node_ids(self) -> list[int]:
        return list(self.nodes)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        names = []
        for message in messages:
            self._number += 1
            message.metadata.__dict__["_message_id"] = str(self._number)
            self._waiting[str(self._number)] = message
            names.append(str(self._number))
        return names

    def pull_messages(self, names: Iterable[str]) -> list[Message]:
        answers = []
        for name in list(names):
            message = self._waiting.get(name)
            if message is not None and message.metadata.dst_node_id in self.nodes:
                del self._waiting[name]
                answer = self.nodes[message.metadata.dst_node_id].answer(message)
                answers += [] if answer is None else [answer]
        return answers
