"""Rounds in Flower: its simulation engine on Ray, two actors of one CPU each, its TensorFlow quickstart's client.

More than the quickstart does: an actor keeps its compiled model from client to client.
"""

from __future__ import annotations

from typing import Any

from common import CLIENTS, Clock, keras_resnet9, num_rounds
from flower_client import client_fn
from flwr.client import ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation


class Timed(FedAvg):
    def __init__(self, clock: Clock, **how: Any) -> None:
        super().__init__(**how)
        self._clock = clock

    def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
        done = super().aggregate_fit(server_round, results, failures)
        assert len(results) == CLIENTS, failures
        self._clock.end_of_round()
        return done


if __name__ == "__main__":
    rounds, clock = num_rounds(), Clock()
    import tensorflow as tf

    start = ndarrays_to_parameters(keras_resnet9(tf.keras).get_weights())

    def server_fn(context: Context) -> ServerAppComponents:
        strategy = Timed(
            clock,
            fraction_fit=1.0,
            fraction_evaluate=0.0,
            min_fit_clients=CLIENTS,
            min_available_clients=CLIENTS,
            initial_parameters=start,
        )
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=rounds + 1))

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 2}}
    run_simulation(ServerApp(server_fn=server_fn), ClientApp(client_fn=client_fn), CLIENTS, backend_config=resources)
    clock.tell()
