"""Clients trained and models scored by the backend's workers, so that none of them waits while there is work.

The loop says what is to be trained and what is to be scored. Which worker does it, and when, is decided here:

- A set is scored in parts, which all workers share.
- If the clients are not a multiple of the workers, some workers have one client less. So the first clients' models are
  not scored by the workers that trained them: that is what workers do that are done before the rest.
- The server's next epoch (labels-at-server) may run beside the scores of a round.
- Clients that hold more are trained first, so that in the end nobody waits for a large one. Their results come back in
  that order, whoever is done first; no client is begun that is too far ahead of one that is not done.

No result depends on the workers. No TensorFlow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from fedmatch_tf.algorithms.algorithm import Update
from fedmatch_tf.config import Config
from fedmatch_tf.federation import scoring
from fedmatch_tf.federation.scoring import Scores
from fedmatch_tf.federation.tasks import (
    ClientResult,
    ClientTask,
    EvalResult,
    EvalTask,
    LeftOut,
    ServerResult,
    ServerTask,
    client_model,
)
from fedmatch_tf.networks.params import Params


class Backend(Protocol):
    """Runs tasks somewhere; results may come in any order."""

    def map(self, tasks: Iterable[Any]) -> Iterable[Any]:
        """The results of the tasks.

        Tasks are taken one by one, as they can be worked on. None instead of one: better wait for a result before the
        next; who asks again gets it all the same.
        """


def _update(sent: Params, result: ClientResult) -> Update:
    """What the server has of a client: a sigma that did not come back is as it was sent."""
    sigma = sent.sigma if result.sigma is None else result.sigma
    return Update(result.client, Params(sigma, result.psi), result.num_examples)


class _Agenda:
    """A round's work in the order in which idle workers take it: clients, then the scores that clients left to others.

    Args:
        num_apart: so many clients, the first ones, leave their models' scores to others.
        most: clients whose results the caller may have to wait for, or to keep, at a time.
    """

    def __init__(self, clients: Iterable[ClientTask], num_apart: int, most: int) -> None:
        self._clients, self._num_apart, self._most = clients, num_apart, most
        self._scores: deque[EvalTask] = deque()
        self._begun: deque[ClientTask] = deque()  # clients whose results have not gone out yet
        self._done: dict[int, ClientResult | LeftOut] = {}  # those that wait for one before them
        self._has_news = True  # whether a result has come since somebody was asked to wait for one

    def __iter__(self) -> Iterator[ClientTask | EvalTask | None]:
        for number, task in enumerate(self._clients):
            while len(self._begun) >= self._most and (self._scores or self._has_news):
                if self._scores:
                    yield self._scores.popleft()
                else:
                    self._has_news = False
                    yield None
            self._begun.append(task)
            yield task._replace(score=number >= self._num_apart)
        while self._scores:
            yield self._scores.popleft()

    def add(self, scores: Iterable[EvalTask]) -> None:
        """Takes in scores that can be worked on from now on."""
        self._scores.extend(scores)

    def in_turn(self, result: ClientResult | LeftOut) -> Iterator[tuple[ClientTask, ClientResult]]:
        """Takes in a result; those whose turn it is, each with its task."""
        self._done[result.client], self._has_news = result, True
        while self._begun and self._begun[0].client in self._done:
            task = self._begun.popleft()
            done = self._done.pop(task.client)
            if isinstance(done, ClientResult):
                yield task, done

    def rest(self) -> list[EvalTask]:
        """What no worker has taken."""
        return list(self._scores)


class Crew:
    """The workers of a backend; arguments as in `loop.run`."""

    def __init__(
        self,
        config: Config,
        backend: Backend,
        sizes: Mapping[int, int] = MappingProxyType({}),
        on_client: Callable[[], None] = lambda: None,
    ) -> None:
        self._config, self._backend, self._sizes, self._on_client = config, backend, sizes, on_client
        self._unscored: list[EvalTask] = []  # scores of clients' models that no worker has taken yet
        self._scored: list[EvalResult] = []  # scores of clients' models that nobody has asked for yet
        self._ahead: tuple[ServerTask, ServerResult] | None = None  # an epoch that was run ahead
        self.left_out: dict[int, str] = {}  # clients of the round that gave no result -> why

    def in_order(self, clients: Iterable[int]) -> list[int]:
        """The clients in the order in which they are to be trained; equals as they come."""
        return sorted(clients, key=lambda client: -self._sizes.get(client, 0))

    def train_clients(self, round_num: int, tasks: Iterable[ClientTask]) -> Iterator[tuple[Update, ClientResult]]:
        """(the update, the rest of the result) of each client, in the order of the tasks.

        Their models' scores are among those of the next `score`.
        """
        workers, self.left_out = self._config.workers or 1, {}
        agenda = _Agenda(tasks, self._config.clients_per_round % workers, most=2 * workers)
        for result in self._backend.map(agenda):
            if isinstance(result, EvalResult):
                self._scored.append(result)
                continue
            self._on_client()
            if isinstance(result, LeftOut):
                self.left_out[result.client] = result.why
            else:
                self._scored += result.scored
                agenda.add(self._left_to_others(round_num, result))
                result = result._replace(theta=None)
            for task, in_turn in agenda.in_turn(result):
                yield _update(task.broadcast.params, in_turn), in_turn._replace(sigma=None, psi=None)
        self._unscored = agenda.rest()

    def train_server(self, task: ServerTask) -> ServerResult:
        """The server's epoch, which may have been run ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None and ahead[0]._replace(params=task.params) == task and ahead[0].params is task.params:
            return ahead[1]
        (result,) = self._backend.map([task])
        return result  # type: ignore[no-any-return]

    def score(self, tasks: Iterable[EvalTask], beside: ServerTask | None = None) -> Scores:
        """The scores of these tasks' models, and of the clients that were trained since the last call.

        Args:
            beside: an epoch of the server's that a worker may run meanwhile; `train_server` gives its result.
        """
        first = [] if beside is None else [beside]  # as it takes longest
        agenda = [*first, *self._unscored, *tasks]
        scored, self._unscored, self._scored = self._scored, [], []
        for result in self._backend.map(agenda):
            if isinstance(result, EvalResult):
                scored.append(result)
            elif beside is not None:
                self._ahead = (beside, result)
        return scoring.add_up(scored)

    def _left_to_others(self, round_num: int, result: ClientResult) -> list[EvalTask]:
        """The scores of a client's model that its own task left to others: in finer parts, as they come last."""
        if result.theta is None:
            return []
        key, splits = client_model(result.client), scoring.client_splits(self._config)
        return scoring.eval_tasks(self._config, round_num, key, result.theta, splits, finer=2)
