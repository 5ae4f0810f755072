"""Every setting of a run: one frozen, checked record."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fedmatch_tf.base.errors import ConfigError
from fedmatch_tf.base.plugins import networks
from fedmatch_tf.config.models import MODELS, algorithm_of, learner_of, parts_of
from fedmatch_tf.config.rules import (
    ABOVE_ONE,
    ADDRESS,
    BELOW_ONE,
    FRACTION,
    GPU_IDS,
    IMAGE_SIZE,
    NETWORK,
    NOT_NEGATIVE,
    POSITIVE,
    PROBABILITY,
    SEED,
    SHARE,
    THREADS,
    WORKERS,
    Setting,
    check_together,
    check_value,
    flag,
    parse_task,
)
from fedmatch_tf.config.tables import FIELD, PROFILES, SCENARIOS, defaults
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS


def _setting(kind: type, group: str, text: str, **more: Any) -> Any:
    return dataclasses.field(metadata={"setting": Setting(kind, group, text, **more)})


def _one_of(names: Iterable[str]) -> str:
    return "{" + ",".join(names) + "}"


WORKED_ON: dict[str, Any] = {"may_change": True, "of_machine": True}  # where and how a run is worked on

# Groups, in the order in which `--help` lists them.
WHAT = "what to run"
DATA = "data and partitions"
ROUNDS = "rounds and batches"
LEARNING = "learning rate and loss weights"
FEDMATCH = "FedMatch"
BASELINES = "baselines"
MACHINE = "machine"


@dataclasses.dataclass(frozen=True)
class Config:
    """One run. Made by `make_config`, which fills what isn't given from the tables."""

    task: str = _setting(str, WHAT, f"{_one_of(SCENARIOS)}-{_one_of(KINDS)}-{_one_of(DATASETS)}")
    model: str = _setting(str, WHAT, "the model to train: an algorithm and a learner", choices=MODELS)
    arch: str = _setting(
        str, WHAT, f"network: {', '.join(networks())}, or package.module:function", rule=NETWORK, original="archi"
    )
    profile: str = _setting(
        str,
        WHAT,
        "settings of the original's code, of the paper, or of SemiFL or ProxyFL, with their networks and clients",
        choices=PROFILES,
    )
    seed: int = _setting(int, WHAT, "every random choice follows from it", rule=SEED)
    init_draws: str = _setting(
        str,
        WHAT,
        "starting weights. original: every kernel begins one stream, as in the original; independent: each goes on",
        choices=("original", "independent"),
        before="independent",
    )
    init_weights: str | None = _setting(
        str,
        WHAT,
        "starting weights: .npz with sigma_0, sigma_1, ..., or the original's init_sig.npy; unset: drawn from the seed",
        optional=True,
        input_path=True,
    )
    psi_factor: float = _setting(
        float,
        WHAT,
        "psi starts as this times sigma; a model without psi starts as (1 + this) times sigma",
        rule=NOT_NEGATIVE,
    )

    source: str | None = _setting(
        str,
        DATA,
        "raw images: an .npz, CIFAR, SVHN or IDX files, or one sub-folder of images per class (docs/DATA.md); "
        "unset: looked up, then downloaded",
        optional=True,
        may_change=True,
        input_path=True,
    )
    dataset_path: str = _setting(str, DATA, "where partitions are written and read", input_path=True, **WORKED_ON)
    num_clients: int = _setting(int, DATA, "clients in the federation", rule=POSITIVE)
    labels_per_class: int = _setting(
        int,
        DATA,
        "labelled examples per class: of each client (lc), of the server (ls)",
        rule=POSITIVE,
        original="num_labels_per_class",
    )
    unlabeled_per_client: int | None = _setting(
        int,
        DATA,
        "unlabelled examples of each client, at most; unset: as many as there are",
        rule=POSITIVE,
        optional=True,
    )
    labeled_fraction: float | None = _setting(
        float,
        DATA,
        "share of each class that is labelled, of all training examples; unset: --labels-per-class",
        rule=SHARE,
        optional=True,
    )
    labeled_clients: int | None = _setting(
        int, DATA, "number of clients that have labels (lc); unset: all", rule=POSITIVE, optional=True
    )
    alpha: float = _setting(
        float, DATA, "bdir: each class is dealt by Dirichlet(alpha); the smaller, the more they differ", rule=POSITIVE
    )
    alpha_labeled: float | None = _setting(
        float,
        DATA,
        "the same for labelled examples (lc); unset: as many of each class for every client",
        rule=POSITIVE,
        optional=True,
    )
    classes_per_client: int = _setting(int, DATA, "bshard: classes of a client's unlabelled examples", rule=POSITIVE)
    num_test: int = _setting(int, DATA, "examples set aside for testing", rule=POSITIVE)
    test_split: str = _setting(
        str,
        DATA,
        "pooled: --num-test examples drawn from all, train and test, as the paper does; source: the dataset's own test "
        "set, all of it",
        choices=("pooled", "source"),
    )
    num_valid: int = _setting(int, DATA, "examples set aside for validation", rule=POSITIVE)
    num_steps: int = _setting(int, DATA, "parts in which a streaming client's unlabelled data arrive", rule=POSITIVE)
    image_size: int = _setting(int, DATA, "width and height that images are brought to", rule=IMAGE_SIZE)

    num_rounds: int = _setting(int, ROUNDS, "communication rounds", rule=POSITIVE)
    frac_clients: float = _setting(
        float, ROUNDS, "share of the clients that takes part in a round", rule=FRACTION, aliases=("frac_client",)
    )
    drop_rate: float = _setting(
        float, ROUNDS, "probability that a client's update does not arrive, drawn per round and client", rule=BELOW_ONE
    )
    num_epochs_client: int = _setting(int, ROUNDS, "epochs of a client per round", rule=POSITIVE)
    num_epochs_server: int = _setting(int, ROUNDS, "epochs of the server per round (ls)", rule=NOT_NEGATIVE)
    batch_size_client: int = _setting(
        int, ROUNDS, "labelled examples in a client's batch (ls: unlabelled)", rule=POSITIVE
    )
    batch_size_unlabeled: int | None = _setting(
        int,
        ROUNDS,
        "unlabelled examples in a batch; unset: the original's rule, all of them spread over an epoch's steps",
        rule=POSITIVE,
        optional=True,
    )
    batch_size_server: int = _setting(int, ROUNDS, "examples in the server's batch (ls)", rule=NOT_NEGATIVE)
    batch_size_test: int = _setting(
        int, ROUNDS, "examples in an evaluation batch; small batches are joined", rule=POSITIVE
    )
    eval_clients: str = _setting(
        str,
        ROUNDS,
        "always: clients validate and test; valid: they validate only; auto: they test where the task needs it",
        choices=("always", "valid", "auto"),
    )
    labeled_acc: bool = _setting(
        bool,
        ROUNDS,
        "record the accuracy on labelled data before and after every unsupervised step",
        aliases=("track_forgetting",),
    )

    keep_best: bool = _setting(
        bool, ROUNDS, "also keep the model of the global model's lowest validation loss, measured once per round"
    )

    lr: float = _setting(float, LEARNING, "initial learning rate", rule=POSITIVE)
    lr_patience: int = _setting(
        int, LEARNING, "visits of a client without a lower validation loss before lr falls", rule=POSITIVE
    )
    lr_factor: float = _setting(float, LEARNING, "what lr is then divided by", rule=ABOVE_ONE)
    lr_min: float = _setting(float, LEARNING, "lr never falls below this", rule=NOT_NEGATIVE)
    lr_signal: str = _setting(
        str,
        LEARNING,
        "whose validation lowers lr. client: each client's own; server: the global model's, for all",
        choices=("client", "server"),
    )
    lr_memory: str = _setting(
        str,
        LEARNING,
        "who keeps a client's lr between its rounds: the client, or, as in the original, the device it trains on",
        choices=("client", "device"),
        before="client",
    )
    lr_devices: int | None = _setting(
        int,
        LEARNING,
        "simulated devices with --lr-memory device; unset: one per client of a round",
        rule=POSITIVE,
        optional=True,
    )
    wd: float = _setting(
        float, LEARNING, "weight decay; the original declares 1e-4 but never applies it", rule=NOT_NEGATIVE
    )
    lambda_s: float = _setting(float, LEARNING, "weight of the supervised loss", rule=NOT_NEGATIVE)
    augment: str = _setting(str, LEARNING, "strong view of an unlabelled image", choices=("randaugment", "none"))
    equalize: str = _setting(
        str,
        LEARNING,
        "RandAugment's equalize. identity: does nothing, as in the original; real: as its name says",
        choices=("identity", "real"),
    )
    confidence: float = _setting(
        float, LEARNING, "rows whose highest probability is below this get no pseudo-label", rule=PROBABILITY
    )

    lambda_i: float = _setting(
        float,
        FEDMATCH,
        "weight of inter-client consistency: lambda_ICCS of the paper, on its KL term",
        rule=NOT_NEGATIVE,
    )
    lambda_a: float = _setting(
        float,
        FEDMATCH,
        "weight of the agreement-based pseudo-label loss: lambda_ICCS of the paper, on its cross-entropy",
        rule=NOT_NEGATIVE,
    )
    lambda_l1: float = _setting(float, FEDMATCH, "weight of |psi|", rule=NOT_NEGATIVE)
    lambda_l2: float = _setting(float, FEDMATCH, "weight of (sigma - psi)^2", rule=NOT_NEGATIVE)
    l1_thres: float = _setting(float, FEDMATCH, "elements of psi up to this count as 0", rule=NOT_NEGATIVE)
    delta_thres: float = _setting(float, FEDMATCH, "changes up to this are not sent", rule=NOT_NEGATIVE)
    num_helpers: int = _setting(int, FEDMATCH, "helpers that a client receives", rule=NOT_NEGATIVE)
    helper_interval: int = _setting(
        int, FEDMATCH, "helpers are sent every so many rounds", rule=POSITIVE, original="h_interval"
    )
    icc_rows: str = _setting(
        str,
        FEDMATCH,
        "unlabelled rows that inter-client consistency looks at: confident ones, or all",
        choices=("confident", "all"),
    )
    s2c_content: str = _setting(
        str,
        FEDMATCH,
        "what a client receives. full: all weights; counted: those that the cost counts",
        choices=("full", "counted"),
    )
    no_icc: bool = _setting(bool, FEDMATCH, "ablation: no inter-client consistency, so no helpers")
    no_decomposition: bool = _setting(bool, FEDMATCH, "ablation: one set of parameters for both losses")
    ablate_eval: bool = _setting(bool, FEDMATCH, "also test the global model with sigma only and with psi only")
    probe_image: str | None = _setting(
        str,
        FEDMATCH,
        ".npy [1,h,w,c] in [0,1]: the image that models are embedded on; unset: drawn from the seed",
        optional=True,
        input_path=True,
    )

    lambda_u: float = _setting(float, BASELINES, "weight of the unsupervised loss", rule=NOT_NEGATIVE)
    mu: float = _setting(float, BASELINES, "weight of FedProx's proximal term", rule=NOT_NEGATIVE)

    gpu: tuple[int, ...] | None = _setting(
        tuple,
        MACHINE,
        "GPU ids, as 0,1,2: one worker process per id, so 0,0 gives GPU 0 two; unset: CPU",
        rule=GPU_IDS,
        optional=True,
        of_machine=True,
    )
    clients_per_gpu: int = _setting(
        int, MACHINE, "worker processes per id of --gpu, or per GPU of a Ray cluster", rule=POSITIVE, **WORKED_ON
    )
    gpu_memory: int | None = _setting(
        int,
        MACHINE,
        "MB of a GPU's memory that a worker may take at most; unset: as much as it needs",
        rule=POSITIVE,
        optional=True,
        **WORKED_ON,
    )
    workers: int | None = _setting(
        int,
        MACHINE,
        "CPU worker processes; unset: what fits this machine's cores",
        rule=WORKERS,
        optional=True,
        **WORKED_ON,
    )
    threads_per_worker: int | None = _setting(
        int,
        MACHINE,
        "threads of a CPU worker, on which results may depend; unset: what fits this machine's cores",
        rule=THREADS,
        optional=True,
        of_machine=True,
    )
    backend: str = _setting(
        str,
        MACHINE,
        "where clients train: in worker processes, in this process, or on a Ray cluster",
        choices=("process", "inline", "ray"),
        **WORKED_ON,
    )
    ray_address: str | None = _setting(
        str,
        MACHINE,
        "a running Ray cluster, auto or host:port; unset: a cluster of this machine for this run",
        rule=ADDRESS,
        optional=True,
        **WORKED_ON,
    )
    ray_data: str = _setting(
        str,
        MACHINE,
        "shared: every node sees --dataset-path; ship: files are sent",
        choices=("shared", "ship"),
        **WORKED_ON,
    )
    precision: str = _setting(
        str,
        MACHINE,
        "what convolutions and dense layers compute in; all else is float32. bfloat16: faster on processors and GPUs "
        "that have it; float16: on GPUs with tensor cores",
        choices=("float32", "bfloat16", "float16"),
    )
    xla: bool = _setting(bool, MACHINE, "compile with XLA what can be: faster on some GPUs, slower on CPUs")
    profile_run: bool = _setting(
        bool, MACHINE, "write a TensorBoard trace of a client's task in the second round", **WORKED_ON
    )
    task_timeout: float = _setting(
        float, MACHINE, "seconds that a worker may take for one task before it is replaced", rule=POSITIVE, **WORKED_ON
    )
    task_tries: int = _setting(
        int, MACHINE, "tries of a task whose worker dies, fails or hangs", rule=POSITIVE, **WORKED_ON
    )
    checkpoint_every: int = _setting(
        int, MACHINE, "a checkpoint is written every so many rounds", rule=POSITIVE, **WORKED_ON
    )
    store: str = _setting(
        str,
        MACHINE,
        "where the clients' last parameters are kept; auto: on disk if they are large",
        choices=("auto", "memory", "disk"),
        **WORKED_ON,
    )
    wandb: str | None = _setting(
        str,
        MACHINE,
        "mirror settings and scalars to this project at Weights & Biases, if its package is installed; unset: nothing",
        optional=True,
        **WORKED_ON,
    )
    output_path: str = _setting(str, MACHINE, "where results are written", of_machine=True)

    def __post_init__(self) -> None:
        for name, setting in settings().items():
            check_value(flag(name), getattr(self, name), setting)
        check_together(self)

    @property
    def scenario(self) -> str:
        """`lc` or `ls`."""
        return self.task.split("-")[0]

    @property
    def kind(self) -> str:
        """`biid`, `bimb`, ...: a key of KINDS."""
        return self.task.split("-")[1]

    @property
    def dataset(self) -> str:
        """`c10`, `fmnist`, `digits`, `own`, ...: a key of DATASETS."""
        return self.task.split("-")[2]

    @property
    def partition_folder(self) -> Path:
        """Where the task's partitions are."""
        return Path(self.dataset_path) / self.task

    @property
    def algorithm(self) -> str:
        """The algorithm's name: a file in `algorithms/`."""
        return parts_of(self.model)[0]

    @property
    def learner(self) -> str:
        """The learner's name: a file in `learners/`."""
        return parts_of(self.model)[1]

    @property
    def has_global_model(self) -> bool:
        """Whether clients share anything."""
        return algorithm_of(self.model).has_global_model

    @property
    def decomposed(self) -> bool:
        """Whether the network has sigma and psi, or one plain set of parameters."""
        return algorithm_of(self.model).decomposed and not self.no_decomposition

    @property
    def uses_helpers(self) -> bool:
        """Whether clients receive other clients' parameters."""
        return algorithm_of(self.model).has_helpers and not self.no_icc and self.num_helpers > 0

    @property
    def patience(self) -> int:
        """Validations without a lower loss before lr falls: a client's own, one per visit; or the server's.

        The server validates every round, a client only in those it takes part in: so its patience lasts as many more
        rounds as a client is away.
        """
        return self.lr_patience if self.lr_signal == "client" else round(self.lr_patience / self.frac_clients)

    @property
    def gpu_of_workers(self) -> tuple[int, ...]:
        """For each worker on a GPU of this machine, the GPU's id."""
        return tuple(gpu for gpu in self.gpu or () for _ in range(self.clients_per_gpu))

    @property
    def num_devices(self) -> int:
        """Simulated devices that keep learning rates, with lr_memory `device`."""
        return self.lr_devices or self.clients_per_round

    @property
    def clients_per_round(self) -> int:
        """How many clients take part in a round."""
        return round(self.num_clients * self.frac_clients)


