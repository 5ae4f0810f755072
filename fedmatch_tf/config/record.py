"""Every setting of a run: one frozen, checked record. A field says all that is known of a setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedmatch_tf.base.errors import ConfigError, short
from fedmatch_tf.base.plugins import algorithms, learners, networks
from fedmatch_tf.config import rules
from fedmatch_tf.config.models import MODELS, algorithm_of, learner_of, parts_of
from fedmatch_tf.config.profiles import PROFILES
from fedmatch_tf.config.rules import SCENARIOS, Setting, check_together, check_value, flag
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS


def setting(group: str, text: str, default: Any = None, **more: Any) -> Any:
    """A field of Config; `Setting` has what else can be said of it."""
    return dataclasses.field(metadata={"setting": Setting(group, text, default, **more)})


def _one_of(names: Iterable[str]) -> str:
    return "{" + ",".join(names) + "}"


def _more_rounds(config: Config, num_rounds: int) -> str:
    """Why a run can't go on to so many rounds; empty if it can."""
    if config.num_steps > 1:
        return "rounds are spread over the streaming steps"
    if learner_of(config.model).depends_on_end:
        return f"the loss of {config.learner} may depend on the share of rounds that is done"
    return "" if num_rounds >= config.num_rounds else "it may only grow"


def _other_gpus(config: Config, gpu: tuple[int, ...] | None) -> str:
    """Why a run can't go on with these GPUs; empty if it can."""
    return "" if config.gpu is not None else "it trains on CPUs"


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
    """One run. Made by `make_config`, which fills what isn't given with the defaults."""

    task: str = setting(WHAT, f"{_one_of(SCENARIOS)}-{_one_of(KINDS)}-{_one_of(DATASETS)}")
    model: str = setting(WHAT, "the model to train: an algorithm and a learner", "fedmatch", choices=MODELS)
    arch: str = setting(
        WHAT,
        f"network: {', '.join(networks())}, or package.module:function",
        "resnet9",
        rule=rules.NETWORK,
        original="archi",
    )
    profile: str = setting(
        WHAT,
        "settings of the original's code, of the paper, or of SemiFL or ProxyFL, with their networks and clients",
        "official",
        choices=tuple(PROFILES),
    )
    seed: int = setting(WHAT, "every random choice follows from it", 1, rule=rules.SEED)
    init_draws: str = setting(
        WHAT,
        "starting weights. original: every kernel begins one stream, as in the original; independent: each goes on",
        "original",
        choices=("original", "independent"),
        applies=(rules.DRAWN,),
    )
    init_weights: str | None = setting(
        WHAT,
        "starting weights: .npz with sigma_0, sigma_1, ..., or the original's init_sig.npy; unset: drawn from the seed",
        input_path=True,
    )
    psi_factor: float = setting(
        WHAT,
        "psi starts as this times sigma; a model without psi starts as (1 + this) times sigma",
        0.2,
        rule=rules.NOT_NEGATIVE,
    )

    source: str | None = setting(
        DATA,
        "raw images: an .npz, CIFAR, SVHN or IDX files, or one sub-folder of images per class (docs/DATA.md); "
        "unset: looked up, then downloaded",
        may_change=True,
        input_path=True,
    )
    dataset_path: str = setting(DATA, "where partitions are written and read", "datasets", input_path=True, **WORKED_ON)
    num_clients: int = setting(DATA, "clients in the federation", 10, rule=rules.POSITIVE)
    labels_per_class: int = setting(
        DATA,
        "labelled examples per class: of each client (lc), of the server (ls)",
        5,
        by={"ls": 100},
        rule=rules.POSITIVE,
        applies=(rules.NUMBER_OF_LABELS,),
        original="num_labels_per_class",
    )
    unlabeled_per_client: int | None = setting(
        DATA, "unlabelled examples of each client, at most; unset: as many as there are", rule=rules.POSITIVE
    )
    labeled_fraction: float | None = setting(
        DATA,
        "share of each class that is labelled, of all training examples; unset: --labels-per-class",
        rule=rules.SHARE,
    )
    labeled_clients: int | None = setting(
        DATA,
        "number of clients that have labels (lc); unset: all",
        rule=rules.POSITIVE,
        applies=(rules.LABELED_CLIENTS, rules.ALL_SEE_LABELS),
        refuse=True,
    )
    alpha: float = setting(
        DATA,
        "bdir: each class is dealt by Dirichlet(alpha); the smaller, the more they differ",
        0.3,
        rule=rules.POSITIVE,
    )
    alpha_labeled: float | None = setting(
        DATA,
        "the same for labelled examples (lc); unset: as many of each class for every client",
        rule=rules.POSITIVE,
        applies=(rules.LABELED_CLIENTS,),
        refuse=True,
    )
    classes_per_client: int = setting(DATA, "bshard: classes of a client's unlabelled examples", 2, rule=rules.POSITIVE)
    num_test: int = setting(DATA, "examples set aside for testing", 200, rule=rules.POSITIVE, applies=(rules.POOLED,))
    test_split: str = setting(
        DATA,
        "pooled: --num-test examples drawn from all, train and test, as the paper does; source: the dataset's own test "
        "set, all of it",
        "pooled",
        choices=("pooled", "source"),
    )
    num_valid: int = setting(DATA, "examples set aside for validation", 200, rule=rules.POSITIVE)
    num_steps: int = setting(
        DATA,
        "parts in which a streaming client's unlabelled data arrive",
        1,
        rule=rules.POSITIVE,
        applies=(rules.STREAMING,),
        refuse=True,
    )
    image_size: int = setting(DATA, "width and height that images are brought to", 32, rule=rules.IMAGE_SIZE)

    num_rounds: int = setting(ROUNDS, "communication rounds", 100, rule=rules.POSITIVE, may_change=_more_rounds)
    frac_clients: float = setting(
        ROUNDS,
        "share of the clients that takes part in a round",
        lambda values: 1.0 if values["num_clients"] <= 10 else 0.05,
        rule=rules.FRACTION,
        alias="frac_client",  # as in the original's examples
    )
    drop_rate: float = setting(
        ROUNDS,
        "probability that a client's update does not arrive, drawn per round and client",
        0.0,
        rule=rules.BELOW_ONE,
        applies=(rules.GLOBAL_MODEL,),
        refuse=True,
    )
    num_epochs_client: int = setting(ROUNDS, "epochs of a client per round", 1, rule=rules.POSITIVE)
    num_epochs_server: int = setting(
        ROUNDS,
        "epochs of the server per round (ls)",
        0,
        by={"ls": 1},
        rule=rules.NOT_NEGATIVE,
        applies=(rules.LABELED_SERVER,),
    )
    batch_size_client: int = setting(
        ROUNDS, "labelled examples in a client's batch (ls: unlabelled)", 10, by={"ls": 100}, rule=rules.POSITIVE
    )
    batch_size_unlabeled: int | None = setting(
        ROUNDS,
        "unlabelled examples in a batch; unset: the original's rule, all of them spread over an epoch's steps",
        rule=rules.POSITIVE,
    )
    batch_size_server: int = setting(
        ROUNDS,
        "examples in the server's batch (ls)",
        0,
        by={"ls": 100},
        rule=rules.NOT_NEGATIVE,
        applies=(rules.LABELED_SERVER,),
    )
    batch_size_test: int = setting(
        ROUNDS, "examples in an evaluation batch; small batches are joined", 100, rule=rules.POSITIVE
    )
    eval_clients: str = setting(
        ROUNDS,
        "always: clients validate and test; valid: they validate only; auto: they test where the task needs it",
        "auto",
        choices=("always", "valid", "auto"),
        applies=(rules.GLOBAL_MODEL,),
        refuse=("valid",),
    )
    labeled_acc: bool = setting(
        ROUNDS, "record the accuracy on labelled data before and after every unsupervised step", False
    )
    keep_best: bool = setting(
        ROUNDS,
        "also keep the model of the global model's lowest validation loss, measured once per round",
        False,
        applies=(rules.GLOBAL_MODEL,),
        refuse=True,
    )

    lr: float = setting(LEARNING, "initial learning rate", 1e-3, rule=rules.POSITIVE)
    lr_patience: int = setting(
        LEARNING,
        "visits of a client without a lower validation loss before lr falls",
        5,
        by={"ls": 20},
        rule=rules.POSITIVE,
    )
    lr_factor: float = setting(LEARNING, "what lr is then divided by", 3.0, rule=rules.ABOVE_ONE)
    lr_min: float = setting(LEARNING, "lr never falls below this", 1e-20, rule=rules.NOT_NEGATIVE)
    lr_signal: str = setting(
        LEARNING,
        "whose validation lowers lr. client: each client's own; server: the global model's, for all",
        "client",
        choices=("client", "server"),
        applies=(rules.GLOBAL_MODEL,),
        refuse=True,
    )
    lr_memory: str = setting(
        LEARNING,
        "who keeps a client's lr between its rounds: the client, or, as in the original, the device it trains on",
        "device",
        choices=("client", "device"),
        applies=(rules.OWN_RATES,),
    )
    lr_devices: int | None = setting(
        LEARNING,
        "simulated devices with --lr-memory device; unset: one per client of a round",
        rule=rules.POSITIVE,
        applies=(rules.OWN_RATES, rules.ON_DEVICES),
    )
    wd: float = setting(
        LEARNING, "weight decay; the original declares 1e-4 but never applies it", 0.0, rule=rules.NOT_NEGATIVE
    )
    lambda_s: float = setting(LEARNING, "weight of the supervised loss", 10.0, rule=rules.NOT_NEGATIVE)
    augment: str = setting(
        LEARNING, "strong view of an unlabelled image", "randaugment", choices=("randaugment", "none")
    )
    equalize: str = setting(
        LEARNING,
        "RandAugment's equalize. identity: does nothing, as in the original; real: as its name says",
        "identity",
        choices=("identity", "real"),
    )
    confidence: float = setting(
        LEARNING, "rows whose highest probability is below this get no pseudo-label", 0.75, rule=rules.PROBABILITY
    )

    lambda_i: float = setting(
        FEDMATCH,
        "weight of inter-client consistency: lambda_ICCS of the paper, on its KL term",
        1e-2,
        rule=rules.NOT_NEGATIVE,
        applies=(rules.HELPERS,),
    )
    lambda_a: float = setting(
        FEDMATCH,
        "weight of the agreement-based pseudo-label loss: lambda_ICCS of the paper, on its cross-entropy",
        1e-2,
        rule=rules.NOT_NEGATIVE,
    )
    lambda_l1: float = setting(
        FEDMATCH, "weight of |psi|", 1e-4, by={"ls": 1e-5}, rule=rules.NOT_NEGATIVE, applies=(rules.DECOMPOSED,)
    )
    lambda_l2: float = setting(
        FEDMATCH, "weight of (sigma - psi)^2", 10.0, rule=rules.NOT_NEGATIVE, applies=(rules.DECOMPOSED,)
    )
    l1_thres: float = setting(
        FEDMATCH,
        "elements of psi up to this count as 0",
        5e-6,
        by={"ls": 1e-5},
        rule=rules.NOT_NEGATIVE,
        applies=(rules.DECOMPOSED,),
    )
    delta_thres: float = setting(
        FEDMATCH, "changes up to this are not sent", 5e-5, by={"ls": 1e-5}, rule=rules.NOT_NEGATIVE
    )
    num_helpers: int = setting(
        FEDMATCH, "helpers that a client receives", 2, rule=rules.NOT_NEGATIVE, applies=(rules.CONSISTENCY,)
    )
    helper_interval: int = setting(
        FEDMATCH,
        "helpers are sent every so many rounds",
        10,
        rule=rules.POSITIVE,
        applies=(rules.HELPERS,),
        original="h_interval",
    )
    icc_rows: str = setting(
        FEDMATCH,
        "unlabelled rows that inter-client consistency looks at: confident ones, or all",
        "confident",
        choices=("confident", "all"),
        applies=(rules.HELPERS,),
    )
    s2c_content: str = setting(
        FEDMATCH,
        "what a client receives. full: all weights; counted: those that the cost counts",
        "full",
        choices=("full", "counted"),
    )
    no_icc: bool = setting(FEDMATCH, "ablation: no inter-client consistency, so no helpers", False, refuse=True)
    no_decomposition: bool = setting(FEDMATCH, "ablation: one set of parameters for both losses", False, refuse=True)
    ablate_eval: bool = setting(
        FEDMATCH,
        "also test the global model with sigma only and with psi only",
        False,
        applies=(rules.DECOMPOSED,),
        refuse=True,
    )
    probe_image: str | None = setting(
        FEDMATCH,
        ".npy [1,h,w,c] in [0,1]: the image that models are embedded on; unset: drawn from the seed",
        input_path=True,
    )

    lambda_u: float = setting(BASELINES, "weight of the unsupervised loss", 1.0, rule=rules.NOT_NEGATIVE)
    mu: float = setting(BASELINES, "weight of FedProx's proximal term", 1e-2, rule=rules.NOT_NEGATIVE)

    gpu: tuple[int, ...] | None = setting(
        MACHINE,
        "GPU ids, as 0,1,2: one worker process per id, so 0,0 gives GPU 0 two; unset: CPU",
        rule=rules.GPU_IDS,
        may_change=_other_gpus,
        of_machine=True,
    )
    clients_per_gpu: int = setting(
        MACHINE,
        "worker processes per id of --gpu, or per GPU of a Ray cluster",
        1,
        rule=rules.POSITIVE,
        applies=(rules.ON_GPU,),
        **WORKED_ON,
    )
    gpu_memory: int | None = setting(
        MACHINE,
        "MB of a GPU's memory that a worker may take at most; unset: as much as it needs",
        rule=rules.POSITIVE,
        applies=(rules.ON_GPU,),
        **WORKED_ON,
    )
    workers: int | None = setting(
        MACHINE, "CPU worker processes; unset: what fits this machine's cores", rule=rules.WORKERS, **WORKED_ON
    )
    threads_per_worker: int | None = setting(
        MACHINE,
        "threads of a CPU worker, on which results may depend; unset: what fits this machine's cores",
        rule=rules.THREADS,
        of_machine=True,
    )
    backend: str = setting(
        MACHINE,
        "where clients train: in worker processes, in this process, or on a Ray cluster",
        "process",
        choices=("process", "inline", "ray"),
        **WORKED_ON,
    )
    ray_address: str | None = setting(
        MACHINE,
        "a running Ray cluster, auto or host:port; unset: a cluster of this machine for this run",
        rule=rules.ADDRESS,
        applies=(rules.ON_RAY,),
        refuse=True,
        **WORKED_ON,
    )
    ray_data: str = setting(
        MACHINE,
        "shared: every node sees --dataset-path; ship: files are sent",
        "shared",
        choices=("shared", "ship"),
        applies=(rules.ON_RAY,),
        refuse=True,
        **WORKED_ON,
    )
    precision: str = setting(
        MACHINE,
        "what convolutions and dense layers compute in; all else is float32. bfloat16: faster on processors and GPUs "
        "that have it; float16: on GPUs with tensor cores",
        "float32",
        choices=("float32", "bfloat16", "float16"),
    )
    xla: bool = setting(MACHINE, "compile with XLA what can be: faster on some GPUs, slower on CPUs", False)
    profile_run: bool = setting(
        MACHINE, "write a TensorBoard trace of a client's task in the second round", False, **WORKED_ON
    )
    task_timeout: float = setting(
        MACHINE,
        "seconds that a worker may take for one task before it is replaced",
        3600.0,
        rule=rules.POSITIVE,
        **WORKED_ON,
    )
    task_tries: int = setting(
        MACHINE, "tries of a task whose worker dies, fails or hangs", 3, rule=rules.POSITIVE, **WORKED_ON
    )
    checkpoint_every: int = setting(
        MACHINE, "a checkpoint is written every so many rounds", 1, rule=rules.POSITIVE, **WORKED_ON
    )
    store: str = setting(
        MACHINE,
        "where the clients' last parameters are kept; auto: on disk if they are large",
        "auto",
        choices=("auto", "memory", "disk"),
        **WORKED_ON,
    )
    wandb: str | None = setting(
        MACHINE,
        "mirror settings and scalars to this project at Weights & Biases, if its package is installed; unset: nothing",
        **WORKED_ON,
    )
    output_path: str = setting(MACHINE, "where results are written", "outputs", of_machine=True)

    def __post_init__(self) -> None:
        for name, setting in settings().items():
            check_value(flag(name), getattr(self, name), setting)
        rules.parse_task(self.task)
        for name, reason in without_effect(self).items():
            value, setting = getattr(self, name), settings()[name]
            if setting.refuses(value) and not setting.of_machine:
                raise ConfigError(
                    f"{flag(name)}: has no meaning here: {reason}; leave it out. Received {short(value)} with "
                    f"--task {self.task} --model {self.model}"
                )
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
    def uses_true_labels(self) -> bool:
        """Whether clients see the true labels of images that other learners see without."""
        return learner_of(self.model).uses_true_labels

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


