"""What a setting is, what its value must satisfy, and when it has a meaning."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from fedmatch_tf.base.errors import ConfigError, short
from fedmatch_tf.base.plugins import is_keras_file, is_own_network, networks, smallest_image
from fedmatch_tf.config.models import algorithm_of, learner_of
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS

if TYPE_CHECKING:
    from fedmatch_tf.config.record import Config

SCENARIOS = {"lc": "labels-at-client", "ls": "labels-at-server"}


def one_of(names: Iterable[str]) -> str:
    """How messages and `--help` list choices."""
    return "{" + ",".join(names) + "}"


TASKS = f"{one_of(SCENARIOS)}-{one_of(KINDS)}-{one_of(DATASETS)}"


class Rule(NamedTuple):
    """What a value must satisfy, and how an error message says so."""

    text: str
    holds: Callable[[Any], bool]


class Condition(NamedTuple):
    """When a setting has a meaning."""

    holds: Callable[[Config], bool]
    otherwise: str  # what is so where it does not hold


class Setting(NamedTuple):
    """All that is known of a field of Config: flag, help, check, config.json and resume follow from it."""

    group: str
    text: str
    default: Any = None  # or a function of the other settings' values
    rule: Rule | None = None
    choices: tuple[str, ...] = ()
    applies: tuple[Condition, ...] = ()  # all must hold, and the entries of task and model must read it
    by: Mapping[str, Any] = MappingProxyType({})  # other defaults: of a scenario
    # Where it does not apply: every value but the default is refused, or these values; else a flag gets a note.
    refuse: bool | tuple[Any, ...] = False
    # When a run goes on: no result depends on it; or a function of the run's Config and the new value: why not.
    may_change: bool | Callable[[Config, Any], str] = False
    of_machine: bool = False  # says where and how a run is worked on, not which run it is
    input_path: bool = False  # a file or folder that the run reads
    alias: str | None = None  # another name of its flag
    original: str | None = None  # its name among the options in the original's logs, where that differs
    kind: type = str  # this and the next follow from the field's annotation
    optional: bool = False  # None is a value

    def refuses(self, value: Any) -> bool:
        """Whether the value is an error where the setting does not apply."""
        return value in self.refuse if isinstance(self.refuse, tuple) else self.refuse and value != self.default


POSITIVE = Rule("greater than 0", lambda value: value > 0)
NOT_NEGATIVE = Rule("0 or greater", lambda value: value >= 0)
FRACTION = Rule("greater than 0 and at most 1", lambda value: 0 < value <= 1)
SHARE = Rule("greater than 0 and below 1", lambda value: 0 < value < 1)
BELOW_ONE = Rule("0 or greater and below 1", lambda value: 0 <= value < 1)
PROBABILITY = Rule("between 0 and 1", lambda value: 0 <= value <= 1)
ABOVE_ONE = Rule("greater than 1", lambda value: value > 1)
IMAGE_SIZE = Rule("from 8 to 1024", lambda value: 8 <= value <= 1024)
WORKERS = Rule("from 1 to 4096", lambda value: 1 <= value <= 4096)
THREADS = Rule("from 1 to 1024", lambda value: 1 <= value <= 1024)
SEED = Rule("between 0 and 4294967295", lambda value: 0 <= value < 2**32)
ADDRESS = Rule("auto or host:port", lambda text: text == "auto" or _is_address(text))
NETWORK = Rule(
    f"that is {', '.join(networks())}, package.module:function or a file that ends in .keras",
    lambda text: text in networks() or is_own_network(text) or is_keras_file(text),
)
GPU_IDS = Rule("of 0 or greater", lambda ids: min(ids) >= 0)

STREAMING = Condition(lambda config: KINDS[config.kind].streams, "the task is not streaming (simb)")
LABELED_CLIENTS = Condition(lambda config: config.scenario == "lc", "the server has all labels")
LABELED_SERVER = Condition(lambda config: config.scenario == "ls", "the server has no labels")
NUMBER_OF_LABELS = Condition(lambda config: config.labeled_fraction is None, "--labeled-fraction says how many")
IMAGE_FILES = Condition(lambda config: DATASETS[config.dataset].embedded is None, "the dataset has no image files")
POOLED = Condition(lambda config: config.test_split == "pooled", "the test set is the dataset's own, all of it")
GLOBAL_MODEL = Condition(lambda config: config.has_global_model, "the clients share nothing, so no model is global")
ALL_SEE_LABELS = Condition(
    lambda config: config.has_global_model or config.uses_true_labels,
    "the clients share nothing, so those without labels would never learn from any",
)
UNLABELED = Condition(lambda config: learner_of(config.model).passes > 0, "nobody looks at unlabelled images")
CLIENTS_STEP = Condition(
    lambda config: LABELED_CLIENTS.holds(config) or UNLABELED.holds(config), "only the server has images to learn from"
)
DECOMPOSED = Condition(lambda config: config.decomposed, "parameters are one set, not sigma and psi")
CONSISTENCY = Condition(lambda config: not config.no_icc, "--no-icc leaves helpers out")
HELPERS = Condition(lambda config: config.uses_helpers, "there are no helpers")
DRAWN = Condition(lambda config: config.init_weights is None, "--init-weights has the starting weights")
NEW_NETWORK = Condition(lambda config: not is_keras_file(config.arch), "the Keras file has the starting weights")
MOMENTUM = Condition(lambda config: config.momentum > 0, "there is no --momentum")
PLATEAU = Condition(lambda config: config.lr_schedule == "plateau", "--lr-schedule looks at no validation loss")
FALLING = Condition(lambda config: config.lr_schedule != "constant", "--lr-schedule is constant")
OWN_RATES = Condition(lambda config: config.lr_source == "client", "all clients have one learning rate")
ON_DEVICES = Condition(lambda config: config.lr_memory == "device", "the learning rate is kept by the client")
ON_GPU = Condition(lambda config: config.gpu is not None or config.backend == "ray", "no GPU was given")
ON_RAY = Condition(lambda config: config.backend == "ray", "is for --backend ray")


def _is_address(text: str) -> bool:
    address = re.fullmatch(r"[^\s:/]+:(\d{1,5})", text)
    return address is not None and 0 < int(address[1]) < 2**16


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


def from_text(name: str, text: str, setting: Setting) -> Any:
    """The setting's value that a text of the command line stands for; ConfigError if it can't be one.

    `unset` is no number: that of a profile is taken back.
    """
    if text == "unset" and setting.optional and setting.kind is not str:
        return None
    value: Any = text
    try:
        if setting.kind is tuple:
            value = tuple(int(part) for part in text.split(","))
        elif setting.kind is not str:
            value = setting.kind(text)
    except ValueError:
        value = text  # the check says what was expected
    check_value(name, value, setting)
    return value


def check_value(name: str, value: Any, setting: Setting) -> None:
    """Raises ConfigError unless the value has the setting's type, is one of its choices and keeps its rule."""
    if value is None and setting.optional:
        return
    accepted = (int, float) if setting.kind is float else setting.kind
    if not isinstance(value, accepted) or isinstance(value, bool) != (setting.kind is bool):
        raise ConfigError(f"{name}: expected {_KIND_NAMES[setting.kind]}, received {short(value)}")
    if setting.kind is str and not value:
        raise ConfigError(f"{name}: expected a text, received an empty one")
    if setting.kind is str and "\0" in value:
        raise ConfigError(f"{name}: expected a text without the character 0, received {short(value)}")
    if setting.kind is tuple and not (value and all(isinstance(item, int) for item in value)):
        raise ConfigError(f"{name}: expected ids as 0,1,2, received {short(value)}")
    if setting.kind is int and abs(value) >= 2**53:
        raise ConfigError(f"{name}: expected a whole number below 2^53, received {short(value)}")
    if setting.kind is float and not (abs(value) < 1e300 or (isinstance(value, float) and math.isfinite(value))):
        raise ConfigError(f"{name}: expected a finite number, received {short(value)}")
    if setting.choices and value not in setting.choices:
        raise ConfigError(f"{name}: expected one of {', '.join(setting.choices)}; received {short(value)}")
    if setting.rule and not setting.rule.holds(value):
        raise ConfigError(f"{name}: expected {_KIND_NAMES[setting.kind]} {setting.rule.text}, received {short(value)}")


