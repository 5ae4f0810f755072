"""The settings of other papers and codes than the original's, whose settings are the defaults themselves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fedmatch_tf.config.models import algorithm_of
from fedmatch_tf.data.datasets import DATASETS

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Profile(NamedTuple):
    """What differs from the settings' own defaults; a dataset says what differs for its tasks (`overrides`)."""

    base: Mapping[str, Any] = NOTHING  # what a learner's own defaults override
    settings: Mapping[str, Any] = NOTHING  # what they don't; a value may be a function of all values


PAPER: Mapping[str, Any] = {
    "confidence": 0.85,
    "wd": 1e-4,
    "equalize": "real",
    "icc_rows": "all",
    "s2c_content": "counted",
    "init_draws": "independent",
    "lr_memory": "client",
    "lr_patience": 5,
    "batch_size_unlabeled": 100,
}


def _server_momentum(values: Mapping[str, Any]) -> float:
    """0.5, where the model's algorithm has one."""
    return 0.5 if "server_momentum" in algorithm_of(values["model"]).reads else 0.0


def _own_test(values: Mapping[str, Any]) -> str:
    """The dataset's own test set, if it has one."""
    return "source" if (DATASETS[values["task"].split("-")[2]].sizes or (0, 0))[1] else "pooled"


def _weight_of_labels(values: Mapping[str, Any]) -> float:
    """FedMatch's is 10, as its own paper has it."""
    return 10.0 if algorithm_of(values["model"]).decomposed else 1.0


def _server_batch(values: Mapping[str, Any]) -> int:
    """SemiFL's, by the number of the server's labels."""
    classes = DATASETS[values["task"].split("-")[2]].num_classes or 10
    return 250 if values["labels_per_class"] * classes > 250 else 10


def _labels_follow(values: Mapping[str, Any]) -> float | None:
    """Labelled examples are dealt by the distribution of unlabelled ones."""
    return values["alpha"] if values["task"].startswith("lc-bdir-") else None


FIELD: Mapping[str, Any] = {
    "momentum": 0.9,
    "weak": "flip-crop",
    "test_split": _own_test,
    "lambda_s": _weight_of_labels,
}
# Not to be had: static batch norm (group norm instead), RandAugment of two operations at full strength (six, as
# FedMatch), no flip on SVHN.
SEMIFL: Mapping[str, Any] = {
    **FIELD,
    "arch": "wrn28_2",
    "num_clients": 100,
    "frac_clients": 0.1,
    "num_rounds": 800,
    "num_epochs_client": 5,
    "num_epochs_server": 5,
    "batch_size_client": 10,
    "batch_size_server": _server_batch,
    "batch_size_unlabeled": None,
    "lr": 3e-2,
    "lr_schedule": "cosine",
    "nesterov": True,
    "server_momentum": _server_momentum,
    "clip_norm": 1.0,
    "wd": 2.5e-4,  # half of what PyTorch calls a decay of 5e-4
    "confidence": 0.95,
}
# (FL)^2 has as few labels per class of every dataset: 40 of CIFAR-10 and SVHN, 400 of CIFAR-100. Not to be had: what is
# not of SemiFL's, its own thresholds, WRN-28-8 for CIFAR-100. It does not say that it clips gradients.
FL2: Mapping[str, Any] = {
    **SEMIFL,
    "labels_per_class": 4,
    "batch_size_server": 10,
    "batch_size_client": 32,
    "clip_norm": None,
}
# Not to be had: batch norm (group norm instead), RandAugment as above, labelled images among the unlabelled ones, a
# momentum that clients hand on to each other.
SAGE: Mapping[str, Any] = {
    **FIELD,
    "arch": "resnet8",
    "num_clients": 20,
    "frac_clients": 0.4,
    "labeled_fraction": 0.1,
    "alpha": 0.1,
    "alpha_labeled": _labels_follow,
    "num_epochs_client": 10,  # each of SAGE's five goes through the unlabelled images twice
    "epoch_of": "unlabeled",
    "batch_size_client": 128,
    "batch_size_unlabeled": 256,
    "lr": 0.1,
    "lr_schedule": "constant",
    "wd": 5e-5,  # half of what PyTorch calls a decay of 1e-4
    "confidence": lambda values: 0.75 if algorithm_of(values["model"]).decomposed else 0.95,
}

# Those of the field stand on the paper's: what they say, and else what their public code has (docs/FIELD.md).
PROFILES: Mapping[str, Profile] = {
    "official": Profile(),
    "paper": Profile(PAPER),
    "semifl": Profile(PAPER, SEMIFL),
    "proxyfl": Profile(PAPER, SAGE),  # its code has SAGE's training; what differs is said by datasets
    "fl2": Profile(PAPER, FL2),
    "sage": Profile(PAPER, SAGE),
}
