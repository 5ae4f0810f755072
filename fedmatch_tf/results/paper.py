"""The paper's own numbers, to stand beside ours: accuracies in percent, costs as shares of one parameter set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedmatch_tf.config import Config, changed_settings
from fedmatch_tf.config.models import algorithm_of
from fedmatch_tf.config.resume import OF_MACHINE


class Reported(NamedTuple):
    """One value of the paper."""

    where: str
    accuracy: float  # percent
    deviation: float | None = None
    s2c: float | None = None
    c2s: float | None = None
    local: bool = False  # mean over clients after their training, not the global model


# Accuracy and its deviation over three runs, in percent.
# CIFAR-10, 100 clients, fraction 0.05, ResNet-9, 200 rounds; accuracy of the global model.
_TABLE_1 = """
                    lc-biid-c10   ls-biid-c10   lc-bimb-c10   ls-bimb-c10
fedavg-sl           58.60 0.42    52.45 0.23    55.15 0.21    51.50 0.51
fedprox-sl          59.30 0.31    49.11 0.38    57.75 0.15    49.31 0.18
fedavg-uda          46.35 0.29    24.81 0.73    44.35 0.39    27.61 0.71
fedprox-uda         47.45 0.21    19.91 0.31    46.31 0.63    26.01 0.78
fedavg-fixmatch     47.01 0.43    11.95 0.60    46.20 0.52     9.45 0.34
fedprox-fixmatch    47.20 0.12    25.61 0.32    45.55 0.63     9.21 0.24
fedmatch            52.13 0.34    44.95 0.49    52.25 0.81    44.17 0.19
"""
# Fashion-MNIST, 10 clients, fraction 1.0, ResNet-9, 100 rounds; mean local accuracy.
_TABLE_2 = """
                    lc-simb-fmnist    ls-simb-fmnist
local-sl            87.19 0.36        - -
local-uda           70.70 0.28        - -
local-fixmatch      62.62 0.32        - -
fedprox-sl          82.06 0.26        77.43 0.42
fedprox-uda         73.71 0.17        83.34 0.21
fedprox-fixmatch    62.40 0.43        73.71 0.32
fedmatch            77.95 0.14        84.15 0.31
"""
# AlexNet-like; a column is a task and the fraction of clients per round. 100 rounds streaming, 200 batch.
_ALEXNET = """
                    lc-simb-fmnist@1  ls-simb-fmnist@1  lc-biid-c10@0.05  lc-biid-c10@0.1  lc-biid-c10@0.2
fedavg-sl           68.20 0.29        70.51 0.11        47.23 0.31        47.87 0.73       48.73 0.15
fedprox-sl          68.47 0.13        70.55 0.72        47.54 0.28        48.01 0.17       49.20 0.64
fedavg-uda          52.25 0.04        46.28 0.32        35.27 0.29        35.20 0.53       36.21 0.12
fedprox-uda         52.84 0.15        46.35 0.31        34.94 0.46        36.67 0.73       35.80 0.43
fedavg-fixmatch     57.09 0.89        52.67 0.78        32.33 0.51        36.27 0.33       37.61 0.05
fedprox-fixmatch    57.12 0.41        51.51 0.32        36.83 0.23        36.37 0.39       37.40 0.18
fedmatch            63.84 0.18        59.12 0.35        41.67 0.32        41.97 0.14       42.18 0.27
"""
_COVID = """
                    lc-biid-covid     ls-biid-covid