_KIND_NAMES = {int: "a whole number", float: "a number", str: "a text", tuple: "ids", bool: "true or false"}


def parse_task(task: str) -> tuple[str, str, str]:
    """(scenario, kind, dataset) of a task's name."""
    parts = tuple(str(task).split("-"))
    if len(parts) != 3 or parts[0] not in SCENARIOS or parts[1] not in KINDS or parts[2] not in DATASETS:
        raise ConfigError(f"--task: expected {TASKS}, for example lc-biid-c10; received {short(task)}")
    return parts


def check_together(config: Config) -> None:
    """Raises ConfigError unless the settings make sense together."""
    _check_data(config)
    _check_rounds(config)
    _check_model(config)
    if config.backend == "ray" and len({config.gpu_of_workers.count(gpu) for gpu in config.gpu or ()}) > 1:
        raise ConfigError(
            f"--gpu: Ray gives every GPU the same number of workers; expected each id equally often, received "
            f"{','.join(map(str, config.gpu or ()))}"
        )
    if config.ray_address and config.gpu is not None:
        raise ConfigError(
            f"--gpu: ids are of this machine, but with --ray-address every GPU of the cluster gets a worker; "
            f"expected one of the two, received --gpu {','.join(map(str, config.gpu))}"
        )


def _check_data(config: Config) -> None:
    if DATASETS[config.dataset].given_by_source and config.source is None:
        raise ConfigError(f"--source: expected your .npz file or image folder with --task {config.task}, received none")
    smallest = smallest_image(config.arch)
    if config.image_size < smallest:
        raise ConfigError(f"--image-size: expected at least {smallest} for {config.arch}, received {config.image_size}")
    if config.labeled_clients is not None and config.labeled_clients > config.num_clients:
        raise ConfigError(
            f"--labeled-clients: expected at most the {config.num_clients} clients, received {config.labeled_clients}"
        )


