"""Rounds in pfl-research: its simulated backend with a TensorFlow model, in one process with all threads.

Needs TF_USE_LEGACY_KERAS=1: pfl tells variables apart by their names, which Keras 3 has "kernel" for all of.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from common import BATCH, CLIENTS, LR, Clock, client_data, keras_resnet9, num_rounds
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.data.tensorflow import TFTensorDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.tensorflow import TFModel

NEVER = 10**9  # evaluates in iterations 0, NEVER, ...: only in the first round, which is left out


class Timed(TrainingProcessCallback):
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def after_central_iteration(self, aggregate_metrics: Any, model: Any, *, central_iteration: int) -> Any:
        self._clock.end_of_round()
        return False, Metrics()


if __name__ == "__main__":
    rounds, clock = num_rounds(), Clock()
    network = keras_resnet9(tf.keras)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(tf.keras.optimizers.SGD(LR), loss)
    model = TFModel(network, metrics={}, central_optimizer=tf.keras.optimizers.SGD(1.0))
    assert len(model.variable_map) == len(network.trainable_variables) == 9, list(model.variable_map)
    held = [TFTensorDataset(*map(tf.constant, client_data(user)), user_id=str(user)) for user in range(CLIENTS)]
    data = FederatedDataset(held.__getitem__, get_user_sampler("minimize_reuse", list(range(CLIENTS))))
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds + 1, evaluation_frequency=NEVER, train_cohort_size=CLIENTS, val_cohort_size=0
        ),
        backend=SimulatedBackend(training_data=data, val_data=data),
        model=model,
        model_train_params=NNTrainHyperParams(local_num_epochs=1, local_learning_rate=LR, local_batch_size=BATCH),
        callbacks=[Timed(clock)],
    )
    clock.tell()
