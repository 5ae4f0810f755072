"""The settings of other papers and codes than the original's, whose settings are the defaults themselves."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

NOTHING: Mapping[str, Any] = MappingProxyType({})


class Profile(NamedTuple):
    """What differs from the settings' own defaults; a dataset says what differs for its tasks (`overrides`)."""

    base: Mapping[str, Any] = NOTHING  # what a learner's own defaults override
    settings: Mapping[str, Any] = NOTHING  # what they don't


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

# Those of the field stand on the paper's: only what they say and this code has (docs/FIELD.md).
PROFILES: Mapping[str, Profile] = {
    "official": Profile(),
    "paper": Profile(PAPER),
    "semifl": Profile(
        PAPER,
        {
            "arch": "wrn28_2",
            "num_clients": 100,
            "frac_clients": 0.1,
            "num_rounds": 800,
            "num_epochs_client": 5,
            "num_epochs_server": 5,
            "batch_size_client": 10,
            "batch_size_server": 250,
            "batch_size_unlabeled": None,
            "lr": 3e-2,
            "wd": 2.5e-4,  # times the sum of squares, whose gradient is what others call a decay of 5e-4
            "confidence": 0.95,
        },
    ),
    "proxyfl": Profile(
        PAPER,
        {
            "arch": "resnet8",
            "num_clients": 20,
            "frac_clients": 0.4,
            "labeled_fraction": 0.1,
            "alpha": 0.1,
            "batch_size_unlabeled": None,  # clients hold 100 to 8,000 of them: all are spread over the steps
        },
    ),
}
