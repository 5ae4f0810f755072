"""Every table and figure of the paper as a named list of runs, and the runs whose records ship with the code."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from fedmatch_tf.config import Config, ConfigError, changed_settings, flag, make_config, without_effect
from fedmatch_tf.config.models import learner_of
from fedmatch_tf.config.resume import OF_MACHINE
from fedmatch_tf.config.rules import meaningless, parse_task
from fedmatch_tf.config.tables import STREAMING
from fedmatch_tf.federation.scoring import clients_test

SSL = ("fedavg-uda", "fedprox-uda", "fedavg-fixmatch", "fedprox-fixmatch")
ALL = ("fedavg-sl", "fedprox-sl", *SSL, "fedmatch")


class Experiment(NamedTuple):
    """What is run for a table or figure."""

    name: str
    what: str
    runs: tuple[Mapping[str, Any], ...]  # settings that differ from the defaults


def _runs(tasks: Iterable[str], models: Iterable[str], **given: Any) -> tuple[Mapping[str, Any], ...]:
    return tuple({"task": task, "model": model, **given} for task in tasks for model in models)


BATCH = ("lc-biid-c10", "ls-biid-c10", "lc-bimb-c10", "ls-bimb-c10")
_FEDMATCH = {"task": "lc-biid-c10", "model": "fedmatch"}
_LABELS = (
    *_runs(["lc-biid-c10"], ("fedprox-uda", "fedprox-fixmatch", "fedmatch")),
    {**_FEDMATCH, "no_decomposition": True},
)
_ALEXNET = {"arch": "alexnet"}
_ALEXNET_FEDMATCH = {**_FEDMATCH, **_ALEXNET}
# What ships with this code as records, in the order in which it is run; some have seeds and profiles of their own.
_EVIDENCE = (
    Experiment(
        "results-alexnet",
        "AlexNet, `lc-biid-c10`: the paper's seven models",
        (
            *_runs(["lc-biid-c10"], ("fedmatch", *ALL[:-1]), arch="alexnet"),
            {**_ALEXNET_FEDMATCH, "seed": 2},
            {**_ALEXNET_FEDMATCH, "seed": 3},
        ),
    ),
    Experiment(
        "results-ablations",
        "AlexNet, `lc-biid-c10`: FedMatch as the original's code has it, and without each of its two ideas",
        (
            _ALEXNET_FEDMATCH,
            {**_ALEXNET_FEDMATCH, "profile": "official"},
            {**_ALEXNET_FEDMATCH, "no_icc": True},
            {**_ALEXNET_FEDMATCH, "no_decomposition": True},
        ),
    ),
    Experiment(
        "results-scale",
        "AlexNet, `lc-biid-c10`: does FedMatch's lead come from the scale of its network?",
        (
            _ALEXNET_FEDMATCH,
            {**_ALEXNET_FEDMATCH, "lambda_l2": 0.0},  # psi stays a fifth of sigma
            # Baselines that start larger and move twice as far per step, as theta does where psi is a copy of sigma.
            # FedMatch's theta grows to twice sigma; a network that starts there learns nothing, as a few rounds show.
            *(
                {**_ALEXNET_FEDMATCH, "model": model, **larger}
                for model in ("fedavg-sl", "fedavg-fixmatch")
                for larger in ({}, {"psi_factor": 0.5, "lr": 2e-3})
            ),
            {**_ALEXNET_FEDMATCH, "model": "fedavg-sl", "psi_factor": 1.0, "lr": 2e-3, "num_rounds": 20},
        ),
    ),
    Experiment(
        "results-labels-at-server",
        "AlexNet, `ls-biid-c10`: does naive semi-supervision collapse?",
        _runs(["ls-biid-c10"], ("fedmatch", "fedavg-fixmatch", "fedavg-uda"), arch="alexnet")
        # The original's patience in this scenario; with the paper's the server's rate falls early.
        + _runs(["ls-biid-c10"], ("fedmatch",), arch="alexnet", lr_patience=20),
    ),
    Experiment(
        "results-covid",
        "AlexNet, COVID-19 radiography, both scenarios",
        _runs(["lc-biid-covid", "ls-biid-covid"], ("fedmatch", "fedprox-fixmatch", "fedprox-uda"), arch="alexnet")
        # With the paper's patience its rates fall before it has learned anything.
        + _runs(["lc-biid-covid"], ("fedmatch",), arch="alexnet", lr_patience=20),
    ),
    Experiment(
        "results-streaming",
        "AlexNet, streaming Fashion-MNIST, both scenarios",
        _runs(["lc-simb-fmnist", "ls-simb-fmnist"], ("fedmatch", "fedprox-fixmatch"), arch="alexnet"),
    ),
    Experiment("results-imbalanced", "AlexNet, `lc-bimb-c10`", _runs(["lc-bimb-c10"], ("fedmatch",), arch="alexnet")),
    Experiment("results-resnet9", "ResNet-9, `lc-biid-c10`", ({**_FEDMATCH, "profile": "official"},)),
)
EVIDENCE = tuple(experiment.name for experiment in _EVIDENCE)
# Runs in the settings of other papers, for docs/FIELD.md.
_FIELD_MODELS = ("fedmatch", "fedavg-fixmatch", "fedavg-gpl", "fedavg-sl")
# Everybody has one learning rate, which the global model decides on: those papers know of no rates of clients.
_FIELD_LC = {"profile": "proxyfl", "arch": "alexnet", "num_rounds": 60, "lr_signal": "server"}
_FIELD_LS = {
    "task": "ls-bdir-c10",
    "arch": "alexnet",
    "num_clients": 20,
    "frac_clients": 0.4,
    "alpha": 0.1,
    "labels_per_class": 400,
    "num_rounds": 60,
    "lr_signal": "server",
}
_FIELD = (
    Experiment(
        "field-clients-0.1",
        "AlexNet, 10 % labelled at the clients, Dirichlet 0.1",
        _runs(["lc-bdir-c10"], _FIELD_MODELS, alpha=0.1, **_FIELD_LC),
    ),
    Experiment(
        "field-clients-1.0",
        "AlexNet, 10 % labelled at the clients, Dirichlet 1.0",
        _runs(["lc-bdir-c10"], _FIELD_MODELS, alpha=1.0, **_FIELD_LC),
    ),
    Experiment(
        "field-server",
        "AlexNet, 4000 labels at the server, Dirichlet 0.1",
        ({**_FIELD_LS, "model": "fedmatch"}, {**_FIELD_LS, "model": "semifl", "lr": 0.03}),  # SemiFL's own rate
    ),
)
FIELD_EVIDENCE = tuple(experiment.name for experiment in _FIELD)
_PAPER = {
    experiment.name: experiment
    for experiment in (
        Experiment("batch", "Table 1: CIFAR-10, Batch-IID and Batch-NonIID, both scenarios", _runs(BATCH, ALL)),
        Experiment(
            "streaming",
            "Table 2: Fashion-MNIST, Streaming-NonIID, both scenarios",
            _runs(["lc-simb-fmnist"], ("local-sl", "local-uda", "local-fixmatch"))
            + _runs(
                ["lc-simb-fmnist", "ls-simb-fmnist"], ("fedprox-sl", "fedprox-uda", "fedprox-fixmatch", "fedmatch")
            ),
        ),
        Experiment("curves", "accuracy curves of the batch tasks: the runs of Table 1", _runs(BATCH, ALL)),
        Experiment(
            "ablation-icc",
            "ablation (a): without inter-client consistency",
            ({**_FEDMATCH, "no_icc": True}, _FEDMATCH, *_runs(["lc-biid-c10"], SSL)),
        ),
        Experiment("ablation-parts", "ablation (b): sigma only and psi only", ({**_FEDMATCH, "ablate_eval": True},)),
        Experiment(
            "ablation-labeled-acc",
            "ablation (c), inter-task interference: accuracy on labelled data after every training step",
            _runs(
                ["lc-biid-c10"],
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
            tuple({**run, "labels_per_class": labels} for labels in (1, 5, 10, 20) for run in _LABELS),
        ),
        Experiment(
            "covid",
            "COVID-19 radiography, both scenarios",
            _runs(["lc-biid-covid", "ls-biid-covid"], ("fedprox-uda", "fedprox-fixmatch", "fedmatch")),
        ),
        Experiment(
            "alexnet",
            "AlexNet-like: streaming, and Batch-IID with 5, 10 and 20 % of the clients per round",
            _runs(["lc-simb-fmnist", "ls-simb-fmnist"], ALL, arch="alexnet")
            + tuple(
                {**run, "frac_clients": fraction}
                for fraction in (0.05, 0.1, 0.2)
                for run in _runs(["lc-biid-c10"], ALL, arch="alexnet")
            ),
        ),
        Experiment(
            "communication",
            "communication cost curves of FedMatch: Batch-NonIID and streaming, both scenarios",
            _runs(["lc-bimb-c10", "lc-simb-fmnist", "ls-bimb-c10", "ls-simb-fmnist"], ("fedmatch",)),
        ),
    )
}
PAPER_EXPERIMENTS = tuple(_PAPER)


def _together(experiments: Iterable[Experiment]) -> tuple[Mapping[str, Any], ...]:
    """All their runs, each once."""
    return tuple({repr(run): run for experiment in experiments for run in experiment.runs}.values())


EXPERIMENTS = {
    **_PAPER,
    "evidence": Experiment("evidence", "all runs of docs/RESULTS.md, with fixed seeds", _together(_EVIDENCE)),
    "field": Experiment("field", "all runs of docs/FIELD.md, with fixed seeds", _together(_FIELD)),
    **{experiment.name: experiment for experiment in (*_EVIDENCE, *_FIELD)},
}


def ships(name: str) -> bool:
    """Whether records of the experiment's runs ship with the code."""
    return name in {"evidence", *EVIDENCE, "field", *FIELD_EVIDENCE}


