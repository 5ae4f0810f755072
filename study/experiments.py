"""The experiments: every table and figure of the paper as a list of runs, and the runs whose records ship with us.

One entry is one experiment. Where it names a page, its runs have fixed seeds, their records are kept, and the page has
a section with their table and figure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedmatch_tf.config import Config, ConfigError, flag, make_config, settings, without_effect
from fedmatch_tf.config.resume import OF_MACHINE
from fedmatch_tf.config.rules import parse_task
from fedmatch_tf.data.dealing import KINDS

Run = Mapping[str, Any]  # settings that differ from the defaults
RESULTS, FIELD = Path("docs/RESULTS.md"), Path("docs/FIELD.md")
DEFAULT_SEEDS = (1, 2, 3)


class Experiment(NamedTuple):
    """What is run for a table or figure."""

    name: str
    what: str
    runs: tuple[Run, ...]  # in the order in which they are done
    page: Path | None = None  # that shows their records


def run(task: str, model: str = "fedmatch", **settings: Any) -> Run:
    """A run with the paper's settings, but for those given; where records are kept, its seed is 1 unless it says."""
    return {"task": task, "model": model, "profile": "paper", **settings}


def runs(tasks: Iterable[str], models: Iterable[str], **settings: Any) -> tuple[Run, ...]:
    """A run of every model on every task."""
    return tuple(run(task, model, **settings) for task in tasks for model in models)


SSL = ("fedavg-uda", "fedprox-uda", "fedavg-fixmatch", "fedprox-fixmatch")
ALL = ("fedavg-sl", "fedprox-sl", *SSL, "fedmatch")
BATCH = ("lc-biid-c10", "ls-biid-c10", "lc-bimb-c10", "ls-bimb-c10")
OF_SEEDS = ("fedmatch", "fedavg-sl", "fedavg-uda", "fedavg-fixmatch", "fedavg-labels")
C10, STREAMS = ("lc-biid-c10",), ("lc-simb-fmnist", "ls-simb-fmnist")
COVID, OF_COVID = ("lc-biid-covid", "ls-biid-covid"), ("fedprox-uda", "fedprox-fixmatch", "fedmatch")
ALEXNET: dict[str, Any] = {"arch": "alexnet"}
BFLOAT16: dict[str, Any] = {"precision": "bfloat16"}
# Baselines that start larger and move twice as far per step, as theta does where psi is a copy of sigma.
# FedMatch's theta grows to twice sigma; a network that starts there learns nothing, as a few rounds show.
LARGER: dict[str, Any] = {"psi_factor": 0.5, "lr": 2e-3}
# Everybody has one learning rate, which the global model decides on: those papers know of no rates of clients.
FIELD_MODELS = ("fedmatch", "fedavg-fixmatch", "fedavg-gpl", "fedavg-sl")
OF_FIELD: dict[str, Any] = {"num_rounds": 60, "lr_signal": "server", **ALEXNET}
FIELD_LC: dict[str, Any] = {
    **{"num_clients": 20, "frac_clients": 0.4, "labeled_fraction": 0.1, "batch_size_unlabeled": None},
    **{"num_test": 2000, "num_valid": 2000},
    **OF_FIELD,
}
FIELD_LS: dict[str, Any] = {"num_clients": 20, "frac_clients": 0.4, "alpha": 0.1, "labels_per_class": 400, **OF_FIELD}
# FedMatch in halves. SemiFL's code has no inter-client consistency; FedCon's, which (FL)^2 uses, no sigma and psi.
NO_ICC, ONE_SET = {"no_icc": True}, {"no_decomposition": True}
HALVES: tuple[dict[str, Any], ...] = ({**NO_ICC, **ONE_SET}, NO_ICC, ONE_SET, {})
OF_HALVES: dict[str, Any] = {
    **{"num_clients": 20, "frac_clients": 0.4, "alpha": 0.1, "weak": "flip-crop"},
    **OF_FIELD,
    **BFLOAT16,
    "num_rounds": 50,
}
# Five times as far per step, as those papers train: for labels alone, as it would make psi a copy of sigma in a round.
MOMENTUM: dict[str, Any] = {"momentum": 0.9, "lr": 5e-4}


