"""Who does what when: an epoch ahead, scores that clients leave to others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from fedmatch_tf.algorithms.wire import Cost, full_broadcast
from fedmatch_tf.config import make_config
from fedmatch_tf.federation.crew import Crew
from fedmatch_tf.federation.scoring import eval_tasks
from fedmatch_tf.federation.tasks import (
    GLOBAL,
    SERVER,
    ClientResult,
    ClientTask,
    EvalResult,
    EvalTask,
    Losses,
    ServerResult,
    ServerTask,
    client_model,
)
from fedmatch_tf.learners.schedule import Plateau
from fedmatch_tf.networks.params import Params

CONFIG = replace(make_config("ls-biid-c10", num_clients=3, frac_clients=1.0), workers=2)
PARAMS = Params(np.ones(2, np.float32), np.ones(2, np.float32))


class Backend:
    """Answers one task after the other; the epoch of a round is known by its weights."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        for task in tasks:
            self.tasks.append(task)
            if isinstance(task, ServerTask):
                params = Params(task.params.sigma + 10 * task.round_num + task.epoch, task.params.psi)
                yield ServerResult(params, Losses(1.0))
            elif isinstance(task, EvalTask):
                yield EvalResult(task.model, task.split, task.part, task.num_parts, (10,), (1.0,), (5,))
            else:
                scored = EvalResult(client_model(task.client), "valid", 0, 1, (10,), (2.0,), (5,))
                yield ClientResult(
                    task.client,
                    None if task.client == 1 else task.broadcast.params.sigma + 1,
                    task.broadcast.params.psi,
                    num_examples=1,
                    s2c=task.broadcast.cost,
                    c2s=Cost(),
                    plateau=task.plateau,
                    lr=task.lr,
                    scored=(scored,) if task.score else (),
                    theta=None if task.score else PARAMS.sigma,
                )


def epoch(round_num: int, number: int = 0) -> ServerTask:
    return ServerTask(round_num, number, PARAMS, 0.1)


def test_an_epoch_that_ran_beside_scores_is_not_run_again() -> None:
    backend = Backend()
    crew = Crew(CONFIG, backend)
    crew.score(eval_tasks(CONFIG, 0, GLOBAL, PARAMS.sigma, ("test",)), beside=epoch(1))
    assert isinstance(backend.tasks[0], ServerTask), "first, as it takes longest"
    num_tasks = len(backend.tasks)
    assert crew.train_server(epoch(1)).params.sigma.tolist() == [11, 11]
    assert len(backend.tasks) == num_tasks
    assert crew.train_server(epoch(1, 1)).params.sigma.tolist() == [12, 12]
    assert len(backend.tasks) == num_tasks + 1


def test_an_epoch_of_another_round_is_not_taken_for_it() -> None:
    crew = Crew(CONFIG, Backend())
    crew.score([], beside=epoch(1))
    assert crew.train_server(epoch(2)).params.sigma.tolist() == [21, 21]
    assert crew.train_server(epoch(1)).params.sigma.tolist() == [11, 11]


class Reversing(Backend):
    """Takes all that there is, and is done with the last first."""

    def __init__(self) -> None:
        super().__init__()
        self.at_once: list[int] = []  # clients taken before the first result of each time

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        source, more = iter(tasks), True
        while more:
            taken: list[Any] = []
            while (task := next(source, "no more")) is not None:
                if task == "no more":
                    more = False
                    break
                taken.append(task)
            self.at_once.append(sum(isinstance(task, ClientTask) for task in taken))
            yield from super().map(taken[::-1])


def test_results_come_in_the_order_of_the_tasks_and_few_clients_are_ahead_of_one_that_is_not_done() -> None:
    backend = Reversing()
    crew = Crew(replace(CONFIG, num_clients=11, workers=2), backend)
    clients = [7, 3, 9, 1, 0, 2, 4, 6, 8, 10, 5]
    tasks = [ClientTask(0, client, 0, full_broadcast(PARAMS), Plateau(0.1, 9.0, 1), 0.1) for client in clients]
    assert [update.client for update, _ in crew.train_clients(0, tasks)] == clients
    assert backend.at_once == [4, 4, 3]  # two for each worker
    scores = crew.score([])
    assert set(scores) == {(client_model(client), "valid") for client in clients}


def test_the_next_scores_are_those_asked_for_and_those_of_the_clients_trained_since() -> None:
    backend = Backend()
    crew = Crew(CONFIG, backend)
    tasks = [ClientTask(0, client, 0, full_broadcast(PARAMS), Plateau(0.1, 9.0, 1), 0.1) for client in (2, 0, 1)]
    results = list(crew.train_clients(0, tasks))
    assert [result.client for _, result in results] == [2, 0, 1]
    for _, result in results:
        assert (result.theta, result.sigma, result.psi) == (None, None, None), "large, and nobody needs it any more"
    # What client 1 did not train did not come back: it is as it was sent.
    assert [update.params.sigma.tolist() for update, _ in results] == [[2, 2], [2, 2], [1, 1]]
    scores = crew.score(eval_tasks(CONFIG, 0, GLOBAL, PARAMS.sigma, ("test",)))
    # Three clients on two workers: the first to train, client 2, leaves its score (a loss of 1) to whoever is idle.
    losses = {key: score.loss for key, score in scores.items()}
    clients = {(client_model(client), "valid"): loss for client, loss in ((0, 2.0), (1, 2.0), (2, 1.0))}
    assert losses == {**clients, (GLOBAL, "test"): 1.0}
    assert set(crew.score(eval_tasks(CONFIG, 1, SERVER, PARAMS.sigma, ("valid",)))) == {(SERVER, "valid")}