class Plan(NamedTuple):
    """What an experiment comes to with the settings given."""

    configs: list[Config]
    notes: list[str]  # on settings that some of its runs can't have


def configs(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> list[Config]:
    """The experiment's runs, seed after seed, with the paper's settings."""
    return plan(name, seeds, given).configs


def plan(name: str, seeds: Sequence[int], given: Mapping[str, Any]) -> Plan:
    """The experiment's runs, seed after seed, with the paper's settings, and what is to be said of them.

    Args:
        given: settings that replace the experiment's, such as another profile, fewer rounds or a smaller network. One
            that has no meaning for a run is left out of that run.
    """
    if name not in EXPERIMENTS:
        raise ConfigError(f"--experiment: expected one of {', '.join(EXPERIMENTS)}; received {name}")
    for decided in ("task", "model", "seed"):
        if decided in given:
            raise ConfigError(f"{flag(decided)}: is decided by the experiment; use --seeds for other seeds")
    if ships(name):
        others = [flag(setting) for setting in given if setting not in OF_MACHINE]
        if others:
            raise ConfigError(f"{others[0]}: --experiment {name} has the settings of its records; leave it out")
        seeds = (1,)  # its runs say their seeds
    made, notes = [], []
    for seed in seeds:
        for run in EXPERIMENTS[name].runs:
            fitting, said = _fitting(run, given)
            made.append(make_config(**{"profile": "paper", **run, **fitting, "seed": run.get("seed", seed)}))
            notes += said
    return Plan(list(dict.fromkeys(made)), list(dict.fromkeys(notes)))


def _fitting(run: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """(the settings given that this run can have, what is to be said of the others)."""
    task, model = run["task"], run["model"]
    senseless = meaningless(task, model, given)
    # As the run will be, but for switches, which may be of another algorithm, and the run's length.
    others = {name for name, value in given.items() if value is True} | {"num_rounds", "num_steps"} | set(senseless)
    as_given = {name: value for name, value in given.items() if name not in others}
    idle = without_effect(make_config(**{"profile": "paper", **run, **as_given})) - OF_MACHINE
    senseless = {name: "it has no effect" for name in given if name in idle} | senseless
    fitting = {name: value for name, value in given.items() if name not in senseless}
    notes = [f"{flag(name)} is left out where {why}" for name, why in senseless.items()]
    streams = parse_task(task)[1] == "simb"
    if streams and "num_steps" not in given and given.get("num_rounds", math.inf) < STREAMING["num_steps"]:
        fitting["num_steps"] = given["num_rounds"]  # the fewest rounds of a streaming run
        notes.append(f"streaming tasks: {fitting['num_steps']} steps, one per round")
    return fitting, notes


def setting_texts(config: Config) -> list[str]:
    """The settings of a run that are not its profile's, in words: what tells it from others of its task and model."""
    left_out = OF_MACHINE | {"arch", "seed", "source"}
    return [
        name.replace("_", "-") + ("" if value is True else f" {value}")
        for name, value in changed_settings(config).items()
        if name not in left_out
    ]


def run_words(config: Config) -> list[str]:
    """Model, profile if it isn't the paper's, and what settings are not its profile's."""
    profile = [] if config.profile == "paper" else [f"profile {config.profile}"]
    return [config.model, *profile, *setting_texts(config)]


GFLOP = {"resnet9": 0.76, "alexnet": 0.76 / 16, "wrn28_2": 0.42, "resnet8": 0.39}  # forward, one 32x32 image
TRAINING = 3.0  # a training pass over a forward pass
RATE = 215.0  # GFLOP per second that rounds reach on two cores of an AMD EPYC
DATASET_SIZES = {
    "c10": 60000,
    "c100": 60000,
    "svhn": 99289,
    "cinic10": 270000,
    "fmnist": 70000,
    "covid": 2905,
    "digits": 1797,
}


def hours(config: Config) -> float:
    """A rough estimate for two cores: arithmetic of training and evaluation over a measured rate."""
    size = DATASET_SIZES.get(config.dataset, 10000) - config.num_test - config.num_valid
    share = min(size / config.num_clients, config.unlabeled_per_client or size) / config.num_steps
    tests = config.num_valid + (config.num_test if clients_test(config) else 0)
    client = TRAINING * share * learner_of(config.model).passes * config.num_epochs_client + tests
    server = TRAINING * 10 * config.labels_per_class if config.scenario == "ls" else 0.0
    images = config.num_rounds * (config.clients_per_round * client + server + config.num_test)
    return images * GFLOP.get(config.arch, GFLOP["resnet9"]) * (config.image_size / 32) ** 2 / RATE / 3600
