"""Every setting of a run: one frozen, checked record."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any, Callable, NamedTuple

from fedmatch_tf.config.tables import (
    BY_DATASET,
    BY_PROFILE,
    BY_SCENARIO,
    COMMON,
    FIXMATCH_CONFIDENCE,
    LABELS_AT_SERVER,
    PAPER_SPLIT,
    STREAMING,
)

SCENARIOS = {"lc": "labels-at-client", "ls": "labels-at-server"}
KINDS = {"biid": "batch-IID", "bimb": "batch-NonIID", "simb": "streaming-NonIID"}
DATASETS = {
    "c10": "CIFAR-10",
    "fmnist": "Fashion-MNIST",
    "covid": "COVID-19 radiography",
    "digits": "8x8 digits, embedded",
    "own": "your own images, given by --source",
}
FRAMEWORKS = ("fedavg", "fedprox", "local")
# Baselines: the name behind the framework's -> the class with its steps. A new method is one more line here.
LEARNERS = {
    "sl": "fedmatch_tf.learners.supervised:Supervised",
    "uda": "fedmatch_tf.learners.uda:UDA",
    "fixmatch": "fedmatch_tf.learners.fixmatch:FixMatch",
}
MODELS = ("fedmatch", *(f"{framework}-{learner}" for framework in FRAMEWORKS for learner in LEARNERS))
SMALLEST_IMAGE = {"resnet9": 32, "alexnet": 19}  # what is left after a network's last pooling is one pixel
ARCHITECTURES = tuple(SMALLEST_IMAGE)
PROFILES = ("official", "paper")


class ConfigError(ValueError):
    """A setting that can't be used: what was expected, what was received, what to do."""


class Rule(NamedTuple):
    """What a value must satisfy, and how an error message says so."""

    text: str
    holds: Callable[[Any], bool]


POSITIVE = Rule("greater than 0", lambda value: value > 0)
NOT_NEGATIVE = Rule("0 or greater", lambda value: value >= 0)
FRACTION = Rule("greater than 0 and at most 1", lambda value: 0 < value <= 1)
PROBABILITY = Rule("between 0 and 1", lambda value: 0 <= value <= 1)
ABOVE_ONE = Rule("greater than 1", lambda value: value > 1)
IMAGE_SIZE = Rule("from 8 to 1024", lambda value: 8 <= value <= 1024)
SEED = Rule("between 0 and 4294967295", lambda value: 0 <= value < 2**32)
ADDRESS = Rule("auto or host:port", lambda text: text == "auto" or _is_address(text))
GPU_IDS = Rule("different ids of 0 or greater", lambda ids: min(ids) >= 0 and len(set(ids)) == len(ids))


def _is_address(text: str) -> bool:
    found = re.fullmatch(r"[^\s:/]+:(\d{1,5})", text)
    return found is not None and 0 < int(found[1]) < 2**16


class Setting(NamedTuple):
    """How a field of Config is typed, explained and checked; the command line is built from these."""

    kind: type
    group: str
    text: str
    choices: tuple[str, ...] = ()
    rule: Rule | None = None
    optional: bool = False


def _setting(
    kind: type,
    group: str,
    text: str,
    *,
    choices: tuple[str, ...] = (),
    rule: Rule | None = None,
    optional: bool = False,
) -> Any:
    return dataclasses.field(metadata={"setting": Setting(kind, group, text, choices, rule, optional)})


# Groups, in the order in which `--help` lists them.
WHAT, DATA, ROUNDS, LEARNING, FEDMATCH, BASELINES, MACHINE = (
    "what to run",
    "data and partitions",
    "rounds and batches",
    "learning rate and loss weights",
    "FedMatch",
    "baselines",
    "machine",
)


