"""Scores, predictions and confusion of any model: what a worker has at hand for that."""

from __future__ import annotations

import math
import time

import numpy as np

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.config import Config
from fedmatch_tf.data.files import Examples
from fedmatch_tf.data.loader import EvalData
from fedmatch_tf.federation import scoring
from fedmatch_tf.federation.steps import LOWER_LR
from fedmatch_tf.federation.tasks import EvalResult, EvalTask, Split, TrainingError
from fedmatch_tf.networks.evaluate import Evaluator


class Evaluation:
    """One plain network for every model whose theta is given, and the validation and test data."""

    def __init__(self, config: Config, evaluator: Evaluator, evals: EvalData) -> None:
        self._config, self._evaluator, self._evals = config, evaluator, evals

    def score(self, task: EvalTask) -> EvalResult:
        """A model's score on a part of a set."""
        examples = self._examples(task.split)
        batches = scoring.passes(self._config, len(examples), task.part, task.num_parts)
        self._evaluator.load(task.theta)
        losses, hits = self._evaluator.score(examples, batches)
        if not all(map(math.isfinite, losses)):
            raise TrainingError(f"expected a finite loss, received NaN or infinity in {task}. {LOWER_LR}")
        num_rows = tuple(rows.stop - rows.start for rows in batches)
        return EvalResult(task.model, task.split, task.part, task.num_parts, num_rows, losses, hits)

    def accuracy(self, theta: np.ndarray, examples: Examples) -> float:
        """The share of the examples that the model gets right."""
        self._evaluator.load(theta)
        return sum(self._evaluator.score(examples, scoring.passes(self._config, len(examples)))[1]) / len(examples)

    def predict(self, theta: np.ndarray, x: np.ndarray) -> np.ndarray:
        """Probabilities [n, classes] for uint8 images [n, h, w, c]."""
        self._evaluator.load(theta)
        passes = scoring.passes(self._config, len(x))
        return np.concatenate([self._evaluator.predict(x[rows]).numpy() for rows in passes])

    def seconds_per_image(self) -> float:
        """Of a forward pass with whatever kernels there are: mean of half a second, after one that compiles."""
        x, passes = self._examples("valid").x[:_MEASURED], 0
        self._evaluator.predict(x).numpy()
        begin = time.perf_counter()
        while time.perf_counter() - begin < _MEASURED_SECONDS:
            self._evaluator.predict(x).numpy()
            passes += 1
        return (time.perf_counter() - begin) / passes / len(x)

    def embed(self, theta: np.ndarray, probe: np.ndarray) -> np.ndarray:
        """What a model is known by: its prediction [classes] on the probe image."""
        self._evaluator.load(theta)
        embedding: np.ndarray = self._evaluator.embed(probe).numpy()[0]
        return embedding

    def confusion(self, theta: np.ndarray) -> np.ndarray:
        """Counts [truth, predicted] over the test data."""
        test = self._examples("test")
        probs = self.predict(theta, test.x)
        truth, predicted, classes = np.argmax(test.y, axis=1), probs.argmax(axis=1), probs.shape[1]
        return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)

    def _examples(self, split: Split) -> Examples:
        examples = self._evals.valid if split == "valid" else self._evals.test
        if examples is None:
            raise DataError(f"expected {split} data here, found none")
        return examples


_MEASURED, _MEASURED_SECONDS = 100, 0.5  # images in a pass, and how long at least
