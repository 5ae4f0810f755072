"""Scores in parts that any worker can take: what is scored, where a set is cut, and what the parts add up to.

A part is a run of whole passes, and a score adds up passes in their order, so it is the same however a set was cut.
No TensorFlow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from fedmatch_tf.config import Config
from fedmatch_tf.data.dealing import KINDS
from fedmatch_tf.federation.tasks import EvalResult, EvalTask, ModelKey, Score, Split

# Images of 32 x 32, or as many pixels. Passes of 100 take a sixth longer on the CPU of docs/PERFORMANCE.md.
PASS = 500
Scores = dict[tuple[ModelKey, Split], Score]


def client_splits(config: Config) -> tuple[Split, ...]:
    """What clients' models are scored on: validation data if lr or nobody else asks for it, test data if asked for."""
    valid: tuple[Split, ...] = ("valid",) if config.lr_source == "client" or not config.has_global_model else ()
    return (*valid, "test") if clients_test(config) else valid


def clients_test(config: Config) -> bool:
    """Whether clients evaluate on test data, too."""
    if config.eval_clients == "auto":
        return KINDS[config.kind].streams or not config.has_global_model
    return config.eval_clients == "always"


def eval_tasks(
    config: Config, round_num: int, model: ModelKey, theta: np.ndarray, splits: Sequence[Split], finer: int = 1
) -> list[EvalTask]:
    """Tasks that score a model on these splits.

    Args:
        finer: so many parts for every worker, if there are several of them and enough passes.
    """
    tasks = []
    for split in splits:
        num_rows = config.num_valid if split == "valid" else config.num_test
        workers = config.workers or 1
        num_parts = min(finer * workers, len(passes(config, num_rows))) if workers > 1 else 1
        tasks += [EvalTask(round_num, model, split, theta, part, num_parts) for part in range(num_parts)]
    return tasks


def passes(config: Config, num_rows: int, part: int = 0, num_parts: int = 1) -> list[slice]:
    """The rows of each pass through the network in this part of a set: several batches at once if they are small."""
    room = PASS * 32**2 // config.image_size**2
    size = config.batch_size_test * max(1, room // config.batch_size_test)
    whole = [slice(begin, min(begin + size, num_rows)) for begin in range(0, num_rows, size)]
    return whole[part * len(whole) // num_parts : (part + 1) * len(whole) // num_parts]


def add_up(results: Iterable[EvalResult]) -> Scores:
    """The scores of which these are all parts, in any order."""
    parts: dict[tuple[ModelKey, Split], list[EvalResult]] = {}
    for result in results:
        parts.setdefault((result.model, result.split), []).append(result)
    return {key: _mean(sorted(found, key=lambda result: result.part)) for key, found in parts.items()}


def _mean(parts: Sequence[EvalResult]) -> Score:
    if [part.part for part in parts] != list(range(parts[0].num_parts)):
        raise ValueError(f"expected every part of {parts[0].num_parts} once, received {[part.part for part in parts]}")
    num_rows = sum(sum(part.num_rows) for part in parts)
    loss = sum(rows * loss for part in parts for rows, loss in zip(part.num_rows, part.losses))
    return Score(loss / num_rows, sum(sum(part.hits) for part in parts) / num_rows)
