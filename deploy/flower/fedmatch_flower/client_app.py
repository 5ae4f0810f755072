"""The client on its own host: its data never leave it. A round is the package's own (federation/client.py).

1. Decode what the server sends: differences to what both sides hold of this client since its last round.
2. RunClient on the host's own data.
3. Keep what both sides hold now, in the context that Flower keeps for this node.
4. Answer with what changed beyond the threshold, and with the model's prediction on the probe image.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from fedmatch_flower import messages, vectors
from fedmatch_flower.messages import Hello, Lacks, Question, Request, Test, Tested
from fedmatch_flower.own_data import OwnData, open_own
from fedmatch_tf.algorithms.algorithm import make_algorithm
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config
from fedmatch_tf.config.resume import recorded_config
from fedmatch_tf.federation.tasks import GLOBAL, ConfusionTask, EvalTask
from fedmatch_tf.networks.params import Params
from fedmatch_tf.workers.choose import make_worker
from fedmatch_tf.workers.environment import worker_variables

app = ClientApp()
HELD = "held"  # the record of the context


@app.query()
def hello(message: Message, context: Context) -> Message:
    """Who this is."""
    question, _ = messages.unpack(Question, message.content, messages.SMALL)
    own = open_own(context.node_config, _config(question, context), question.classes)
    held = _held(context)
    holds = "" if held is None else vectors.digest(held)
    shape = own.partitions.image_shape
    return Message(messages.pack(Hello(own.client, own.num_examples, own.class_names, shape, holds)), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """RunClient."""
    request, arrays = messages.unpack(Request, message.content, messages.LARGEST)
    with _watch(request.seconds):
        held = _held(context)
        if request.base and (held is None or vectors.digest(held) != request.base):
            return Message(messages.pack(Lacks(request.round_num)), reply_to=message)
        config = _config(request, context)
        own = open_own(context.node_config, config, request.classes)
        task = messages.task_of(request, arrays, held if request.base else None)
        if task.client != own.client:
            raise DataError(f"expected a task of client {own.client}, received one of client {task.client}")
        result = _worker(config, own, context).run(task)
        if not own.knows_truth:
            result = result._replace(num_correct=None)
        sigma = task.broadcast.params.sigma if result.sigma is None else result.sigma
        _keep(context, make_algorithm(config).keep(Params(sigma, result.psi)))
        return Message(messages.answer(result, task), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """How the global model does on this host's test images."""
    request, arrays = messages.unpack(Test, message.content, messages.LARGEST)
    with _watch(request.seconds):
        config = _config(request, context)
        own = open_own(context.node_config, config, request.classes)
        theta = vectors.decode("theta", arrays.get("theta", b""), request.size)
        worker = _worker(config, own, context)
        if request.confusion:
            tested = Tested((), (), (), worker.run(ConfusionTask(Params(theta))).tolist())
        else:
            score = worker.run(EvalTask(0, GLOBAL, "test", theta))
            tested = Tested(score.num_rows, score.losses, score.hits, ())
        return Message(messages.pack(tested), reply_to=message)


@contextmanager
def _watch(seconds: float) -> Iterator[None]:
    """Ends this process when nobody waits for its answer any more: a node does one thing at a time."""
    watch = threading.Timer(seconds, os._exit, [1])
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _worker(config: Config, own: OwnData, context: Context) -> Any:
    os.environ.update(worker_variables(context.node_config.get("gpu"), os.environ))
    return make_worker(config, partitions=own.partitions)


def _config(request: Question | Request | Test, context: Context) -> Config:
    """The run's config as this host has it."""
    place = str(context.node_config.get("folder") or context.node_config.get("partition"))
    return recorded_config({**request.config, "source": place, "dataset_path": place})


def _held(context: Context) -> Params | None:
    """What server and client hold of the client since its last round."""
    record = context.state.get(HELD)
    if not isinstance(record, ArrayRecord):
        return None
    return Params(*(np.frombuffer(record[name].data, np.float32) for name in Params._fields if name in record))


def _keep(context: Context, params: Params | None) -> None:
    if params is None:
        context.state.pop(HELD, None)
        return
    raw = (Array("float32", part.shape, "raw", part.tobytes()) for part in params.parts)
    context.state[HELD] = ArrayRecord(dict(zip(Params._fields, raw)))
