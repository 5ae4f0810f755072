"""The server's epoch on its labelled set (algorithm 2, lines 5 to 7), as a worker runs it."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmatch_tf.config import Config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.federation.steps import check_result, losses_of
from fedmatch_tf.federation.tasks import ServerResult, ServerTask
from fedmatch_tf.learners.batches import all_slices, share_done
from fedmatch_tf.learners.learner import Learner
from fedmatch_tf.networks import build as networks


def train_epoch(config: Config, model: Any, learner: Learner, labeled: Examples, task: ServerTask) -> ServerResult:
    """Labels-at-server: a supervised step on sigma for every minibatch."""
    networks.write(model, task.params)
    done, lr = share_done(config, task.round_num, task.epoch / config.num_epochs_server), np.float32(task.lr)
    rows = all_slices(len(labeled), config.batch_size_server)
    steps = [learner.server_step(labeled.x[part], labeled.y[part], done, lr) for part in rows]
    losses = losses_of(steps, len(steps), str(task))
    params = networks.read(model)
    check_result(params, str(task))
    return ServerResult(params, losses)