@dataclasses.dataclass(frozen=True)
class Config:
    """One run. Made by `make_config`, which fills what isn't given from the presets."""

    task: str = _setting(str, WHAT, "{lc,ls}-{biid,bimb,simb}-{c10,fmnist,covid,digits,own}")
    model: str = _setting(str, WHAT, "the method to train", choices=MODELS)
    arch: str = _setting(str, WHAT, "network", choices=ARCHITECTURES)
    profile: str = _setting(str, WHAT, "settings of the original's code or of the paper", choices=PROFILES)
    seed: int = _setting(int, WHAT, "every random choice follows from it", rule=SEED)

    source: str | None = _setting(
        str,
        DATA,
        "raw images: an .npz, CIFAR-10 batches (folder or tar.gz), a folder of IDX files, or one of images by class",
        optional=True,
    )
    dataset_path: str = _setting(str, DATA, "where partitions are written and read")
    num_clients: int = _setting(int, DATA, "clients in the federation", rule=POSITIVE)
    labels_per_class: int = _setting(
        int, DATA, "labelled examples per class: of each client (lc), of the server (ls)", rule=POSITIVE
    )
    num_test: int = _setting(int, DATA, "examples set aside for testing", rule=POSITIVE)
    num_valid: int = _setting(int, DATA, "examples set aside for validation", rule=POSITIVE)
    num_steps: int = _setting(int, DATA, "parts a streaming client's unlabelled data come in", rule=POSITIVE)
    image_size: int = _setting(int, DATA, "width and height that images are brought to", rule=IMAGE_SIZE)

    num_rounds: int = _setting(int, ROUNDS, "communication rounds", rule=POSITIVE)
    frac_clients: float = _setting(float, ROUNDS, "share of the clients that takes part in a round", rule=FRACTION)
    num_epochs_client: int = _setting(int, ROUNDS, "epochs of a client in a round", rule=POSITIVE)
    num_epochs_server: int = _setting(int, ROUNDS, "epochs of the server in a round (ls)", rule=NOT_NEGATIVE)
    batch_size_client: int = _setting(
        int, ROUNDS, "labelled examples in a client's batch (ls: unlabelled)", rule=POSITIVE
    )
    batch_size_unlabeled: int | None = _setting(
        int,
        ROUNDS,
        "unlabelled examples in a batch; unset: the original's rule, all in one epoch's steps",
        rule=POSITIVE,
        optional=True,
    )
    batch_size_server: int = _setting(int, ROUNDS, "examples in the server's batch (ls)", rule=NOT_NEGATIVE)
    batch_size_test: int = _setting(
        int, ROUNDS, "examples in an evaluation batch; small ones are joined", rule=POSITIVE
    )
    eval_clients: str = _setting(
        str,
        ROUNDS,
        "clients evaluate on validation and test data, on validation data only, or as the task needs",
        choices=("always", "valid", "auto"),
    )

    track_forgetting: bool = _setting(
        bool, ROUNDS, "record the accuracy on labelled data before and after every unsupervised phase"
    )

    lr: float = _setting(float, LEARNING, "initial learning rate", rule=POSITIVE)
    lr_patience: int = _setting(int, LEARNING, "rounds without a lower validation loss before lr falls", rule=POSITIVE)
    lr_factor: float = _setting(float, LEARNING, "what lr is then divided by", rule=ABOVE_ONE)
    lr_min: float = _setting(float, LEARNING, "lr never falls below this", rule=NOT_NEGATIVE)
    lr_signal: str = _setting(
        str, LEARNING, "whose validation lowers lr: each client's own, or the global model's for all",
        choices=("client", "server"),
    )  # fmt: skip
    wd: float = _setting(
        float, LEARNING, "weight decay; the original declares 1e-4 but never applies it", rule=NOT_NEGATIVE
    )
    lambda_s: float = _setting(float, LEARNING, "weight of the supervised loss", rule=NOT_NEGATIVE)
    augment: str = _setting(str, LEARNING, "strong view of an unlabelled image", choices=("randaugment", "none"))
    equalize: str = _setting(
        str, LEARNING, "RandAugment's equalize: the original's does nothing", choices=("identity", "real")
    )
    confidence: float = _setting(
        float, LEARNING, "rows whose highest probability is below this get no pseudo-label", rule=PROBABILITY
    )

    lambda_i: float = _setting(float, FEDMATCH, "weight of inter-client consistency", rule=NOT_NEGATIVE)
    lambda_a: float = _setting(float, FEDMATCH, "weight of the agreement-based pseudo-label loss", rule=NOT_NEGATIVE)
    lambda_l1: float = _setting(float, FEDMATCH, "weight of |psi|", rule=NOT_NEGATIVE)
    lambda_l2: float = _setting(float, FEDMATCH, "weight of (sigma - psi)^2", rule=NOT_NEGATIVE)
    psi_factor: float = _setting(float, FEDMATCH, "psi starts as this times sigma", rule=NOT_NEGATIVE)
    l1_thres: float = _setting(float, FEDMATCH, "elements of psi up to this count as 0", rule=NOT_NEGATIVE)
    delta_thres: float = _setting(float, FEDMATCH, "changes up to this are not sent", rule=NOT_NEGATIVE)
    num_helpers: int = _setting(int, FEDMATCH, "helpers a client receives", rule=NOT_NEGATIVE)
    helper_interval: int = _setting(int, FEDMATCH, "rounds between two sendings of helpers", rule=POSITIVE)
    icc_rows: str = _setting(
        str, FEDMATCH, "unlabelled rows that inter-client consistency looks at", choices=("confident", "all")
    )
    s2c_content: str = _setting(
        str, FEDMATCH, "what a client receives: all weights, or those that the cost counts", choices=("full", "counted")
    )
    no_icc: bool = _setting(bool, FEDMATCH, "ablation: no inter-client consistency, so no helpers")
    no_decomposition: bool = _setting(bool, FEDMATCH, "ablation: one set of parameters for both losses")
    ablate_eval: bool = _setting(bool, FEDMATCH, "also test the global model with sigma only and with psi only")
    init_weights: str | None = _setting(
        str, FEDMATCH, ".npz with sigma_0 .. sigma_8, or the original's init_sig.npy", optional=True
    )
    probe_image: str | None = _setting(
        str, FEDMATCH, ".npy [1,h,w,c] in [0,1] that models are embedded on", optional=True
    )

    lambda_u: float = _setting(float, BASELINES, "weight of the unsupervised loss", rule=NOT_NEGATIVE)
    mu: float = _setting(float, BASELINES, "weight of FedProx's proximal term", rule=NOT_NEGATIVE)

    gpu: tuple[int, ...] | None = _setting(
        tuple, MACHINE, "GPU ids, as 0,1,2: one worker process each; unset: CPU", rule=GPU_IDS, optional=True
    )
    workers: int | None = _setting(int, MACHINE, "CPU worker processes", rule=POSITIVE, optional=True)
    threads_per_worker: int | None = _setting(int, MACHINE, "threads of a CPU worker", rule=POSITIVE, optional=True)
    backend: str = _setting(str, MACHINE, "where clients train", choices=("process", "inline", "ray"))
    ray_address: str | None = _setting(
        str, MACHINE, "a running Ray cluster, auto or host:port; unset: one for this run", rule=ADDRESS, optional=True
    )
    ray_data: str = _setting(
        str, MACHINE, "shared: every node sees --dataset-path; ship: files are sent", choices=("shared", "ship")
    )
    precision: str = _setting(
        str, MACHINE, "mixed: float16 where a GPU with tensor cores is faster with it", choices=("float32", "mixed")
    )
    xla: bool = _setting(bool, MACHINE, "compile with XLA what can be: faster on some GPUs, slower on CPUs")
    profile_run: bool = _setting(bool, MACHINE, "write a TensorBoard trace of a client's task in the second round")
    task_timeout: float = _setting(
        float, MACHINE, "seconds a worker may take for one task before it is replaced", rule=POSITIVE
    )
    task_tries: int = _setting(int, MACHINE, "tries of a task whose worker dies, fails or hangs", rule=POSITIVE)
    checkpoint_every: int = _setting(int, MACHINE, "rounds between two checkpoints", rule=POSITIVE)
    store: str = _setting(
        str, MACHINE, "where it is kept what clients last held; auto: on disk if it is large",
        choices=("auto", "memory", "disk"),
    )  # fmt: skip
    output_path: str = _setting(str, MACHINE, "where results are written")

    def __post_init__(self) -> None:
        for name, setting in settings().items():
            check_value(flag(name), getattr(self, name), setting)
        _check_together(self)

    @property
    def scenario(self) -> str:
        """`lc` or `ls`."""
        return self.task.split("-")[0]

    @property
    def kind(self) -> str:
        """`biid`, `bimb` or `simb`."""
        return self.task.split("-")[1]

    @property
    def dataset(self) -> str:
        """`c10`, `fmnist`, `covid`, `digits` or `own`."""
        return self.task.split("-")[2]

    @property
    def partition_folder(self) -> Path:
        """Where the task's partitions are."""
        return Path(self.dataset_path) / self.task

    @property
    def framework(self) -> str:
        """`fedmatch`, `fedavg`, `fedprox` or `local`."""
        return self.model.split("-")[0]

    @property
    def learner(self) -> str:
        """`fedmatch`, or the baseline's: `sl`, `uda`, `fixmatch`."""
        return self.model.split("-", 1)[-1]

    @property
    def decomposed(self) -> bool:
        """Whether the network has sigma and psi, or one plain set of parameters."""
        return self.framework == "fedmatch" and not self.no_decomposition

    @property
    def uses_helpers(self) -> bool:
        """Whether clients receive other clients' parameters."""
        return self.framework == "fedmatch" and not self.no_icc and self.num_helpers > 0

    @property
    def clients_per_round(self) -> int:
        """How many clients take part in a round."""
        return round(self.num_clients * self.frac_clients)


