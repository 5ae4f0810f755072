"""Loss and accuracy of the model on validation or test data."""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from data.files import Examples
from fedmatch_tf.losses import cross_entropy
from fedmatch_tf.tasks import Score


class Evaluator:
    """Scores a model on one fixed set, which stays on the device; one call, one transfer back."""

    def __init__(self, model: Any, examples: Examples, batch_size: int) -> None:
        self._model = model
        self._x, self._y = tf.constant(examples.x), tf.constant(examples.y)
        self._batch_size = min(batch_size, len(examples))

    def score(self) -> Score:
        """Mean loss and accuracy over the set, with small elements of psi counted as 0."""
        loss, accuracy = self._means(self._x, self._y)
        return Score(float(loss), float(accuracy))

    @partial(tf.function, autograph=False)
    def _means(self, x: tf.Tensor, y: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Batch after batch on the device."""
        num_examples = tf.shape(x)[0]

        def one_more(begin: tf.Tensor, loss: tf.Tensor, correct: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
            end = tf.minimum(begin + self._batch_size, num_examples)
            probs, targets = self._model(scaled(x[begin:end]), training=False), y[begin:end]
            hits = tf.equal(tf.argmax(probs, axis=-1), tf.argmax(targets, axis=-1))
            loss += cross_entropy(targets, probs) * tf.cast(end - begin, tf.float32)
            return end, loss, correct + tf.reduce_sum(tf.cast(hits, tf.float32))

        _, loss, correct = tf.while_loop(lambda begin, *_: begin < num_examples, one_more, (0, 0.0, 0.0))
        count = tf.cast(num_examples, tf.float32)
        return loss / count, correct / count


def scaled(x: tf.Tensor) -> tf.Tensor:
    """uint8 images as floats in [0, 1]."""
    return tf.cast(x, tf.float32) / 255.0
