"""The paper's own numbers, and those of other papers for the methods here: accuracies in percent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from fedmatch_tf.config import Config
from fedmatch_tf.config.models import algorithm_of
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.results.names import ONLY_WATCHES, setting_words
from fedmatch_tf.results.references import Published, Reference, Reported

# The paper: accuracy and its deviation over three runs, a row per model.
# CIFAR-10, 100 clients, fraction 0.05, ResNet-9, 200 rounds; accuracy of the global model.
_TABLE_1 = """
model               lc-biid-c10  ls-biid-c10  lc-bimb-c10  ls-bimb-c10
fedavg-sl           58.60±0.42   52.45±0.23   55.15±0.21   51.50±0.51
fedprox-sl          59.30±0.31   49.11±0.38   57.75±0.15   49.31±0.18
fedavg-uda          46.35±0.29   24.81±0.73   44.35±0.39   27.61±0.71
fedprox-uda         47.45±0.21   19.91±0.31   46.31±0.63   26.01±0.78
fedavg-fixmatch     47.01±0.43   11.95±0.60   46.20±0.52   9.45±0.34
fedprox-fixmatch    47.20±0.12   25.61±0.32   45.55±0.63   9.21±0.24
fedmatch            52.13±0.34   44.95±0.49   52.25±0.81   44.17±0.19
"""
# Fashion-MNIST, 10 clients, fraction 1.0, ResNet-9, 100 rounds; mean local accuracy.
_TABLE_2 = """
model               lc-simb-fmnist  ls-simb-fmnist
local-sl            87.19±0.36      -
local-uda           70.70±0.28      -
local-fixmatch      62.62±0.32      -
fedprox-sl          82.06±0.26      77.43±0.42
fedprox-uda         73.71±0.17      83.34±0.21
fedprox-fixmatch    62.40±0.43      73.71±0.32
fedmatch            77.95±0.14      84.15±0.31
"""
# AlexNet-like; a column is a task and the fraction of clients per round. 100 rounds streaming, 200 batch.
_ALEXNET = """
model               lc-simb-fmnist@1  ls-simb-fmnist@1  lc-biid-c10@0.05  lc-biid-c10@0.1  lc-biid-c10@0.2
fedavg-sl           68.20±0.29        70.51±0.11        47.23±0.31        47.87±0.73       48.73±0.15
fedprox-sl          68.47±0.13        70.55±0.72        47.54±0.28        48.01±0.17       49.20±0.64
fedavg-uda          52.25±0.04        46.28±0.32        35.27±0.29        35.20±0.53       36.21±0.12
fedprox-uda         52.84±0.15        46.35±0.31        34.94±0.46        36.67±0.73       35.80±0.43
fedavg-fixmatch     57.09±0.89        52.67±0.78        32.33±0.51        36.27±0.33       37.61±0.05
fedprox-fixmatch    57.12±0.41        51.51±0.32        36.83±0.23        36.37±0.39       37.40±0.18
fedmatch            63.84±0.18        59.12±0.35        41.67±0.32        41.97±0.14       42.18±0.27
"""
_COVID = """
model               lc-biid-covid  ls-biid-covid
fedprox-uda         74.24±0.25     80.11±0.18
fedprox-fixmatch    70.02±0.28     72.15±0.14
fedmatch            78.67±0.23     84.32±0.11
"""
# lc-biid-c10 by labels per class and client. With 5, table 1 stands for the models that it has (here FedMatch: 54.5).
_LABELS = """
model               decomposition  1      5      10     20
fedprox-uda         yes            31.95  -      41.4   47.15
fedprox-fixmatch    yes            30.01  -      34.25  44.5
fedmatch            no             37.7   47.51  51.15  62.7
fedmatch            yes            37.65  -      60.65  66.1
"""
# FedMatch's costs to a client and from it, as shares of one parameter set; models that send everything cost 1.
_COSTS = {
    "lc-biid-c10": (0.79, 0.46),
    "ls-biid-c10": (0.45, 0.22),
    "lc-bimb-c10": (0.85, 0.49),
    "ls-bimb-c10": (0.42, 0.20),
    "lc-simb-fmnist": (0.37, 0.48),
    "ls-simb-fmnist": (0.14, 0.63),
}

# Other papers: how unlabelled data are dealt (evenly, by Dirichlet, two classes per client), and all labels together.
# Labels at server, 100 clients, 10 % per round, WRN-28-2; columns are all labels of the server.
_SEMIFL = """
dataset  dealt  model          250    1000   2500   4000   10000
c10      iid    fedmatch       41.7   -      -      58.6   -
c10      0.3    fedmatch       41.2   -      -      58.4   -
c10      0.1    fedmatch       41.6   -      -      58.9   -
c10      2      fedmatch       41.3   -      -      58.3   -
c10      iid    semifl         88.2   -      -      93.1   -
c10      iid    fedavg-labels  42.4   -      -      76.9   -
svhn     iid    fedmatch       58.6   84.3   -      -      -
svhn     iid    semifl         96.8   96.9   -      -      -
c100     iid    fedmatch       -      -      17.6   -      31.3
c100     iid    semifl         -      -      61.3   -      72.1
"""
# The same with very few labels, 800 rounds; means of three seeds. CIFAR-100 with WRN-28-8.
_FL2 = """
dataset  dealt  model        10     40     100    250    400
c10      iid    fedmatch     16.2   25.4   -      -      -
c10      0.3    fedmatch     15.3   25.2   -      -      -
c10      0.1    fedmatch     16.0   25.6   -      -      -
svhn     iid    fedmatch     -      18.4   -      66.2   -
svhn     0.3    fedmatch     -      22.3   -      72.3   -
svhn     0.1    fedmatch     -      20.7   -      70.1   -
c100     iid    fedmatch     -      -      6.4    -      10.0
c100     0.3    fedmatch     -      -      5.5    -      9.8
c100     0.1    fedmatch     -      -      6.3    -      10.0
"""
# Labels at all clients, 20 clients, 8 per round, ResNet-8, Dirichlet; columns are shares of labelled examples.
_PROXYFL = """
dataset  dealt  model          0.1    0.2
c10      0.1    fedmatch       75.35  82.44
c10      0.5    fedmatch       77.86  84.13
c10      1      fedmatch       78.00  85.21
c100     0.1    fedmatch       32.23  -
c100     0.5    fedmatch       31.49  -
c100     1      fedmatch       35.75  -
svhn     0.1    fedmatch       88.63  -
svhn     0.5    fedmatch       89.20  -
svhn     1      fedmatch       89.23  -
cinic10  0.1    fedmatch       51.94  -
cinic10  0.5    fedmatch       56.27  -
cinic10  1      fedmatch       70.22  -
c10      0.1    fedavg-gpl     84.6   -
c10      0.5    fedavg-gpl     86.1   -
c10      1      fedavg-gpl     86.7   -
c10      0.1    fedavg-labels  69.6   -
c10      0.5    fedavg-labels  68.9   -
c10      1      fedavg-labels  69.4   -
c10      0.1    fedavg-sage    87.1   89.87
c10      0.5    fedavg-sage    88.1   90.53
c10      1      fedavg-sage    89.1   90.54
"""
# The setting of FedMatch's own paper, with a fork of its authors' code: 100 clients, 5 per round, ResNet-9, 200 rounds.
_TGAFED = """
dataset  dealt  model        50
cinic10  iid    fedmatch     43.7
cinic10  bimb   fedmatch     43.9
"""
_FIELD = (
    ("semifl", "SemiFL, table 1", _SEMIFL),
    ("fl2", "(FL)^2, table 1", _FL2),
    ("proxyfl", "ProxyFL, tables 1 and 6", _PROXYFL),
    ("sage", "ProxyFL, tables 1 and 6", _PROXYFL),
    ("official", "TGAFed", _TGAFED),
)
# Scenario, clients, clients per round.
_CLIENTS = {
    "semifl": ("ls", 100, 10),
    "fl2": ("ls", 100, 10),
    "proxyfl": ("lc", 20, 8),
    "sage": ("lc", 20, 8),
    "official": ("lc", 100, 5),
}

# What decides which value stands beside a run, of the paper and of others: it can't differ.
_OF_PAPER = frozenset(
    {"arch", "frac_clients", "labels_per_class", "no_decomposition", "num_clients", "num_helpers", "no_icc"}
)
_OF_FIELD = frozenset(
    {
        "alpha",
        "alpha_labeled",
        "classes_per_client",
        "frac_clients",
        "labels_per_class",
        "labeled_fraction",
        "num_clients",
    }
)


def _cells(table: str, num_names: int = 1) -> Iterator[tuple[list[str], str, str]]:
    """(names of its row, head of its column, content) of every cell that has a value."""
    head, *rows = [line.split() for line in table.strip().splitlines()]
    for row in rows:
        for column, cell in zip(head[num_names:], row[num_names:]):
            if cell != "-":
                yield row[:num_names], column, cell


def _own_labels(task: str) -> int:
    """Labels per class of a client, or of the server, where the paper does not vary them."""
    return 50 if task == "ls-biid-covid" else {"lc": 5, "ls": 100}[task[:2]]


def _all_of_paper() -> dict[tuple[Any, ...], Reported]:
    """By task, model, network, fraction of clients, labels per class, and whether it is without decomposition."""
    values = {}
    for where, table, fraction in (("Table 1", _TABLE_1, 0.05), ("Table 2", _TABLE_2, 1.0), ("COVID-19", _COVID, 1.0)):
        for (model,), task, cell in _cells(table):
            accuracy, deviation = map(float, cell.split("±"))
            reported = Reported(where, accuracy, deviation, *_cost(task, model), local=table is _TABLE_2)
            values[task, model, "resnet9", fraction, _own_labels(task), False] = reported
    for (model,), column, cell in _cells(_ALEXNET):
        task, share = column.split("@")
        accuracy, deviation = map(float, cell.split("±"))
        key = (task, model, "alexnet", float(share), _own_labels(task), False)
        values[key] = Reported("AlexNet table", accuracy, deviation)
    for (model, decomposition), labels, cell in _cells(_LABELS, 2):
        key = ("lc-biid-c10", model, "resnet9", 0.05, int(labels), decomposition == "no")
        values[key] = Reported("labels per class", float(cell))
    return values


def _cost(task: str, model: str) -> tuple[float | None, float | None]:
    """What a client gets and sends, where the paper says so."""
    algorithm = algorithm_of(model)
    if algorithm.decomposed:
        return _COSTS.get(task, (None, None))
    return (1.0, 1.0) if algorithm.has_global_model and not task.endswith("covid") else (None, None)


_PAPER = _all_of_paper()
_PUBLISHED = [
    ((profile, dataset, dealt, float(labels)), Published(where, model, float(cell)))
    for profile, where, table in _FIELD
    for (dataset, dealt, model), labels, cell in _cells(table, 3)
]


def reported(settings: Mapping[str, Any]) -> Reported | None:
    """The paper's value for a run with these settings; None if it has none (an ablation, another number of clients)."""
    task, model, arch = settings["task"], settings["model"], settings["arch"]
    clients = {100} if task.endswith("c10") else {10}
    if arch == "alexnet" and "-simb-" in task:
        clients.add(100)  # the AlexNet table's caption has 100, table 2 has 10 for the same task
    helped = settings["num_helpers"] == 2 and not settings["no_icc"]
    other_data = any(settings[name] is not None for name in ("labeled_fraction", "labeled_clients", "alpha_labeled"))
    if other_data or settings["num_clients"] not in clients or (algorithm_of(model).has_helpers and not helped):
        return None
    how = (settings["frac_clients"], settings["labels_per_class"], settings["no_decomposition"])
    return _PAPER.get((task, model, arch, *how))