def defaults(task: str, profile: str = "official", model: str = "fedmatch") -> dict[str, Any]:
    """The value of every setting but `frac_clients`, which follows from the number of clients."""
    scenario, kind, dataset = parse_task(task)
    values = {"task": task, **COMMON, **BY_SCENARIO[scenario], **BY_DATASET[dataset]}
    if scenario == "ls" and dataset in LABELS_AT_SERVER:
        values["labels_per_class"] = LABELS_AT_SERVER[dataset]
    if kind == "simb":
        values.update(STREAMING)
    values.update(BY_PROFILE[profile])
    if profile == "paper":
        values.update(PAPER_SPLIT.get(dataset, {}))
    if model.endswith("-fixmatch"):
        values["confidence"] = FIXMATCH_CONFIDENCE
    return values


def make_config(task: str, **given: Any) -> Config:
    """A Config for the task: what is given, and the tables' values for the rest."""
    unknown = sorted(set(given) - set(settings()))
    if unknown:
        raise ConfigError(f"expected names of settings, received {', '.join(unknown)}")
    for name in ("profile", "model"):  # they choose the table, so they are checked before it is used
        if name in given:
            check_value(flag(name), given[name], settings()[name])
    values = defaults(task, given.get("profile", "official"), given.get("model", "fedmatch"))
    values.update(given)
    values.setdefault("frac_clients", 1.0 if values["num_clients"] <= 10 else 0.05)
    return Config(**values)


