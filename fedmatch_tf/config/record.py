"""Every setting of a run: one frozen, checked record. A field says all that is known of a setting."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fedmatch_tf.base.errors import ConfigError, short
from fedmatch_tf.base.plugins import algorithms, learners, networks
from fedmatch_tf.config import rules
from fedmatch_tf.config.models import MODELS, algorithm_of, learner_of, parts_of
from fedmatch_tf.config.profiles import PROFILES
from fedmatch_tf.config.rules import Condition, Rule, Setting, check_together, check_value, flag
from fedmatch_tf.data.dealing import KINDS


def setting(group: str, text: str, default: Any = None, *limits: Rule | Condition, **more: Any) -> Any:
    """A field of Config.

    Args:
        default: its value where nothing says otherwise; of a setting with choices all of them, that one first.
        limits: its rule, and when it applies.
        more: what else `Setting` can say of it.
    """
    choices = default if isinstance(default, tuple) else ()
    rule = next((limit for limit in limits if isinstance(limit, Rule)), None)
    applies = tuple(limit for limit in limits if isinstance(limit, Condition))
    default = choices[0] if choices else default
    return dataclasses.field(metadata={"setting": Setting(group, text, default, rule, choices, applies, **more)})


def _more_rounds(config: Config, num_rounds: int) -> str:
    """Why a run can't go on to so many rounds; empty if it can."""
    if config.num_steps > 1:
        return "rounds are spread over the streaming steps"
    if learner_of(config.model).depends_on_end:
        return f"the loss of {config.learner} may depend on the share of rounds that is done"
    if config.lr_schedule in ("cosine", "linear"):
        return f"the {config.lr_schedule} schedule of its learning rate has ended"
    return "" if num_rounds >= config.num_rounds else "it may only grow"


def _other_gpus(config: Config, gpu: tuple[int, ...] | None) -> str:
    """Why a run can't go on with these GPUs; empty if it can."""
    return "" if config.gpu is not None else "it trains on CPUs"


# Settings by their groups, in the order in which `--help` lists them.
DATA = "data and partitions"
run = partial(setting, "what to run")
data = partial(setting, DATA)
rounds = partial(setting, "rounds and batches")
learning = partial(setting, "learning rate and loss weights")
fedmatch = partial(setting, "FedMatch")
baselines = partial(setting, "baselines")
machine = partial(setting, "machine")
worked_on = partial(machine, may_change=True, of_machine=True)  # where and how a run is worked on


