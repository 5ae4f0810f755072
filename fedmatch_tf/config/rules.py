"""What a setting is, what its value must satisfy, and what settings must satisfy together."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from fedmatch_tf.base.errors import ConfigError, short
from fedmatch_tf.base.plugins import AlgorithmEntry, algorithms, is_own_network, learners, networks, smallest_image
from fedmatch_tf.config.models import algorithm_of, learner_of
from fedmatch_tf.config.tables import SCENARIOS
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS

if TYPE_CHECKING:
    from fedmatch_tf.config.record import Config


class Rule(NamedTuple):
    """What a value must satisfy, and how an error message says so."""

    text: str
    holds: Callable[[Any], bool]


class Setting(NamedTuple):
    """All that is known of a field of Config; the command line is built from these."""

    kind: type
    group: str
    text: str
    choices: tuple[str, ...] = ()
    rule: Rule | None = None
    optional: bool = False  # None is a value
    may_change: bool = False  # when a run goes on: no result depends on it
    of_machine: bool = False  # says where and how a run is worked on, not which run it is
    input_path: bool = False  # a file or folder that the run reads
    aliases: tuple[str, ...] = ()  # other names on the command line and in files of earlier versions of this program
    before: Any = None  # what runs did that were recorded before there was this setting, where that isn't the default
    original: str | None = None  # its name among the options in the original's logs, where that differs


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
    f"that is {', '.join(networks())} or package.module:function",
    lambda text: text in networks() or is_own_network(text),
)
GPU_IDS = Rule("of 0 or greater", lambda ids: min(ids) >= 0)


def _is_address(text: str) -> bool:
    found = re.fullmatch(r"[^\s:/]+:(\d{1,5})", text)
    return found is not None and 0 < int(found[1]) < 2**16


def flag(name: str) -> str:
    """The command-line flag of a setting."""
    return "--" + name.replace("_", "-")


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
        raise ConfigError(
            f"--task: expected {{{','.join(SCENARIOS)}}}-{{{','.join(KINDS)}}}-{{{','.join(DATASETS)}}}, "
            f"for example lc-biid-c10; received {short(task)}"
        )
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
    _, kind, dataset = parse_task(config.task)
    if DATASETS[dataset].given_by_source and config.source is None:
        raise ConfigError(f"--source: expected your .npz file or image folder with --task {config.task}, received none")
    smallest = smallest_image(config.arch)
    if config.image_size < smallest:
        raise ConfigError(f"--image-size: expected at least {smallest} for {config.arch}, received {config.image_size}")
    if config.scenario == "ls" and (config.labeled_clients is not None or config.alpha_labeled is not None):
        name = "labeled_clients" if config.labeled_clients is not None else "alpha_labeled"
        raise ConfigError(
            f"{flag(name)}: expected a task that begins with lc, received {config.task}: the server has all labels"
        )
    if config.labeled_clients is not None and config.labeled_clients > config.num_clients:
        raise ConfigError(
            f"--labeled-clients: expected at most the {config.num_clients} clients, received {config.labeled_clients}"
        )
    if not KINDS[kind].streams and config.num_steps != 1:
        raise ConfigError(
            f"--num-steps: expected 1 unless the task is streaming (simb), received {config.num_steps} "
            f"with --task {config.task}"
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
    if config.scenario == "ls" and config.num_epochs_server == 0 and not learner_of(config.model).uses_true_labels:
        raise ConfigError(
            f"--num-epochs-server: expected at least 1 with --task {config.task}, received 0: nobody would see a label"
        )


def _check_model(config: Config) -> None:
    for algorithm, entry in algorithms().items():
        for name in _own_settings(config, entry) - _own_settings(config, algorithm_of(config.model)):
            if getattr(config, name) is True:  # an ablation of another algorithm
                raise ConfigError(f"{flag(name)}: is for --model {algorithm}, received {config.model}")
    only = algorithm_of(config.model).scenario
    if only is not None and config.scenario != only:
        raise ConfigError(
            f"--model: {config.model} is for {SCENARIOS[only]}: its server fine-tunes on labels of its own. Use a task "
            f"that begins with {only}, or another model; received --task {config.task}"
        )
    if config.ablate_eval and config.no_decomposition:
        raise ConfigError(
            "--ablate-eval: tests sigma and psi apart, which --no-decomposition leaves out; use one of them"
        )
    if config.uses_helpers and config.num_clients == 1:
        raise ConfigError(
            "--num-clients: expected at least 2 with helpers, received 1: nobody could help. "
            "Use --no-icc (or --num-helpers 0), or more clients"
        )
    if config.has_global_model:
        return
    if config.drop_rate:
        raise ConfigError(f"--drop-rate: {config.model} sends nothing that could be lost; leave it out")
    if config.keep_best:
        raise ConfigError(f"--keep-best: {config.model} has no global model to keep; leave it out")
    if config.lr_signal == "server":
        raise ConfigError(
            f"--lr-signal: {config.model} has no global model to validate; expected client, received server"
        )
    if config.eval_clients == "valid":
        raise ConfigError(
            f"--eval-clients: {config.model} has no global model, so its clients must test; expected always or auto, "
            f"received valid"
        )
    if config.labeled_clients is not None and not learner_of(config.model).uses_true_labels:
        raise ConfigError(
            f"--labeled-clients: {config.model} shares nothing, so clients without labels would never learn from any; "
            f"leave it out, or use another model"
        )
    if config.scenario == "ls":
        raise ConfigError(
            f"--model: {config.model} shares nothing, so in labels-at-server clients would never learn from labels; "
            f"use a task that begins with lc, or another model"
        )


def meaningless(task: str, model: str, given: Mapping[str, Any]) -> dict[str, str]:
    """Of the settings given, those that a run of this task and model would be refused for, each with the reason."""
    scenario, kind, _ = parse_task(task)
    why: dict[str, str] = {}
    if not KINDS[kind].streams:
        why["num_steps"] = "the task is not streaming"
    if scenario == "ls":
        why.update(dict.fromkeys(("labeled_clients", "alpha_labeled"), "the server has all labels"))
    if not algorithm_of(model).has_global_model:
        why.update(dict.fromkeys(("drop_rate", "keep_best"), "clients share nothing"))
        if not learner_of(model).uses_true_labels:
            why["labeled_clients"] = "clients share nothing"
        if given.get("lr_signal") == "server" or given.get("eval_clients") == "valid":
            why.update(dict.fromkeys(("lr_signal", "eval_clients"), "there is no global model to score"))
    return {name: reason for name, reason in why.items() if name in given}


def without_effect(config: Config) -> set[str]:
    """Settings that this run never looks at."""
    names = {"batch_size_server", "num_epochs_server"} if config.scenario == "lc" else set()
    for entry in algorithms().values():
        names |= _own_settings(config, entry) - _own_settings(config, algorithm_of(config.model))
    names |= _all_read(learners().values()) - learner_of(config.model).reads
    names |= _all_read(KINDS.values()) - KINDS[config.kind].reads
    names |= {"num_test"} if config.test_split == "source" else set()
    names |= {"labels_per_class"} if config.labeled_fraction is not None else set()
    if config.gpu is None and config.backend != "ray":
        names |= {"clients_per_gpu", "gpu_memory"}
    if config.init_weights is not None:
        names |= {"init_draws"}
    if config.lr_signal == "server":
        names |= {"lr_memory"}
    if config.lr_signal == "server" or config.lr_memory == "client":
        names |= {"lr_devices"}
    if not config.decomposed:
        names |= {"lambda_l1", "lambda_l2", "l1_thres"}
    if not config.uses_helpers:
        names |= {"helper_interval", "lambda_i", "icc_rows"} | ({"num_helpers"} if config.num_helpers else set())
    return names


def _all_read(entries: Iterable[Any]) -> frozenset[str]:
    return frozenset().union(*(entry.reads for entry in entries))


def _own_settings(config: Config, entry: AlgorithmEntry) -> frozenset[str]:
    """The settings that this algorithm looks at, and not every other."""
    groups = {field.name: field.metadata["setting"].group for field in dataclasses.fields(config)}
    return entry.reads | {name for name, group in groups.items() if group == entry.group}