def without_effect(config: Config) -> set[str]:
    """Settings that this run never looks at."""
    names = {"batch_size_server", "num_epochs_server"} if config.scenario == "lc" else set()
    if config.framework != "fedprox":
        names |= {"mu"}
    if config.framework == "fedmatch":
        names |= {"lambda_u"}
    else:
        names |= {"delta_thres", "lambda_i", "lambda_a", "probe_image", "s2c_content"}
    if not config.decomposed:
        names |= {"psi_factor", "lambda_l1", "lambda_l2", "l1_thres"}
    if not config.uses_helpers:
        names |= {"helper_interval", "lambda_i", "icc_rows"} | ({"num_helpers"} if config.num_helpers else set())
    if config.learner == "sl":
        names |= {"lambda_u", "augment", "equalize", "confidence"}
    if config.learner == "uda":
        names |= {"confidence"}
    return names


def settings() -> dict[str, Setting]:
    """Name of each field of Config -> its Setting."""
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(Config)}


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def parse_task(task: str) -> tuple[str, str, str]:
    """(scenario, kind, dataset) of a task's name."""
    parts = tuple(str(task).split("-"))
    if len(parts) != 3 or parts[0] not in SCENARIOS or parts[1] not in KINDS or parts[2] not in DATASETS:
        raise ConfigError(
            f"--task: expected {{{','.join(SCENARIOS)}}}-{{{','.join(KINDS)}}}-{{{','.join(DATASETS)}}}, "
            f"for example lc-biid-c10; received {task!r}"
        )
    return parts