def in_halves(task: str, **settings: Any) -> tuple[Run, ...]:
    """Labels alone, what is left of FedMatch without the two halves, each of them, and the whole; seed after seed."""
    labels = tuple(("fedavg-labels", more) for more in ({}, MOMENTUM))
    rows = (*labels, *(("fedmatch", half) for half in HALVES))
    return tuple(run(task, model, seed=seed, **{**settings, **more}) for seed in DEFAULT_SEEDS for model, more in rows)


_EXPERIMENTS = (
    Experiment("batch", "Table 1: CIFAR-10, Batch-IID and Batch-NonIID, both scenarios", runs(BATCH, ALL)),
    Experiment(
        "streaming",
        "Table 2: Fashion-MNIST, Streaming-NonIID, both scenarios",
        runs(STREAMS[:1], ("local-sl", "local-uda", "local-fixmatch"))
        + runs(STREAMS, ("fedprox-sl", "fedprox-uda", "fedprox-fixmatch", "fedmatch")),
    ),
    Experiment("curves", "accuracy curves of the batch tasks: the runs of Table 1", runs(BATCH, ALL)),
    Experiment(
        "ablation-icc",
        "ablation (a): without inter-client consistency",
        (run("lc-biid-c10", no_icc=True), run("lc-biid-c10"), *runs(C10, SSL)),
    ),
    Experiment("ablation-parts", "ablation (b): sigma only and psi only", (run("lc-biid-c10", ablate_eval=True),)),
    Experiment(
        "ablation-labeled-acc",
        "ablation (c), inter-task interference: accuracy on labelled data after every training step",
        runs(
            C10,
            ("fedprox-uda", "fedprox-fixmatch", "fedmatch"),
            labeled_acc=True,
            num_rounds=100,
            num_clients=10,  # the paper doesn't say; a hundred could not have 1,000 unlabelled examples each
            unlabeled_per_client=1000,
            batch_size_unlabeled=200,  # so that the five steps of an epoch see all of them
        ),
    ),
    Experiment(
        "ablation-labels",
        "ablation (d) and the table of labels per class: 1, 5, 10, 20",
        tuple(
            run("lc-biid-c10", model, labels_per_class=labels, **more)
            for labels in (1, 5, 10, 20)
            for model, more in (*((model, {}) for model in OF_COVID), ("fedmatch", {"no_decomposition": True}))
        ),
    ),
    Experiment("covid", "COVID-19 radiography, both scenarios", runs(COVID, OF_COVID)),
    Experiment(
        "alexnet",
        "AlexNet-like: streaming, and Batch-IID with 5, 10 and 20 % of the clients per round",
        (
            *runs(STREAMS, ALL, **ALEXNET),
            *(each for share in (0.05, 0.1, 0.2) for each in runs(C10, ALL, frac_clients=share, **ALEXNET)),
        ),
    ),
    Experiment(
        "communication",
        "communication cost curves of FedMatch: Batch-NonIID and streaming, both scenarios",
        runs(("lc-bimb-c10", "lc-simb-fmnist", "ls-bimb-c10", "ls-simb-fmnist"), ("fedmatch",)),
    ),
    Experiment(
        "results-alexnet",
        "AlexNet, `lc-biid-c10`: the paper's seven models, and labels alone",
        (
            *runs(C10, ("fedmatch", *ALL[:-1], "fedavg-labels"), **ALEXNET),
            *(run("lc-biid-c10", model, seed=seed, **ALEXNET) for seed in DEFAULT_SEEDS[1:] for model in OF_SEEDS),
        ),
        RESULTS,
    ),
    Experiment(
        "results-ablations",
        "AlexNet, `lc-biid-c10`: FedMatch as the original's code has it, and without each of its ideas",
        (
            run("lc-biid-c10", **ALEXNET),
            run("lc-biid-c10", profile="official", **ALEXNET),
            run("lc-biid-c10", no_icc=True, **ALEXNET),
            run("lc-biid-c10", no_decomposition=True, **ALEXNET),
            run("lc-biid-c10", no_icc=True, lambda_a=0.0, **ALEXNET),  # unlabelled images do nothing
            run("lc-biid-c10", helper_interval=1, **ALEXNET),
            run("lc-biid-c10", num_helpers=4, **ALEXNET),
        ),
        RESULTS,
    ),
    Experiment(
        "results-scale",
        "AlexNet, `lc-biid-c10`: does FedMatch's lead come from the scale of its network?",
        (
            run("lc-biid-c10", **ALEXNET),
            run("lc-biid-c10", lambda_l2=0.0, **ALEXNET),  # psi stays a fifth of sigma
            run("lc-biid-c10", lambda_l2=0.0, delta_thres=0.0, **ALEXNET),  # and no change is too small to be sent
            *(run("lc-biid-c10", lr=lr, **ALEXNET) for lr in (5e-4, 2e-3)),
            *(
                run("lc-biid-c10", model, **ALEXNET, **more)
                for model in ("fedavg-sl", "fedavg-fixmatch")
                for more in ({}, LARGER, {"psi_factor": 0.5}, {"lr": 2e-3})
            ),
            run("lc-biid-c10", "fedavg-uda", **ALEXNET, **LARGER),
            run("lc-biid-c10", "fedavg-labels", **ALEXNET, **LARGER),
            run("lc-biid-c10", "fedavg-sl", psi_factor=1.0, lr=2e-3, num_rounds=20, **ALEXNET),
        ),
        RESULTS,
    ),
    Experiment(
        "results-bfloat16",
        "AlexNet, `lc-biid-c10`: `--precision bfloat16` beside float32",
        tuple(
            run("lc-biid-c10", seed=seed, precision=precision, **ALEXNET)
            for precision in ("float32", "bfloat16")
            for seed in DEFAULT_SEEDS
        ),
        RESULTS,
    ),
    Experiment(
        "results-resnet9",
        "ResNet-9, `lc-biid-c10`",
        (
            run("lc-biid-c10", profile="official"),
            *runs(C10, ("fedavg-sl", "fedprox-uda", "fedprox-fixmatch", "fedavg-labels", "fedmatch"), **BFLOAT16),
            run("lc-biid-c10", profile="official", seed=2, **BFLOAT16),
        ),
        RESULTS,
    ),
    Experiment(
        "results-imbalanced",
        "AlexNet, `lc-bimb-c10` and `ls-bimb-c10`",
        runs(("lc-bimb-c10",), ("fedmatch", "fedavg-sl", "fedavg-uda", "fedavg-fixmatch"), **ALEXNET)
        + runs(("ls-bimb-c10",), ("fedmatch", "fedavg-uda", "fedavg-fixmatch"), **ALEXNET),
        RESULTS,
    ),
    Experiment(
        "results-streaming",
        "AlexNet, streaming Fashion-MNIST, both scenarios",
        runs(STREAMS, ("fedmatch", "fedprox-fixmatch"), **ALEXNET),
        RESULTS,
    ),
    Experiment(
        "results-labels-at-server",
        "AlexNet, `ls-biid-c10`: does naive semi-supervision collapse?",
        (
            *runs(("ls-biid-c10",), ("fedmatch", "fedavg-fixmatch", "fedavg-uda"), **ALEXNET),
            # The original's patience in this scenario; with the paper's the server's rate falls early.
            run("ls-biid-c10", lr_patience=20, **ALEXNET),
        ),
        RESULTS,
    ),
    Experiment(
        "results-labels-at-server-resnet9",
        "ResNet-9, `ls-biid-c10`: does naive semi-supervision collapse?",
        runs(("ls-biid-c10",), ("fedmatch", "fedavg-uda", "fedavg-fixmatch"), **BFLOAT16),
        RESULTS,
    ),
    Experiment(
        "results-covid",
        "AlexNet, COVID-19 radiography, both scenarios",
        (
            *runs(COVID, OF_COVID[::-1], **ALEXNET),
            # With the paper's patience its rates fall before it has learned anything.
            *(
                run("lc-biid-covid", model, lr_patience=20, seed=seed, **ALEXNET)
                for seed in DEFAULT_SEEDS
                for model in OF_COVID[::-1]
            ),
        ),
        RESULTS,
    ),
    Experiment(
        "field-halves",
        "AlexNet, 10 % labelled at the clients, Dirichlet 0.1: labels alone, each half of FedMatch, the whole",
        in_halves("lc-bdir-c10", labeled_fraction=0.1, **OF_HALVES),
        FIELD,
    ),
    Experiment(
        "field-halves-server",
        "AlexNet, 4000 labels at the server, Dirichlet 0.1: labels alone, each half of FedMatch, the whole",
        in_halves("ls-bdir-c10", labels_per_class=400, **OF_HALVES),
        FIELD,
    ),
    *(
        Experiment(
            f"field-clients-{alpha}",
            f"AlexNet, 10 % labelled at the clients, Dirichlet {alpha}",
            runs(("lc-bdir-c10",), FIELD_MODELS, alpha=alpha, **FIELD_LC),
            FIELD,
        )
        for alpha in (0.1, 1.0)
    ),
    Experiment(
        "field-server",
        "AlexNet, 4000 labels at the server, Dirichlet 0.1",
        (run("ls-bdir-c10", **FIELD_LS), run("ls-bdir-c10", "semifl", lr=0.03, **FIELD_LS)),  # SemiFL's own rate
        FIELD,
    ),
)