@dataclasses.dataclass(frozen=True)
class Config:
    """One run. Made by `make_config`, which fills what isn't given with the defaults."""

    task: str = run(rules.TASKS)
    model: str = run("the model to train: an algorithm and a learner", MODELS)
    arch: str = run(
        f"network: {', '.join(networks())}, package.module:function, or a Keras model's file, as model.keras",
        "resnet9",
        rules.NETWORK,
        original="archi",
    )
    profile: str = run(
        "settings of the original's code, of the paper, or of SemiFL, ProxyFL, (FL)^2 or SAGE, with their networks, "
        "clients and training",
        tuple(PROFILES),
    )
    seed: int = run("every random choice follows from it", 1, rules.SEED)
    init_draws: str = run(
        "starting weights. original: kernels begin one stream, as in the original; independent: each is drawn anew",
        ("original", "independent"),
        rules.DRAWN,
        rules.NEW_NETWORK,
    )
    init_weights: str | None = run(
        "starting weights: .npz with sigma_0, sigma_1, ..., or the original's init_sig.npy; unset: drawn from the seed",
        input_path=True,
    )
    psi_factor: float = run(
        "psi starts as this times sigma; a model without psi starts as (1 + this) times sigma", 0.2, rules.NOT_NEGATIVE
    )

    source: str | None = data(
        "raw images: an .npz, CIFAR, SVHN or IDX files, or one sub-folder of images per class (docs/DATA.md); "
        "unset: looked up, then downloaded",
        may_change=True,
        input_path=True,
    )
    skip_broken: bool = data(
        "leave out image files that can't be read, and count them", False, rules.IMAGE_FILES, may_change=True
    )
    dataset_path: str = data(
        "where partitions are written and read", "datasets", input_path=True, may_change=True, of_machine=True
    )
    num_clients: int = data("clients in the federation", 10, rules.POSITIVE)
    labels_per_class: int = data(
        "labelled examples per class: of each client (lc), of the server (ls)",
        5,
        rules.POSITIVE,
        rules.NUMBER_OF_LABELS,
        by={"ls": 100},
        original="num_labels_per_class",
    )
    unlabeled_per_client: int | None = data(
        "unlabelled examples of each client, at most; unset: as many as there are", None, rules.POSITIVE
    )
    labeled_fraction: float | None = data(
        "share of each class that is labelled, of all training examples; unset: --labels-per-class", None, rules.SHARE
    )
    labeled_clients: int | None = data(
        "number of clients that have labels (lc); unset: all",
        None,
        rules.POSITIVE,
        rules.LABELED_CLIENTS,
        rules.ALL_SEE_LABELS,
        refuse=True,
    )
    alpha: float = data(
        "bdir: each class is dealt by Dirichlet(alpha); small values make clients differ more", 0.3, rules.POSITIVE
    )
    alpha_labeled: float | None = data(
        "the same for labelled examples (lc); unset: as many of each class for every client",
        None,
        rules.POSITIVE,
        rules.LABELED_CLIENTS,
        refuse=True,
    )
    classes_per_client: int = data("bshard: classes of a client's unlabelled examples", 2, rules.POSITIVE)
    num_test: int = data("examples set aside for testing", 200, rules.POSITIVE, rules.POOLED)
    test_split: str = data(
        "pooled: --num-test examples drawn from all, train and test, as the paper does; source: the dataset's own test "
        "set, all of it",
        ("pooled", "source"),
    )
    num_valid: int = data("examples set aside for validation", 200, rules.POSITIVE)
    num_steps: int = data(
        "parts in which a streaming client's unlabelled data arrive", 1, rules.POSITIVE, rules.STREAMING, refuse=True
    )
    image_size: int = data("width and height that images are brought to", 32, rules.IMAGE_SIZE)

    num_rounds: int = rounds("communication rounds", 100, rules.POSITIVE, may_change=_more_rounds)
    frac_clients: float = rounds(
        "share of the clients that takes part in a round",
        lambda values: 1.0 if values["num_clients"] <= 10 else 0.05,
        rules.FRACTION,
        alias="frac_client",  # as in the original's examples
    )
    drop_rate: float = rounds(
        "probability that a client's update does not arrive, drawn per round and client",
        0.0,
        rules.BELOW_ONE,
        rules.GLOBAL_MODEL,
        refuse=True,
    )
    num_epochs_client: int = rounds("epochs of a client per round", 1, rules.POSITIVE, rules.CLIENTS_STEP)
    num_epochs_server: int = rounds(
        "epochs of the server per round (ls)", 0, rules.NOT_NEGATIVE, rules.LABELED_SERVER, by={"ls": 1}
    )
    batch_size_client: int = rounds(
        "labelled examples in a client's batch (ls: unlabelled)", 10, rules.POSITIVE, rules.CLIENTS_STEP, by={"ls": 100}
    )
    batch_size_unlabeled: int | None = rounds(
        "unlabelled examples in a batch; unset: the original's rule, all of them spread over an epoch's steps",
        None,
        rules.POSITIVE,
        rules.UNLABELED,
    )
    epoch_of: str = rounds(
        "what an epoch of a client goes through (lc): labelled batches, over which unlabelled images are spread; or "
        "unlabelled batches, for which labelled ones are repeated",
        ("labeled", "unlabeled"),
        rules.LABELED_CLIENTS,
        rules.UNLABELED,
    )
    batch_size_server: int = rounds(
        "examples in the server's batch (ls)", 0, rules.NOT_NEGATIVE, rules.LABELED_SERVER, by={"ls": 100}
    )
    batch_size_test: int = rounds("examples in an evaluation batch; small batches are joined", 100, rules.POSITIVE)
    eval_clients: str = rounds(
        "always: clients validate and test; valid: they validate only; auto: they test where the task needs it",
        ("auto", "always", "valid"),
        rules.GLOBAL_MODEL,
        refuse=("valid",),
    )
    labeled_acc: bool = rounds(
        "record the accuracy on labelled data before and after every unsupervised step", False, rules.UNLABELED
    )
    keep_best: bool = rounds(
        "also keep the model of the global model's lowest validation loss, measured once per round",
        False,
        rules.GLOBAL_MODEL,
        refuse=True,
    )

    lr: float = learning("initial learning rate", 1e-3, rules.POSITIVE)
    lr_schedule: str = learning(
        "when lr falls. plateau: if validation losses do not; cosine, linear: every round, towards 0 at the end",
        ("plateau", "cosine", "constant", "linear"),
    )
    lr_patience: int = learning(
        "visits of a client without a lower validation loss before lr falls",
        5,
        rules.POSITIVE,
        rules.PLATEAU,
        by={"ls": 20},
    )
    lr_factor: float = learning("what lr is then divided by", 3.0, rules.ABOVE_ONE, rules.PLATEAU)
    lr_min: float = learning("lr never falls below this", 1e-20, rules.NOT_NEGATIVE, rules.FALLING)
    lr_signal: str = learning(
        "whose validation lowers lr. client: each client's own; server: the global model's, for all",
        ("client", "server"),
        rules.GLOBAL_MODEL,
        rules.PLATEAU,
        refuse=True,
    )
    lr_memory: str = learning(
        "who keeps a client's lr between its rounds: the client, or, as in the original, the device it trains on",
        ("device", "client"),
        rules.OWN_RATES,
    )
    lr_devices: int | None = learning(
        "simulated devices with --lr-memory device; unset: one per client of a round",
        None,
        rules.POSITIVE,
        rules.OWN_RATES,
        rules.ON_DEVICES,
    )
    momentum: float = learning(
        "momentum of the clients' and the server's steps; starts at 0 in every round", 0.0, rules.BELOW_ONE
    )
    nesterov: bool = learning("Nesterov's momentum", False, rules.MOMENTUM, refuse=True)
    server_momentum: float = learning(
        "momentum of the global model's step from round to round to the mean of its clients",
        0.0,
        rules.BELOW_ONE,
        refuse=True,
    )
    clip_norm: float | None = learning("largest norm of a step's whole gradient; unset: no limit", None, rules.POSITIVE)
    wd: float = learning(
        "weight decay: this times the sum of squared weights is part of the loss, so it is half of what SGD's "
        "weight_decay is elsewhere; the original declares 1e-4 but never applies it",
        0.0,
        rules.NOT_NEGATIVE,
    )
    lambda_s: float = learning("weight of the supervised loss", 10.0, rules.NOT_NEGATIVE)
    weak: str = learning(
        "weak view of training images, on which pseudo-labels are predicted and strong views are made. flip-crop: "
        "flipped or not, and cropped where 4 reflected pixels were added",
        ("none", "flip-crop"),
    )
    augment: str = learning("strong view of an unlabelled image", ("randaugment", "none"))
    equalize: str = learning(
        "RandAugment's equalize. identity: does nothing, as in the original; real: equalizes",
        ("identity", "real"),
    )
    confidence: float = learning(
        "rows whose highest probability is below this get no pseudo-label", 0.75, rules.PROBABILITY
    )

    lambda_i: float = fedmatch(
        "weight of inter-client consistency: lambda_ICCS of the paper, on its KL term",
        1e-2,
        rules.NOT_NEGATIVE,
        rules.HELPERS,
    )
    lambda_a: float = fedmatch(
        "weight of the agreement-based pseudo-label loss: lambda_ICCS of the paper, on its cross-entropy",
        1e-2,
        rules.NOT_NEGATIVE,
    )
    lambda_l1: float = fedmatch("weight of |psi|", 1e-4, rules.NOT_NEGATIVE, rules.DECOMPOSED, by={"ls": 1e-5})
    lambda_l2: float = fedmatch("weight of (sigma - psi)^2", 10.0, rules.NOT_NEGATIVE, rules.DECOMPOSED)
    l1_thres: float = fedmatch(
        "elements of psi up to this count as 0", 5e-6, rules.NOT_NEGATIVE, rules.DECOMPOSED, by={"ls": 1e-5}
    )
    delta_thres: float = fedmatch("changes up to this are not sent", 5e-5, rules.NOT_NEGATIVE, by={"ls": 1e-5})
    num_helpers: int = fedmatch("helpers that a client receives", 2, rules.NOT_NEGATIVE, rules.CONSISTENCY)
    helper_interval: int = fedmatch(
        "helpers are sent every so many rounds", 10, rules.POSITIVE, rules.HELPERS, original="h_interval"
    )
    icc_rows: str = fedmatch(
        "unlabelled rows that inter-client consistency looks at: confident ones, or all",
        ("confident", "all"),
        rules.HELPERS,
    )
    s2c_content: str = fedmatch(
        "what a client receives. full: all weights; counted: those that the cost counts", ("full", "counted")
    )
    no_icc: bool = fedmatch("ablation: no inter-client consistency, so no helpers", False, refuse=True)
    no_decomposition: bool = fedmatch("ablation: one set of parameters for both losses", False, refuse=True)
    ablate_eval: bool = fedmatch(
        "also test the global model with sigma only and with psi only", False, rules.DECOMPOSED, refuse=True
    )
    probe_image: str | None = fedmatch(
        ".npy [1,h,w,c] in [0,1]: the image that models are embedded on; unset: drawn from the seed", input_path=True
    )

    lambda_u: float = baselines("weight of the unsupervised loss", 1.0, rules.NOT_NEGATIVE)
    mu: float = baselines("weight of FedProx's proximal term", 1e-2, rules.NOT_NEGATIVE)

    gpu: tuple[int, ...] | None = machine(
        "GPU ids, as 0,1,2: one worker process per id, so 0,0 gives GPU 0 two; unset: CPU",
        None,
        rules.GPU_IDS,
        may_change=_other_gpus,
        of_machine=True,
    )
    clients_per_gpu: int = worked_on(
        "worker processes per id of --gpu, or per GPU of a Ray cluster", 1, rules.POSITIVE, rules.ON_GPU
    )
    gpu_memory: int | None = worked_on(
        "MB of a GPU's memory that a worker may take at most; unset: as much as it needs",
        None,
        rules.POSITIVE,
        rules.ON_GPU,
    )
    workers: int | None = worked_on("CPU worker processes; unset: what fits this machine's cores", None, rules.WORKERS)
    threads_per_worker: int | None = machine(
        "threads of a CPU worker, on which results may depend; unset: what fits this machine's cores",
        None,
        rules.THREADS,
        of_machine=True,
    )
    backend: str = worked_on(
        "where clients train: in worker processes, in this process, or on a Ray cluster", ("process", "inline", "ray")
    )
    ray_address: str | None = worked_on(
        "a running Ray cluster, auto or host:port; unset: a cluster of this machine for this run",
        None,
        rules.ADDRESS,
        rules.ON_RAY,
        refuse=True,
    )
    ray_data: str = worked_on(
        "shared: every node sees --dataset-path; ship: files are sent", ("shared", "ship"), rules.ON_RAY, refuse=True
    )
    precision: str = machine(
        "what convolutions and dense layers compute in; all else is float32. bfloat16: faster on processors and GPUs "
        "that have it; float16: on GPUs with tensor cores",
        ("float32", "bfloat16", "float16"),
    )
    xla: bool = machine("compile parts with XLA: faster on some GPUs, slower on CPUs", False)
    profile_run: bool = worked_on("write a TensorBoard trace of a client's task in the second round", False)
    task_timeout: float = worked_on(
        "seconds that a worker may take for one task before it is replaced", 3600.0, rules.POSITIVE
    )
    task_tries: int = worked_on("tries of a task whose worker dies, fails or hangs", 3, rules.POSITIVE)
    checkpoint_every: int = worked_on("a checkpoint is written every so many rounds", 1, rules.POSITIVE)
    store: str = worked_on(
        "where the clients' last parameters are kept; auto: on disk if they are large", ("auto", "memory", "disk")
    )
    wandb: str | None = worked_on(
        "mirror settings and scalars to this project at Weights & Biases, if its package is installed; unset: nothing"
    )
    output_path: str = machine("where results are written", "outputs", of_machine=True)

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
    def lr_source(self) -> str:
        """What decides on learning rates: each client's validation, the server's, or the round."""
        return self.lr_signal if self.lr_schedule == "plateau" else "round"

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
