"""One paper under the microscope: its numbers beside ours, its experiments, and the records of those that were run.

Not part of the package: `main.py` hands this to `fedmatch_tf`, which knows no paper's numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedmatch_tf.results.references import Reference
    from fedmatch_tf.runs.display import Progress


def references(settings: Mapping[str, Any], /) -> Reference:
    """What others report for a run with these settings, and what records of the same settings reached."""
    from study import records, values

    return values.reference(settings)._replace(shipped=records.beside(settings))


def reproduce(
    experiment: str,
    seeds: Sequence[int] | None,
    given: Mapping[str, Any],
    *,
    listing: bool,
    dry_run: bool,
    quiet: bool,
    progress: Progress,
    jobs: int,
) -> None:
    """Lists experiments, prints the commands of one, or does what is missing of it and reports on all."""
    from study import reproduction
    from study.experiments import seeds_of

    chosen = seeds_of(experiment, seeds)
    if listing:
        print(reproduction.list_experiments(chosen, given))
    elif dry_run:
        reproduction.dry_run(experiment, chosen, given)
    else:
        print(reproduction.run(experiment, chosen, given, quiet, progress, jobs))
