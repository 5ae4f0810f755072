"""Rounds in FedJAX: its federated averaging, compiled by XLA for all threads."""

from __future__ import annotations

from typing import Any

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from common import BATCH, CLASSES, CLIENTS, LR, Clock, client_data, num_rounds
from fedjax.algorithms import fed_avg


def resnet9(x: Any) -> Any:
    def conv(filters: int, x: Any) -> Any:
        return jax.nn.relu(hk.Conv2D(filters, 3, with_bias=False)(x))

    def pool(size: int, x: Any) -> Any:
        return hk.max_pool(x, (1, size, size, 1), (1, size, size, 1), "VALID")

    x = conv(64, x)
    x = pool(2, conv(128, x))
    x = x + conv(128, conv(128, x))
    x = pool(2, conv(256, x))
    x = pool(2, conv(512, x))
    x = x + conv(512, conv(512, x))
    return hk.Linear(CLASSES, with_bias=False)(hk.Flatten()(pool(4, x)))


if __name__ == "__main__":
    rounds, clock = num_rounds(), Clock()
    network = hk.transform(lambda batch: resnet9(batch["x"]))

    def loss(params: Any, batch: Any, rng: Any) -> Any:
        scores = jax.nn.log_softmax(network.apply(params, rng, batch))
        return -jnp.mean(jnp.take_along_axis(scores, batch["y"][:, None], axis=1))

    sgd = fedjax.optimizers.sgd
    hparams = fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1, drop_remainder=False)
    algorithm = fed_avg.federated_averaging(jax.grad(loss), sgd(LR), sgd(1.0), hparams)
    examples = [dict(zip("xy", client_data(client))) for client in range(CLIENTS)]
    data = [fedjax.ClientDataset(each) for each in examples]
    state = algorithm.init(network.init(jax.random.PRNGKey(0), {"x": np.zeros((1, 32, 32, 3), np.float32)}))
    for number in range(rounds + 1):
        keys = jax.random.split(jax.random.PRNGKey(number), CLIENTS)
        state, _ = algorithm.apply(state, [(str(client), data[client], keys[client]) for client in range(CLIENTS)])
        jax.block_until_ready(state.params)
        clock.end_of_round()
    clock.tell()
