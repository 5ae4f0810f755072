"""The settings' defaults, as tables: a later one overrides an earlier one, and what the user gives overrides all."""

from __future__ import annotations

from typing import Any

from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS

SCENARIOS = {"lc": "labels-at-client", "ls": "labels-at-server"}
PROFILES = ("official", "paper", "semifl", "proxyfl")

COMMON: dict[str, Any] = {
    "model": "fedmatch",
    "arch": "resnet9",
    "profile": "official",
    "seed": 1,
    # data and partitions
    "source": None,
    "dataset_path": "datasets",
    "unlabeled_per_client": None,
    "alpha": 0.3,
    "alpha_labeled": None,
    "classes_per_client": 2,
    "labeled_fraction": None,
    "labeled_clients": None,
    "test_split": "pooled",
    "num_steps": 1,
    "image_size": 32,
    # rounds and batches
    "num_epochs_client": 1,
    "batch_size_unlabeled": None,
    "batch_size_test": 100,
    "drop_rate": 0.0,
    "eval_clients": "auto",
    "labeled_acc": False,
    "keep_best": False,
    # learning rate and loss weights
    "lr": 1e-3,
    "lr_factor": 3.0,
    "lr_min": 1e-20,
    "lr_signal": "client",
    "lr_devices": None,
    "lambda_s": 10.0,
    "augment": "randaugment",
    # FedMatch
    "lambda_i": 1e-2,
    "lambda_a": 1e-2,
    "lambda_l2": 10.0,
    "psi_factor": 0.2,
    "num_helpers": 2,
    "helper_interval": 10,
    "no_icc": False,
    "no_decomposition": False,
    "ablate_eval": False,
    "init_weights": None,
    "probe_image": None,
    # baselines
    "lambda_u": 1.0,
    "mu": 1e-2,
    # machine
    "gpu": None,
    "clients_per_gpu": 1,
    "gpu_memory": None,
    "workers": None,
    "threads_per_worker": None,
    "backend": "process",
    "ray_address": None,
    "ray_data": "shared",
    "precision": "float32",
    "xla": False,
    "profile_run": False,
    "task_timeout": 3600.0,
    "task_tries": 3,
    "checkpoint_every": 1,
    "store": "auto",
    "wandb": None,
    "output_path": "outputs",
}

BY_SCENARIO: dict[str, dict[str, Any]] = {
    "lc": {
        "labels_per_class": 5,
        "batch_size_client": 10,
        "batch_size_server": 0,
        "num_epochs_server": 0,
        "lr_patience": 5,
        "lambda_l1": 1e-4,
        "l1_thres": 5e-6,
        "delta_thres": 5e-5,
    },
    "ls": {
        "labels_per_class": 100,
        "batch_size_client": 100,
        "batch_size_server": 100,
        "num_epochs_server": 1,
        "lr_patience": 20,
        "lambda_l1": 1e-5,
        "l1_thres": 1e-5,
        "delta_thres": 1e-5,
    },
}

BY_PROFILE: dict[str, dict[str, Any]] = {
    "official": {
        "confidence": 0.75,
        "wd": 0.0,
        "equalize": "identity",
        "icc_rows": "confident",
        "s2c_content": "full",
        "init_draws": "original",
        "lr_memory": "device",
    },
    "paper": {
        "confidence": 0.85,
        "wd": 1e-4,
        "equalize": "real",
        "icc_rows": "all",
        "s2c_content": "counted",
        "init_draws": "independent",
        "lr_memory": "client",
        "lr_patience": 5,
        "batch_size_unlabeled": 100,
    },
}
# Settings of other papers of the field, on top of the paper's: only what they say and this code has (docs/FIELD.md).
FIELD: dict[str, dict[str, Any]] = {
    "semifl": {
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
    "proxyfl": {
        "arch": "resnet8",
        "num_clients": 20,
        "frac_clients": 0.4,
        "labeled_fraction": 0.1,
        "alpha": 0.1,
        "batch_size_unlabeled": None,  # clients hold 100 to 8,000 of them: all are spread over the steps
    },
}


def defaults(scenario: str, kind: str, dataset: str, profile: str) -> dict[str, Any]:
    """The value of every setting but the task, the model, and `frac_clients`, which follows from the clients."""
    data = DATASETS[dataset]
    return {
        **COMMON,
        **BY_SCENARIO[scenario],
        **data.defaults,
        **data.overrides.get(scenario, {}),
        **KINDS[kind].defaults,
        **BY_PROFILE["official" if profile == "official" else "paper"],
        **data.overrides.get(profile, {}),
        **FIELD.get(profile, {}),
        **data.overrides.get(f"{profile}-{scenario}", {}),
        "profile": profile,
    }


def depends_on(name: str) -> list[str]:
    """What a setting's default depends on: the task, the profile, both, or nothing (it is then in COMMON)."""
    of_tasks = [kind.defaults for kind in KINDS.values()] + [data.defaults for data in DATASETS.values()]
    by_task = any(name in table for table in (*BY_SCENARIO.values(), *of_tasks))
    overrides = [item for data in DATASETS.values() for item in data.overrides.items()]
    of_profiles = [*BY_PROFILE.values(), *FIELD.values(), *(table for key, table in overrides if key not in SCENARIOS)]
    by_profile = any(name in table for table in of_profiles)
    found = ["task"] if by_task or (name not in COMMON and not by_profile) else []
    return found + (["profile"] if by_profile else [])