@cache
def settings() -> Mapping[str, Setting]:
    """Name of each field of Config -> its Setting."""
    kinds = {"int": int, "float": float, "str": str, "bool": bool, "tuple[int, ...]": tuple}
    found = {}
    for field in dataclasses.fields(Config):
        kind, *rest = str(field.type).split(" | ")
        found[field.name] = field.metadata["setting"]._replace(kind=kinds[kind], optional=rest == ["None"])
    return MappingProxyType(found)


def without_effect(config: Config) -> dict[str, str]:
    """Settings that this run never looks at, each with the reason."""
    reasons = dict(_read_by_others(config.kind, *parts_of(config.model)))
    for name, setting in settings().items():
        for condition in setting.applies:
            if name not in reasons and not condition.holds(config):
                reasons[name] = condition.otherwise
    return reasons


@cache
def _read_by_others(kind: str, algorithm: str, learner: str) -> Mapping[str, str]:
    """Settings that these entries do not read and others do, each with a word on those."""
    groups = {name: setting.group for name, setting in settings().items()}
    reasons: dict[str, str] = {}
    for chosen, entries in ((kind, KINDS), (algorithm, algorithms()), (learner, learners())):
        for name, group in groups.items():
            readers = [
                each for each, entry in entries.items() if name in entry.reads or group == getattr(entry, "group", None)
            ]
            if readers and chosen not in readers:
                reasons.setdefault(name, f"only {', '.join(readers)} {'reads' if len(readers) == 1 else 'read'} it")
    return MappingProxyType(reasons)
