"""What papers of this field report for the methods here, to stand beside a run of their settings. Percent."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from fedmatch_tf.config import Config
from fedmatch_tf.results.paper import setting_words


class Published(NamedTuple):
    """A value of another paper."""

    where: str
    model: str  # one of ours, or what it is
    accuracy: float


# Labels at server, 100 clients, 10 % per round, WRN-28-2; columns are all labels of the server.
# How unlabelled data are dealt: evenly, by Dirichlet, two classes per client.
_SEMIFL = """
dataset  dealt  model        250    4000
c10      iid    fedmatch     41.7   58.6
c10      0.3    fedmatch     41.2   58.4
c10      0.1    fedmatch     41.6   58.9
c10      2      fedmatch     41.3   58.3
c10      iid    semifl       88.2   93.1
c10      iid    labels-only  42.4   76.9
"""
_SEMIFL_SVHN = """
dataset  dealt  model        250    1000
svhn     iid    fedmatch     58.6   84.3
svhn     iid    semifl       96.8   96.9
"""
_SEMIFL_C100 = """
dataset  dealt  model        2500   10000
c100     iid    fedmatch     17.6   31.3
c100     iid    semifl       61.3   72.1
"""
# The same with very few labels, 800 rounds.
_FL2 = """
dataset  dealt  model        10     40
c10      iid    fedmatch     16.2   25.4
c10      0.3    fedmatch     15.3   25.2
c10      0.1    fedmatch     16.0   25.6
"""
# Labels at all clients, 20 clients, 8 per round, ResNet-8, Dirichlet; columns are shares of labelled examples.
_PROXYFL = """
dataset  dealt  model        0.1    0.2
c10      0.1    fedmatch     75.35  82.44
c10      0.5    fedmatch     77.86  84.13
c10      1      fedmatch     78.00  85.21
c100     0.1    fedmatch     32.23  -
c100     0.5    fedmatch     31.49  -
c100     1      fedmatch     35.75  -
svhn     0.1    fedmatch     88.63  -
svhn     0.5    fedmatch     89.20  -
svhn     1      fedmatch     89.23  -
cinic10  0.1    fedmatch     51.94  -
cinic10  0.5    fedmatch     56.27  -
cinic10  1      fedmatch     70.22  -
c10      0.1    fedavg-gpl   84.6   -
c10      0.5    fedavg-gpl   86.1   -
c10      1      fedavg-gpl   86.7   -
c10      0.1    labels-only  69.6   -
c10      0.5    labels-only  68.9   -
c10      1      labels-only  69.4   -
c10      0.1    SAGE         87.1   89.87
c10      0.5    SAGE         88.1   90.53
c10      1      SAGE         89.1   90.54
"""
# The setting of FedMatch's own paper, with a fork of its authors' code: 100 clients, 5 per round, ResNet-9, 200 rounds.
_TGAFED = """
dataset  dealt  model        50
cinic10  iid    fedmatch     43.7
cinic10  bimb   fedmatch     43.9
"""
_TABLES = (
    ("semifl", "SemiFL, table 1", _SEMIFL),
    ("semifl", "SemiFL, table 1", _SEMIFL_SVHN),
    ("semifl", "SemiFL, table 1", _SEMIFL_C100),
    ("semifl", "(FL)^2, table 1", _FL2),
    ("proxyfl", "ProxyFL, tables 1 and 6", _PROXYFL),
    ("official", "TGAFed", _TGAFED),
)
# scenario, clients, clients per round
_CLIENTS = {"semifl": ("ls", 100, 10), "proxyfl": ("lc", 20, 8), "official": ("lc", 100, 5)}
# What decides which value it is, so it can't differ.
_MATCHED = frozenset(
    {"alpha", "classes_per_client", "frac_clients", "labels_per_class", "labeled_fraction", "num_clients"}
)
_CLASSES = {"c10": 10, "c100": 100, "svhn": 10, "cinic10": 10}


def _cells() -> Iterator[tuple[tuple[str, str, str, float], Published]]:
    """((profile, dataset, how it is dealt, labels), value) of every cell that has one."""
    for profile, where, table in _TABLES:
        head, *rows = [line.split() for line in table.strip().splitlines()]
        for dataset, dealt, model, *values in rows:
            for labels, value in zip(head[3:], values):
                if value != "-":
                    yield (profile, dataset, dealt, float(labels)), Published(where, model, float(value))


_ALL = tuple(_cells())


def published(settings: Mapping[str, Any]) -> list[Published]:
    """What papers report for a run's data and clients, for its own model first; nothing unless it has their profile.

    The network and how it is trained may differ: `unlike_profile` has some of that.
    """
    profile = settings["profile"]
    scenario, kind, dataset = settings["task"].split("-")
    selected = round(settings["num_clients"] * settings["frac_clients"])
    other_data = settings["drop_rate"] or any(
        settings[name] is not None for name in ("labeled_clients", "unlabeled_per_client")
    )
    if _CLIENTS.get(profile) != (scenario, settings["num_clients"], selected) or other_data:
        return []
    dealt = {
        "biid": "iid",
        "bimb": kind,
        "bdir": f"{settings['alpha']:g}",
        "bshard": f"{settings['classes_per_client']}",
    }.get(kind)
    labels = settings["labeled_fraction"]
    if labels is None:
        labels = settings["labels_per_class"] * _CLASSES.get(dataset, 0)
    found = [value for key, value in _ALL if key == (profile, dataset, dealt, labels)]
    return sorted(found, key=lambda value: value.model != settings["model"])


def unlike_profile(config: Config) -> str:
    """How a run's settings differ from its profile's, data and clients aside, in a few words; empty if they don't.

    What of a paper the profile itself does not have is in docs/FIELD.md.
    """
    return ", ".join(setting_words(config, _MATCHED))