def shown_on(page: Path | None) -> list[Experiment]:
    """The experiments whose records a page shows; of None, those of the paper, which keep no records."""
    return [experiment for experiment in _EXPERIMENTS if experiment.page == page]


def _together(name: str, page: Path) -> Experiment:
    """All runs of a page, each once."""
    every = {repr(run): run for experiment in shown_on(page) for run in experiment.runs}
    return Experiment(name, f"all runs of {page}, with fixed seeds", tuple(every.values()), page)


PAPER_EXPERIMENTS = tuple(experiment.name for experiment in shown_on(None))
_WHOLE_PAGES = (_together("evidence", RESULTS), _together("field", FIELD))
EXPERIMENTS = {
    experiment.name: experiment for experiment in (*shown_on(None), *_WHOLE_PAGES, *shown_on(RESULTS), *shown_on(FIELD))
}


def seeds_of(name: str, given: Sequence[int] | None) -> Sequence[int]:
    """The seeds of an experiment's runs; those of runs that ship with the code are fixed."""
    if given is not None and name in EXPERIMENTS and EXPERIMENTS[name].page is not None:
        raise ConfigError(f"--seeds: the runs of --experiment {name} have the seeds of its records; leave it out")
    return given or DEFAULT_SEEDS


class Plan(NamedTuple):
    """What an experiment comes to with the settings given."""

    configs: list[Config]
    notes: list[str]  # on settings that some of its runs can't have


