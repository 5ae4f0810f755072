"""What a learner is: the batches that it makes of a client's round, and the gradient steps that it takes on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from fedmatch_tf.base.quiet import tf
from fedmatch_tf.learners.batches import Batch, ClientRound, Minibatches, minibatches
from fedmatch_tf.learners.sgd import SGD
from fedmatch_tf.networks import build as networks
from fedmatch_tf.networks.evaluate import scaled

if TYPE_CHECKING:
    from fedmatch_tf.config import Config
    from fedmatch_tf.data.loader import ClientData


class Terms(NamedTuple):
    """What a step computed."""

    # The loss that it descended on, `total`, and what that is the sum of, each term with its weight: `supervised`,
    # `inter_client`, `pseudo`, `l1`, `l2`, `proximal`, as many as there are. ABSENT: it did not occur, and added 0.
    losses: Mapping[str, tf.Tensor]
    kept: Any = None  # bool [n]: unlabelled rows that got a pseudo-label; None: the step looked at labels alone
    labels: Any = None  # int64 [n]: the class that each row was given, or would have been


ABSENT = float("nan")


class Learner:
    """Compiled steps on one model. Holds no state between clients but the model's variables.

    Args:
        augment: (images uint8 [n, h, w, c], rows [k], seed int32 [2]) -> those rows as their strong view.
        proximal_weight: mu of a client's term mu / 2 |theta - received|^2; 0: there is none.
    """

    def __init__(self, config: Config, model: Any, augment: Any, proximal_weight: float = 0.0) -> None:
        self.config, self.model, self.augment, self.mu = config, model, augment, proximal_weight
        self.sgd = SGD(config, networks.sigmas(model))  # on what labels train, at clients and at the server

    def begin_round(self) -> None:
        """The model holds what the client has received; no client remembers a momentum."""
        self.sgd.begin()

    def batches(self, given: ClientRound) -> Minibatches:
        """The batches of a client's round: of all its examples."""
        return minibatches(self.config, given)

    def num_examples(self, data: ClientData) -> int:
        """What a client counts by in a mean that is weighted; 0: it does not count in any."""
        return (0 if data.labeled is None else len(data.labeled)) + len(data.unlabeled)

    def client_steps(self, batch: Batch) -> Sequence[Callable[[], Terms]]:
        """The gradient steps to take on this batch, in order."""
        raise NotImplementedError

    def server_step(self, x: Any, y: Any, share_done: Any, lr: Any) -> Terms:
        """One step on the server's labelled images (labels-at-server)."""
        raise NotImplementedError

    def predict(self, x: tf.Tensor) -> tf.Tensor:
        """Probabilities [n, classes] for uint8 images."""
        return self.model(scaled(x), training=True)
