"""The front door: training from Python. The command line does its work with the same functions.

Errors are exceptions: `ConfigError` for a setting that can't be used, `DataError` for data or files, `TrainingError`
when training can't go on; `OSError` where the system refuses something. Ctrl-C raises KeyboardInterrupt when the round
is done and saved. Nothing is printed unless `progress` asks for it; remarks go to the logger `fedmatch_tf`, faults that
a run survives as warnings.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union

from fedmatch_tf.base import signals
from fedmatch_tf.base.errors import DataError, short
from fedmatch_tf.config import Config, ConfigError, combinations, make_config
from fedmatch_tf.federation.tasks import TrainingError as TrainingError
from fedmatch_tf.results import outcome, results
from fedmatch_tf.results.report_tables import flat
from fedmatch_tf.results.summary import best_validated
from fedmatch_tf.runs import training
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.training import OnRound, Watch

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

Shown = Literal[True, False, "notes"]


@dataclass(frozen=True)
class TrainingResult:
    """A run as its folder has it: plain data."""

    folder: Path
    rounds: list[dict[str, Any]]  # the objects of rounds.jsonl; docs/TRAINING.md says what they hold
    settings: dict[str, Any]  # by the names that `train` takes
    finished: bool
    class_names: tuple[str, ...]  # empty if the run has not recorded them
    record: results.Result = field(repr=False, compare=False)  # with what else its folder has

    @property
    def best(self) -> dict[str, Any] | None:
        """The round with the global model's lowest validation loss; None unless that was measured (`keep_best`)."""
        found = best_validated(self.rounds) if self.rounds else None
        return None if found is None else dict(found)

    @property
    def test_acc(self) -> float | None:
        """Accuracy of the global model after the last round, from 0 to 1; None before the first round."""
        return self.rounds[-1]["test_acc"] if self.rounds else None

    def frame(self) -> pandas.DataFrame:
        """The rounds as a pandas DataFrame, one row per round; `s2c` and `c2s` become columns such as `s2c.sum`."""
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise ConfigError("frame: expected pandas, which is not installed: pip install 'pandas<3'") from error
        return pandas.DataFrame([flat(line) for line in self.rounds])

    def plot(self) -> Figure:
        """What curve.png shows: accuracy, pseudo-labels and costs over the rounds. A notebook draws it."""
        from fedmatch_tf.runs.curve import curve, title_of

        return curve(self.rounds, title_of(self.settings))

    def __str__(self) -> str:
        return outcome.describe(self.record)


RunLike = Union[str, Path, TrainingResult]


def train(
    task: str | Config,
    *,
    progress: Shown = False,
    on_round: OnRound | None = None,
    **settings: Any,
) -> TrainingResult:
    """Trains from the first round to the last.

    Args:
        task: such as `lc-biid-c10`, or a Config from `make_config`, which then has all settings.
        progress: True shows rounds and remarks on stderr, `notes` remarks alone.
        on_round: called after every round with its object of rounds.jsonl. If it returns False the run stops there,
            and `resume` goes on with it.
        settings: any setting by its name: `model`, `arch`, `num_rounds`, `seed`, ... `python main.py --help` has all.
    """
    if isinstance(task, Config) and settings:
        raise ConfigError(f"expected a Config or settings by name, received a Config and {', '.join(settings)}")
    config = task if isinstance(task, Config) else make_config(task, **settings)
    watch = _watch(progress, on_round)
    with signals.restored():  # a run that is interrupted ignores signals while it clears up; its caller does not
        return load_run(training.train(config, watch))


@dataclass(frozen=True)
class SweepResult:
    """What a sweep did."""

    runs: list[TrainingResult]
    report: Path | None  # its folder; None if all runs have the same settings

    def __str__(self) -> str:
        return "\n".join(map(str, self.runs))


def sweep(
    task: str,
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: int | Sequence[int] = 3,
    jobs: int = 1,
    progress: Shown = False,
    **settings: Any,
) -> SweepResult:
    """A run for every combination of the grid's values, with every seed; what is done already is not done again.

    Args:
        grid: the values of each setting that differs, such as {"lr": [1e-3, 2e-3]}.
        seeds: how many, from 1 on, or which.
        jobs: so many runs beside each other, if memory allows.
    """
    from fedmatch_tf.results.sweep import sweep_all

    runs = combinations(grid, seeds, {"task": task, **settings})
    watch = _watch(progress, None)
    with signals.restored():
        swept = sweep_all(runs, settings, watch, jobs=jobs)
    return SweepResult([load_run(folder) for folder in swept.folders], swept.report)


def resume(
    run: RunLike, *, progress: Shown = False, on_round: OnRound | None = None, **settings: Any
) -> TrainingResult:
    """Goes on with a run where its last checkpoint is.

    Args:
        run: its folder, `<output-path>/logs/<name>`, or its result.
        settings: `num_rounds` may grow, and some settings of the machine may change (docs/SIMULATOR.md); others must be
            as they were.
    """
    watch = _watch(progress, on_round)
    with signals.restored():  # a run that is interrupted ignores signals while it clears up; its caller does not
        return load_run(training.resume(_folder(run), settings, watch))


def load_run(run: RunLike) -> TrainingResult:
    """A run from its folder, finished or not. Needs no TensorFlow."""
    folder = _folder(run)
    found = results.read(folder)
    if found.state == results.UNREADABLE and not found.settings:
        raise DataError(f"{run}: expected the folder of a run, <output-path>/logs/<name>: {found.remark}")
    names = (found.confusion or found.partition or {}).get("class_names", ())
    finished = found.state == results.FINISHED
    rounds = [dict(line) for line in found.lines]
    return TrainingResult(folder.absolute(), rounds, dict(found.settings), finished, tuple(names), found)


def load_model(
    run: RunLike,
    *,
    parts: Literal["theta", "sigma", "psi"] = "theta",
    decomposed: bool = False,
    best: bool = False,
) -> Any:
    """The run's global model after its last round: images float32 [n, h, w, c] in [0, 1] -> probabilities.

    Args:
        run: its folder, `<output-path>/logs/<name>`, or its result; or what `export` wrote.
        parts: the whole model, or one with sigma or psi alone.
        decomposed: a tf.keras.Model of the decomposed layers, whose sigma and psi can be trained, instead of plain
            ones.
        best: the model of the lowest validation loss instead, of a run with `keep_best`.
    """
    from fedmatch_tf.results.models import load

    return load(_folder(run), parts, decomposed, best)


def _folder(run: RunLike) -> Path:
    if isinstance(run, TrainingResult):
        return run.folder
    if not isinstance(run, (str, Path)) or "\0" in str(run):
        raise ConfigError(f"run: expected the folder of a run, as a path, or a result; received {short(run)}")
    return Path(run)


def _watch(progress: Shown, on_round: OnRound | None) -> Watch:
    if progress not in (True, False, "notes"):
        raise ConfigError(f"progress: expected True, False or 'notes', received {progress!r}")
    if on_round is not None and not callable(on_round):
        raise ConfigError(f"on_round: expected a function of a round's record, received {on_round!r}")
    logger = None if progress else logging.getLogger("fedmatch_tf")
    return Watch(progress is not True, progress_for(progress is not True), logger, on_round)
