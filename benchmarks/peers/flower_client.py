"""Flower's client, in a module of its own: Flower sends what is in the main script to its actors anew for every client.

A model kept there would be lost each time.
"""

from __future__ import annotations

from typing import Any

from common import BATCH, LR, client_data, keras_resnet9
from flwr.client import NumPyClient
from flwr.common import Context

_kept: dict[str, Any] = {}  # the actor's


def model() -> Any:
    """The actor's compiled model."""
    if not _kept:
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
        network = keras_resnet9(tf.keras)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile(tf.keras.optimizers.SGD(LR), loss)
        _kept["model"] = network
    return _kept["model"]


class Client(NumPyClient):
    def __init__(self, number: int) -> None:
        self._number = number

    def fit(self, parameters: Any, config: Any) -> Any:
        network = model()
        network.set_weights(parameters)
        x, y = client_data(self._number)
        network.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, shuffle=False)
        return network.get_weights(), len(x), {}


def client_fn(context: Context) -> Any:
    return Client(int(context.node_config["partition-id"])).to_client()