def _check_rounds(config: Config) -> None:
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
    if config.num_devices > config.clients_per_round:
        raise ConfigError(
            f"--lr-devices: expected at most {config.clients_per_round}, one per client of a round; "
            f"received {config.lr_devices}"
        )
    if config.scenario == "ls" and config.batch_size_server < 1:
        raise ConfigError(f"--batch-size-server: expected at least 1 with {config.task}, received 0")
    if config.scenario == "ls" and config.num_epochs_server == 0 and not config.uses_true_labels:
        raise ConfigError(
            f"--num-epochs-server: expected at least 1 with --task {config.task}, received 0: nobody would see a label"
        )


def _check_model(config: Config) -> None:
    only = algorithm_of(config.model).scenario
    if only is not None and config.scenario != only:
        raise ConfigError(
            f"--model: {config.model} is for {SCENARIOS[only]}: its server fine-tunes on labels of its own. Use a task "
            f"that begins with {only}, or another model; received --task {config.task}"
        )
    if config.uses_helpers and config.num_clients == 1:
        raise ConfigError(
            "--num-clients: expected at least 2 with helpers, received 1: nobody could help. "
            "Use --no-icc (or --num-helpers 0), or more clients"
        )
    if config.scenario == "ls" and not config.has_global_model:
        raise ConfigError(
            f"--model: {config.model} shares nothing, so in labels-at-server clients would never learn from labels; "
            f"use a task that begins with lc, or another model"
        )