def by_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names that they have now; ConfigError if there is no such setting."""
    names = {alias: name for name, setting in settings().items() for alias in setting.aliases}
    given = {names.get(name, name): value for name, value in given.items()}
    unknown = sorted(set(given) - set(settings()))
    if unknown:
        close = difflib.get_close_matches(unknown[0], settings(), n=1)
        meant = f"; did you mean {close[0]}?" if close else ""
        raise ConfigError(f"expected names of settings, received {', '.join(unknown)}{meant}")
    return {name: _plain_value(value) for name, value in given.items()}


def _plain_value(value: Any) -> Any:
    """Paths as texts, lists (of GPUs) as tuples."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return tuple(value) if isinstance(value, list) else value


def make_config(task: str, **given: Any) -> Config:
    """A Config for the task: what is given, and the tables' values for the rest."""
    given = by_name(given)
    for name in ("profile", "model"):  # they choose the table, so they are checked before it is used
        if name in given:
            check_value(flag(name), given[name], settings()[name])
    profile = given.get("profile", "official")
    values = defaults(*parse_task(task), profile)
    own = learner_of(given.get("model", values["model"])).defaults
    values.update({**own, **FIELD.get(profile, {}), "task": task, **given})
    if "labels_per_class" in given and "labeled_fraction" not in given:
        values["labeled_fraction"] = None  # a profile's share of labels gives way to a number of labels
    values.setdefault("frac_clients", 1.0 if values["num_clients"] <= 10 else 0.05)
    return Config(**values)


def settings() -> dict[str, Setting]:
    """Name of each field of Config -> its Setting."""
    return {field.name: field.metadata["setting"] for field in dataclasses.fields(Config)}


def changed_settings(config: Config) -> dict[str, Any]:
    """The settings that differ from the defaults of the config's own task, model and profile."""
    own = make_config(config.task, model=config.model, profile=config.profile, source=config.source)
    return {name: getattr(config, name) for name in settings() if getattr(config, name) != getattr(own, name)}