fedprox-uda         74.24 0.25        80.11 0.18
fedprox-fixmatch    70.02 0.28        72.15 0.14
fedmatch            78.67 0.23        84.32 0.11
"""
_NOT_GIVEN: tuple[float | None, float | None] = (None, None)
# FedMatch's costs, to a client and from it; models that send everything cost 1.
_COSTS: dict[tuple[str, str], tuple[float | None, float | None]] = {
    ("lc-biid-c10", "fedmatch"): (0.79, 0.46),
    ("ls-biid-c10", "fedmatch"): (0.45, 0.22),
    ("lc-bimb-c10", "fedmatch"): (0.85, 0.49),
    ("ls-bimb-c10", "fedmatch"): (0.42, 0.20),
    ("lc-simb-fmnist", "fedmatch"): (0.37, 0.48),
    ("ls-simb-fmnist", "fedmatch"): (0.14, 0.63),
}
# lc-biid-c10 by labels per class and client. With 5, table 1 stands for the models that it has (here FedMatch: 54.5).
_LABELS = {
    ("fedprox-uda", False): {1: 31.95, 10: 41.4, 20: 47.15},
    ("fedprox-fixmatch", False): {1: 30.01, 10: 34.25, 20: 44.5},
    ("fedmatch", True): {1: 37.7, 5: 47.51, 10: 51.15, 20: 62.7},  # without decomposition
    ("fedmatch", False): {1: 37.65, 10: 60.65, 20: 66.1},
}


def _parse(table: str) -> Iterator[tuple[str, str, float, float]]:
    """(column, model, accuracy, deviation) of every cell that has a value."""
    head, *rows = [line.split() for line in table.strip().splitlines()]
    for model, *cells in rows:
        for column, accuracy, deviation in zip(head, cells[::2], cells[1::2]):
            if accuracy != "-":
                yield column, model, float(accuracy), float(deviation)


def _all() -> dict[tuple[Any, ...], Reported]:
    found = {}
    for name, table in (("Table 1", _TABLE_1), ("Table 2", _TABLE_2), ("COVID-19", _COVID)):
        for task, model, accuracy, deviation in _parse(table):
            fraction = 0.05 if table is _TABLE_1 else 1.0
            value = Reported(name, accuracy, deviation, *_cost(task, model), local=table is _TABLE_2)
            found[_key(task, model, frac_clients=fraction)] = value
    for column, model, accuracy, deviation in _parse(_ALEXNET):
        task, share = column.split("@")
        value = Reported("AlexNet table", accuracy, deviation)
        found[_key(task, model, arch="alexnet", frac_clients=float(share))] = value
    for (model, without), by_labels in _LABELS.items():
        for labels, accuracy in by_labels.items():
            key = _key("lc-biid-c10", model, labels_per_class=labels, no_decomposition=without)
            found[key] = Reported("labels per class", accuracy)
    return found


def _cost(task: str, model: str) -> tuple[float | None, float | None]:
    entry = algorithm_of(model)
    all_is_sent = entry.has_global_model and not entry.decomposed and not task.endswith("covid")
    if all_is_sent:
        return 1.0, 1.0
    return _COSTS.get((task, model), _NOT_GIVEN)


def _key(
    task: str,
    model: str,
    arch: str = "resnet9",
    frac_clients: float = 0.05,
    labels_per_class: int | None = None,
    no_decomposition: bool = False,
) -> tuple[Any, ...]:
    """What decides which value of the paper a run is to be held against; None: the task's own number of labels."""
    return task, model, arch, frac_clients, labels_per_class, no_decomposition


_REPORTED = _all()
_OWN_LABELS = {"lc": 5, "ls": 100, "ls-biid-covid": 50}


def reported(settings: Mapping[str, Any]) -> Reported | None:
    """The paper's value for a run with these settings; None if it has none (an ablation, another number of clients)."""
    task, labels = settings["task"], settings["labels_per_class"]
    helped = not algorithm_of(settings["model"]).has_helpers or (
        settings["num_helpers"] == 2 and not settings["no_icc"]
    )
    clients = {100} if task.endswith("c10") else {10}
    if settings["arch"] == "alexnet" and "-simb-" in task:
        clients.add(100)  # the AlexNet table's caption has 100, table 2 has 10 for the same task
    other_data = any(settings[name] is not None for name in ("labeled_fraction", "labeled_clients", "alpha_labeled"))
    if not helped or other_data or settings["num_clients"] not in clients:
        return None
    own = labels == _OWN_LABELS.get(task, _OWN_LABELS[task[:2]])
    key = _key(
        task,
        settings["model"],
        settings["arch"],
        settings["frac_clients"],
        None if own else labels,
        settings["no_decomposition"],
    )
    found = _REPORTED.get(key)
    if found is None and own:
        found = _REPORTED.get((*key[:4], labels, key[5]))
    return found


# What decides which value is the paper's, so it can't differ; and what says nothing of a run's result.
_MATCHED = frozenset(
    {"arch", "frac_clients", "labels_per_class", "no_decomposition", "num_clients", "num_helpers", "no_icc"}
)
ONLY_WATCHES = frozenset({"ablate_eval", "labeled_acc", "keep_best", "eval_clients", "seed", "source"})


def other_settings(config: Config) -> str:
    """How a run's settings differ from the paper's, in a few words; empty if they don't."""
    told = [] if config.profile == "paper" else [f"profile {config.profile}"]
    return ", ".join([*told, *changed_settings_words(config)])


def changed_settings_words(config: Config) -> list[str]:
    """How a run's settings differ from its profile's, but for those by which the paper's value is found."""
    return setting_words(config, _MATCHED)


def setting_words(config: Config, matched: frozenset[str]) -> list[str]:
    """The settings that are not the profile's, but for those that a value was found by and those that only watch."""
    changed = changed_settings(config).items()
    return [
        f"{name.replace('_', '-')} {value}"
        for name, value in changed
        if name not in OF_MACHINE | matched | ONLY_WATCHES
    ]