def check_value(name: str, value: Any, setting: Setting) -> None:
    """Raises ConfigError unless the value has the setting's type, is one of its choices and keeps its rule."""
    if value is None and setting.optional:
        return
    accepted = (int, float) if setting.kind is float else setting.kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (setting.kind is bool):
        raise ConfigError(f"{name}: expected {_KIND_NAMES[setting.kind]}, received {value!r}")
    if setting.kind is tuple and not (value and all(isinstance(item, int) for item in value)):
        raise ConfigError(f"{name}: expected ids as 0,1,2, received {value!r}")
    if setting.kind is int and abs(value) >= 2**53:
        raise ConfigError(f"{name}: expected a whole number below 2^53, received one of {len(str(value))} digits")
    if setting.kind is float and not math.isfinite(value):
        raise ConfigError(f"{name}: expected a finite number, received {value!r}")
    if setting.choices and value not in setting.choices:
        raise ConfigError(f"{name}: expected one of {', '.join(setting.choices)}; received {value!r}")
    if setting.rule and not setting.rule.holds(value):
        raise ConfigError(f"{name}: expected {_KIND_NAMES[setting.kind]} {setting.rule.text}, received {value!r}")


_KIND_NAMES = {int: "a whole number", float: "a number", str: "a text", tuple: "ids", bool: "true or false"}


def _check_together(config: Config) -> None:
    """Rules between settings."""
    scenario, kind, dataset = parse_task(config.task)
    if dataset == "own" and config.source is None:
        raise ConfigError(f"--source: expected your .npz file or image folder with --task {config.task}, received none")
    smallest = SMALLEST_IMAGE[config.arch]
    if config.image_size < smallest:
        raise ConfigError(f"--image-size: expected at least {smallest} for {config.arch}, received {config.image_size}")
    if kind != "simb" and config.num_steps != 1:
        raise ConfigError(
            f"--num-steps: expected 1 unless the task is streaming (simb), received {config.num_steps} "
            f"with --task {config.task}"
        )
    if config.num_rounds < config.num_steps:
        raise ConfigError(
            f"--num-rounds: expected at least one round for each of {config.num_steps} streaming steps, "
            f"received {config.num_rounds}"
        )
    if config.clients_per_round < 1:
        raise ConfigError(
            f"--frac-clients: expected a fraction that selects a client, received {config.frac_clients}: "
            f"{config.num_clients} clients x {config.frac_clients} rounds to {config.clients_per_round}; "
            f"use at least {1 / config.num_clients:.3g}"
        )
    if scenario == "ls" and config.batch_size_server < 1:
        raise ConfigError(f"--batch-size-server: expected at least 1 with {config.task}, received 0")
    if scenario == "ls" and config.num_epochs_server == 0 and config.learner != "sl":
        raise ConfigError(
            f"--num-epochs-server: expected at least 1 with --task {config.task}, received 0: nobody would see a label"
        )
    if config.uses_helpers and config.num_clients == 1:
        raise ConfigError(
            "--num-clients: expected at least 2 with helpers, received 1: nobody could help. "
            "Use --no-icc (or --num-helpers 0), or more clients"
        )
    for name in ("no_icc", "no_decomposition", "ablate_eval"):
        if getattr(config, name) and config.framework != "fedmatch":
            raise ConfigError(f"{flag(name)}: is for --model fedmatch, received {config.model}")
    if config.ablate_eval and config.no_decomposition:
        raise ConfigError(
            "--ablate-eval: tests sigma and psi apart, which --no-decomposition leaves out; use one of them"
        )
    if config.ray_address and config.gpu is not None:
        raise ConfigError(
            f"--gpu: ids are of this machine, but with --ray-address every GPU of the cluster gets a worker; "
            f"expected one of the two, received --gpu {','.join(map(str, config.gpu))}"
        )
    if config.framework == "local" and config.lr_signal == "server":
        raise ConfigError(
            f"--lr-signal: {config.model} has no global model to validate; expected client, received server"
        )
    if config.framework == "local" and config.eval_clients == "valid":
        raise ConfigError(
            f"--eval-clients: {config.model} has no global model, so its clients must test; expected always or auto, "
            f"received valid"
        )
    if scenario == "ls" and config.model.startswith("local-"):
        raise ConfigError(
            f"--model: {config.model} shares nothing, so in labels-at-server clients would never learn from labels; "
            f"use a task that begins with lc, or another model"
        )