def published(settings: Mapping[str, Any]) -> list[Published]:
    """What papers report for a run's data and clients, for its own model first; nothing unless it has their profile.

    The network and how it is trained may differ.
    """
    profile = settings["profile"]
    scenario, kind, dataset = settings["task"].split("-")
    selected = round(settings["num_clients"] * settings["frac_clients"])
    other_data = settings["drop_rate"] or settings["labeled_clients"] or settings["unlabeled_per_client"]
    if _CLIENTS.get(profile) != (scenario, settings["num_clients"], selected) or other_data:
        return []
    dealt = {
        "biid": "iid",
        "bimb": kind,
        "bdir": f"{settings['alpha']:g}",
        "bshard": f"{settings['classes_per_client']}",
    }.get(kind)
    labels = settings["labeled_fraction"] or settings["labels_per_class"] * (DATASETS[dataset].num_classes or 0)
    values = [value for key, value in _PUBLISHED if key == (profile, dataset, dealt, labels)]
    return sorted(values, key=lambda value: value.model != settings["model"])


def unlike_paper(config: Config) -> list[str]:
    """How a run's settings differ from its profile's, but for those by which the paper's value is found."""
    return setting_words(config, _OF_PAPER | ONLY_WATCHES)


def papers_value(config: Config) -> Reported | None:
    """The paper's value for such a run; None where more than the profile is not as in the paper."""
    return None if unlike_paper(config) else reported(asdict(config))


def reference(settings: Mapping[str, Any]) -> Reference:
    """What stands beside a run with these settings. What of a paper its profile does not have is in docs/FIELD.md."""
    config, paper, others = Config(**settings), reported(settings), published(settings)
    profile = [] if config.profile == "paper" else [f"profile {config.profile}"]
    return Reference(
        paper,
        ", ".join([*profile, *unlike_paper(config)]) if paper else "",
        others,
        ", ".join(setting_words(config, _OF_FIELD | ONLY_WATCHES)) if others else "",
    )