def configs(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> list[Config]:
    """The experiment's runs, seed after seed."""
    return plan(name, seeds, given).configs


def plan(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> Plan:
    """The experiment's runs, seed after seed, and what is to be said of them.

    Args:
        given: settings that replace the experiment's, such as another profile, fewer rounds or a smaller network. One
            that has no meaning for a run is left out of that run.
    """
    if name not in EXPERIMENTS:
        raise ConfigError(f"--experiment: expected one of {', '.join(EXPERIMENTS)}; received {name}")
    for decided in ("task", "model", "seed"):
        if decided in given:
            raise ConfigError(f"{flag(decided)}: is decided by the experiment; use --seeds for other seeds")
    if EXPERIMENTS[name].page is not None:
        others = [flag(setting) for setting in given if setting not in OF_MACHINE]
        if others:
            raise ConfigError(f"{others[0]}: --experiment {name} has the settings of its records; leave it out")
        seeds = (1,)  # its runs say their seeds
    made, notes = [], []
    for seed in seeds:
        for run in EXPERIMENTS[name].runs:
            fitting, remarks = _fitting(run, given)
            made.append(make_config(**{"seed": seed, **run, **fitting}))
            notes += remarks
    return Plan(list(dict.fromkeys(made)), list(dict.fromkeys(notes)))


def _fitting(run: Run, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(the settings given that this run can have, what is to be said of the others)."""
    why = {name: reason for name, reason in without_effect(make_config(**run)).items() if settings()[name].refuse}
    # As the run will be, but for its length, which may not fit the steps yet.
    rest = {name: value for name, value in given.items() if name not in {"num_rounds", "num_steps", *why}}
    why.update(without_effect(make_config(**{**run, **rest})))
    left_out = [name for name in given if name in why.keys() - OF_MACHINE]
    fitting = {name: value for name, value in given.items() if name not in left_out}
    notes = [f"{flag(name)} is left out of some runs: {why[name]}" for name in left_out]
    steps = KINDS[parse_task(run["task"])[1]].defaults.get("num_steps", 1)
    if "num_steps" not in given and given.get("num_rounds", math.inf) < steps:
        fitting["num_steps"] = given["num_rounds"]  # the fewest rounds of a streaming run
        notes.append(f"streaming tasks: {fitting['num_steps']} steps, one per round")
    return fitting, notes
