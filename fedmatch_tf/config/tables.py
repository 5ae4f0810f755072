"""The settings' defaults, as tables: a later one overrides an earlier one, and what the user gives overrides all."""

from __future__ import annotations

from typing import Any

COMMON: dict[str, Any] = {
    "model": "fedmatch", "arch": "resnet9", "profile": "official", "seed": 1,
    "source": None, "dataset_path": "datasets", "num_steps": 1, "image_size": 32,
    "num_epochs_client": 1, "batch_size_unlabeled": None, "batch_size_test": 100, "eval_clients": "auto",
    "lr": 1e-3, "lr_factor": 3.0, "lr_min": 1e-20, "lr_signal": "client",
    "augment": "randaugment",
    "lambda_s": 10.0, "lambda_i": 1e-2, "lambda_a": 1e-2, "lambda_l2": 10.0,
    "psi_factor": 0.2, "num_helpers": 2, "helper_interval": 10, "init_weights": None, "probe_image": None,
    "lambda_u": 1.0, "mu": 1e-2,
    "no_icc": False, "no_decomposition": False, "ablate_eval": False, "track_forgetting": False,
    "gpu": None, "workers": None, "threads_per_worker": None, "backend": "process",
    "ray_address": None, "ray_data": "shared", "output_path": "outputs",
    "precision": "float32", "xla": False, "profile_run": False,
    "task_timeout": 3600.0, "task_tries": 3, "checkpoint_every": 1, "store": "auto",
}  # fmt: skip

BY_SCENARIO: dict[str, dict[str, Any]] = {
    "lc": {
        "labels_per_class": 5, "batch_size_client": 10, "batch_size_server": 0, "num_epochs_server": 0,
        "lr_patience": 5, "lambda_l1": 1e-4, "l1_thres": 5e-6, "delta_thres": 5e-5,
    },
    "ls": {
        "labels_per_class": 100, "batch_size_client": 100, "batch_size_server": 100, "num_epochs_server": 1,
        "lr_patience": 20, "lambda_l1": 1e-5, "l1_thres": 1e-5, "delta_thres": 1e-5,
    },
}  # fmt: skip

BY_DATASET: dict[str, dict[str, Any]] = {
    "c10":    {"num_clients": 100, "num_rounds": 200, "num_test": 2000, "num_valid": 2000},
    "fmnist": {"num_clients": 10, "num_rounds": 100, "num_test": 2000, "num_valid": 2000},
    "covid":  {"num_clients": 10, "num_rounds": 100, "num_test": 300, "num_valid": 300},
    "digits": {"num_clients": 10, "num_rounds": 100, "num_test": 200, "num_valid": 200},
    "own":    {"num_clients": 10, "num_rounds": 100, "num_test": 200, "num_valid": 200},
}  # fmt: skip

# Small sets: the server holds what ten clients of 5 labels per class would hold together.
LABELS_AT_SERVER: dict[str, int] = {"covid": 50, "digits": 50, "own": 50}

# T = 10 steps of 10 rounds, whatever the dataset.
STREAMING: dict[str, Any] = {"num_clients": 10, "num_rounds": 100, "num_steps": 10}

BY_PROFILE: dict[str, dict[str, Any]] = {
    "official": {"confidence": 0.75, "wd": 0.0, "equalize": "identity", "icc_rows": "confident", "s2c_content": "full"},
    "paper": {"confidence": 0.85, "wd": 1e-4, "equalize": "real", "icc_rows": "all", "s2c_content": "counted",
              "lr_patience": 5},
}  # fmt: skip

PAPER_SPLIT: dict[str, dict[str, int]] = {
    "c10": {"num_test": 3000, "num_valid": 3000},  # 54,000 remain for training
    "fmnist": {"num_test": 3500, "num_valid": 3500},  # 63,000 remain
}

FIXMATCH_CONFIDENCE = 0.85
