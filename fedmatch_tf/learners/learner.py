"""What a learner is: the gradient steps that it takes on one model, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Protocol

import numpy as np

from fedmatch_tf.base.plugins import learners
from fedmatch_tf.base.quiet import tf

if TYPE_CHECKING:
    from fedmatch_tf.config import Config


class Batch(NamedTuple):
    """What one step of a client has at hand; images are uint8 [n, h, w, c], targets float32 one-hot [n, classes]."""

    x_labeled: np.ndarray | None  # None in labels-at-server
    y_labeled: np.ndarray | None
    x_unlabeled: np.ndarray | None  # None when they are used up
    y_unlabeled: np.ndarray | None  # the truth: only full supervision may look
    helper_probs: np.ndarray  # float32 [helpers, n, classes]: frozen predictions of helpers on x_unlabeled
    seed: np.ndarray  # int32 [2], for augmentation
    share_done: tf.Tensor  # float32: share of the whole training that is done, from 0 to 1
    lr: tf.Tensor  # float32
    received_probs: np.ndarray | None = None  # float32 [n, classes]: of the received model on x_unlabeled, if asked for
    x_partner: np.ndarray | None = None  # uint8 [n, h, w, c]: other unlabelled images of the client, if asked for
    partner_probs: np.ndarray | None = None  # float32 [n, classes]: of the received model on them


class Terms(NamedTuple):
    """What a step on unlabelled images computed."""

    loss: tf.Tensor
    icc: tf.Tensor  # before its weight
    pseudo_ce: tf.Tensor  # before its weight
    kept: tf.Tensor  # bool [n]: rows that got a pseudo-label
    pseudo_labels: tf.Tensor  # int64 [n], -1 where there is none
    icc_loss: tf.Tensor = 0.0  # as it is differentiated, with its weight
    pseudo_loss: tf.Tensor = 0.0  # as it is differentiated, with its weight


# (`s`, a step on labels alone, which gives its loss) or (`u`, a step with unlabelled images, which gives Terms)
ClientStep = tuple[str, Callable[[], Any]]


class Learner(Protocol):
    """Compiled steps on one model. Holds no state between clients but the model's variables."""

    uses_received: bool  # whether it looks at what the received model predicts
    uses_partners: bool  # whether it mixes images with others of the client

    def begin_round(self) -> None:
        """The model holds what the client has received."""

    def chosen_rows(self, received_probs: np.ndarray | None) -> np.ndarray | None:
        """The unlabelled examples that make this round's batches; None: all of them."""

    def client_steps(self, batch: Batch) -> Sequence[ClientStep]:
        """The gradient steps to take on this batch, in order."""

    def server_step(self, x: np.ndarray, y: np.ndarray, share_done: tf.Tensor, lr: tf.Tensor) -> tf.Tensor:
        """One step on the server's labelled images (labels-at-server); the loss before it."""


def make_learner(config: Config, model: Any, augment: Any, proximal_weight: float) -> Learner:
    """The learner that the config names.

    Args:
        augment: (images uint8 [n, h, w, c], rows [k], seed int32 [2]) -> those rows as their strong view.
        proximal_weight: mu of a client's term mu / 2 |theta - received|^2; 0: there is none.
    """
    learner: Learner = learners()[config.learner].make(config, model, augment, proximal_weight)
    return learner


LOSS_SCALE = 128.0  # in float16, in which small gradients would vanish; bfloat16 has the range of float32


def gradients(tape: tf.GradientTape, loss: tf.Tensor, variables: Sequence[Any], precision: str) -> list[tf.Tensor]:
    """The loss' gradients; zeros for variables that it does not depend on."""
    zero = tf.UnconnectedGradients.ZERO
    if precision != "float16":
        return tape.gradient(loss, variables, unconnected_gradients=zero)  # type: ignore[no-any-return]
    scaled = tape.gradient(loss, variables, output_gradients=tf.constant(LOSS_SCALE), unconnected_gradients=zero)
    return [gradient / LOSS_SCALE for gradient in scaled]


def descend(variables: Sequence[Any], gradients: Sequence[tf.Tensor], lr: tf.Tensor) -> None:
    """Plain SGD."""
    for variable, gradient in zip(variables, gradients):
        variable.assign_sub(lr * gradient)
