"""Loss and accuracy of the model on validation or test data."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from data.files import Examples
from fedmatch_tf.losses import cross_entropy
from fedmatch_tf.tasks import Score


class Evaluator:
    """Scores a model on any set; one call, one transfer back."""

    def __init__(self, model: Any, batch_size: int) -> None:
        self._model, self._batch_size = model, batch_size
        shape, classes = [None, *model.input_shape[1:]], model.output_shape[-1]
        signature = [tf.TensorSpec(shape, tf.uint8), tf.TensorSpec([None, classes])]
        self._compiled = tf.function(self._means, signature, autograph=False)
        images = [tf.TensorSpec(shape, tf.uint8)]
        self.predict = tf.function(lambda x: model(scaled(x), training=True), images, autograph=False)
        float_images = [tf.TensorSpec(shape, tf.float32)]
        self.embed = tf.function(lambda image: model(image, training=True), float_images, autograph=False)

    def score(self, examples: Examples) -> Score:
        """Mean loss and accuracy over the set, with small elements of psi counted as 0."""
        loss, accuracy = self._compiled(examples.x, examples.y)
        return Score(float(loss), float(accuracy))

    def classes(self, examples: Examples) -> np.ndarray:
        """The most probable class of each example, with small elements of psi counted as 0."""
        begins = range(0, len(examples), self._batch_size)
        parts = [examples.x[begin : begin + self._batch_size] for begin in begins]
        return np.concatenate([self._model(scaled(x), training=False).numpy().argmax(axis=-1) for x in parts])

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


def on_device(examples: Examples) -> Examples:
    """The set as tensors that stay where the model is."""
    return Examples(tf.constant(examples.x), tf.constant(examples.y))


def scaled(x: tf.Tensor) -> tf.Tensor:
    """uint8 images as floats in [0, 1]."""
    return tf.cast(x, tf.float32) / 255.0
