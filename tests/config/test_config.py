"""Settings: the defaults of paper and original, typed in here from their tables, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest

from fedmatch_tf.base.plugins import algorithms, learners
from fedmatch_tf.config import (
    MODELS,
    PROFILES,
    SCENARIOS,
    ConfigError,
    flag,
    from_text,
    make_config,
    settings,
    without_effect,
)
from fedmatch_tf.config.resume import INPUT_PATHS, MAY_CHANGE, OF_MACHINE, continued, recorded_config
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.dealing import KINDS
from fedmatch_tf.learners import schedule

BOTH = {
    "lr": 1e-3,
    "lr_factor": 3,
    "lr_min": 1e-20,
    "lambda_s": 10,
    "lambda_i": 1e-2,
    "lambda_a": 1e-2,
    "lambda_l2": 10,
    "num_helpers": 2,
    "helper_interval": 10,
    "psi_factor": 0.2,
    "batch_size_test": 100,
    "num_epochs_client": 1,
    "num_clients": 100,
    "num_rounds": 200,
    "frac_clients": 0.05,
    "seed": 1,
    "lambda_u": 1,
    "mu": 1e-2,
    "arch": "resnet9",
    "model": "fedmatch",
}
OFFICIAL = {
    "confidence": 0.75,
    "num_test": 2000,
    "num_valid": 2000,
    "wd": 0,
    "equalize": "identity",
    "icc_rows": "confident",
    "s2c_content": "full",
    "init_draws": "original",
    "batch_size_unlabeled": None,
}
PAPER = {
    "confidence": 0.85,
    "num_test": 3000,
    "num_valid": 3000,
    "wd": 1e-4,
    "equalize": "real",
    "icc_rows": "all",
    "s2c_content": "counted",
    "init_draws": "independent",
    "batch_size_unlabeled": 100,
    "lr_patience": 5,
}
LC = {
    "labels_per_class": 5,
    "batch_size_client": 10,
    "num_epochs_server": 0,
    "lr_patience": 5,
    "lambda_l1": 1e-4,
    "l1_thres": 5e-6,
    "delta_thres": 5e-5,
}
LS = {
    "labels_per_class": 100,
    "batch_size_client": 100,
    "batch_size_server": 100,
    "num_epochs_server": 1,
    "lr_patience": 20,
    "lambda_l1": 1e-5,
    "l1_thres": 1e-5,
    "delta_thres": 1e-5,
}


@pytest.mark.parametrize("kind", ["biid", "bimb"])
@pytest.mark.parametrize(
    ("scenario", "profile", "expected"),
    [
        ("lc", "official", {**BOTH, **LC, **OFFICIAL}),
        ("ls", "official", {**BOTH, **LS, **OFFICIAL}),
        ("lc", "paper", {**BOTH, **LC, **PAPER}),
        ("ls", "paper", {**BOTH, **LS, **PAPER}),
    ],
)
def test_cifar10_defaults_are_those_of_original_and_paper(
    scenario: str, kind: str, profile: str, expected: dict[str, Any]
) -> None:
    config = dataclasses.asdict(make_config(f"{scenario}-{kind}-c10", profile=profile))
    assert {name: config[name] for name in expected} == expected


def test_streaming_has_ten_clients_that_all_take_part_in_ten_steps_of_ten_rounds() -> None:
    for scenario in SCENARIOS:
        config = make_config(f"{scenario}-simb-fmnist")
        assert (config.num_clients, config.frac_clients, config.clients_per_round) == (10, 1.0, 10)
        assert (config.num_steps, config.num_rounds) == (10, 100)
    paper = make_config("lc-simb-fmnist", profile="paper")
    assert (paper.num_test, paper.num_valid) == (3500, 3500)


def test_covid_has_ten_clients_of_five_labels_per_class_for_a_hundred_rounds() -> None:
    config = make_config("lc-biid-covid")
    assert (config.num_clients, config.frac_clients, config.labels_per_class, config.num_rounds) == (10, 1.0, 5, 100)
    assert make_config("ls-biid-covid").labels_per_class == 50


def test_fixmatch_has_its_own_confidence_unless_a_papers_settings_have_another() -> None:
    for profile, confidence in (("official", 0.85), ("paper", 0.85), ("proxyfl", 0.95), ("semifl", 0.95)):
        assert make_config("lc-biid-c10", model="fedavg-fixmatch", profile=profile).confidence == confidence
    assert make_config("lc-biid-c10", model="fedavg-uda").confidence == 0.75


def test_the_fraction_follows_the_number_of_clients() -> None:
    assert make_config("lc-biid-c10", num_clients=10).frac_clients == 1.0
    assert make_config("lc-biid-digits", num_clients=100).frac_clients == 0.05
    assert make_config("lc-biid-c10", num_clients=10, frac_clients=0.5).clients_per_round == 5


def test_what_is_given_wins_over_every_table() -> None:
    config = make_config("ls-simb-fmnist", profile="paper", num_clients=7, lr_patience=9, num_test=11, confidence=0.5)
    assert (config.num_clients, config.lr_patience, config.num_test, config.confidence) == (7, 9, 11, 0.5)


def test_every_task_profile_and_model_has_a_complete_config_or_a_reason() -> None:
    for scenario, kind, dataset in itertools.product(SCENARIOS, KINDS, DATASETS):
        given = {"source": "x.npz"} if dataset == "own" else {}
        for profile, model in itertools.product(PROFILES, MODELS):
            if scenario == ("ls" if model.startswith("local-") else "lc" if model == "semifl" else ""):
                with pytest.raises(ConfigError, match=r"never learn from labels|fine-tunes on labels of its own"):
                    make_config(f"{scenario}-{kind}-{dataset}", profile=profile, model=model, **given)
            else:
                config = make_config(f"{scenario}-{kind}-{dataset}", profile=profile, model=model, **given)
                assert (config.scenario, config.kind, config.dataset) == (scenario, kind, dataset)


def test_nothing_of_the_fields_training_is_on_unless_a_profile_of_the_field_or_a_flag_says_so() -> None:
    off = {"momentum": 0, "nesterov": False, "server_momentum": 0, "clip_norm": None, "weak": "none"}
    off.update(lr_schedule="plateau", epoch_of="labeled", test_split="pooled")
    for task, profile in itertools.product(("lc-biid-c10", "ls-simb-fmnist"), ("official", "paper")):
        config = dataclasses.asdict(make_config(task, profile=profile))
        assert {name: config[name] for name in off} == off
    assert set(schedule.BY_ROUND) == set(settings()["lr_schedule"].choices) - {"plateau", "constant"}


# As the papers and their public codes have them; decay is half of theirs, as it multiplies a sum of squares.
SEMIFL = {
    **{"arch": "wrn28_2", "num_clients": 100, "clients_per_round": 10, "num_rounds": 800, "num_epochs_client": 5},
    **{"num_epochs_server": 5, "batch_size_client": 10, "batch_size_server": 250, "lr": 0.03, "momentum": 0.9},
    **{"nesterov": True, "wd": 2.5e-4, "lr_schedule": "cosine", "server_momentum": 0.5, "clip_norm": 1.0},
    **{"weak": "flip-crop", "test_split": "source", "confidence": 0.95},
}
FL2 = {**SEMIFL, "batch_size_client": 32, "batch_size_server": 10, "clip_norm": None, "labels_per_class": 4}
SAGE = {
    **{"arch": "resnet8", "num_clients": 20, "clients_per_round": 8, "num_epochs_client": 10, "nesterov": False},
    **{"batch_size_client": 128, "batch_size_unlabeled": 256, "lr": 0.1, "momentum": 0.9, "wd": 5e-5},
    **{"lr_schedule": "constant", "server_momentum": 0, "clip_norm": None, "weak": "flip-crop", "lambda_s": 1},
    **{"test_split": "source", "epoch_of": "unlabeled", "confidence": 0.95},
}


@pytest.mark.parametrize(
    ("task", "given", "expected"),
    [
        ("ls-bdir-c10", {"profile": "semifl", "model": "semifl"}, {**SEMIFL, "labels_per_class": 400}),
        ("ls-biid-svhn", {"profile": "semifl"}, {**SEMIFL, "labels_per_class": 100, "lambda_s": 10}),
        ("ls-biid-c10", {"profile": "semifl", "labels_per_class": 25}, {**SEMIFL, "batch_size_server": 10}),
        ("ls-bdir-svhn", {"profile": "fl2"}, FL2),
        ("ls-biid-c100", {"profile": "fl2", "model": "fedavg-labels"}, {**FL2, "lambda_s": 1}),
        ("lc-bdir-c10", {"profile": "sage", "model": "fedavg-sage"}, {**SAGE, "num_rounds": 300, "alpha_labeled": 0.1}),
        ("lc-bdir-c100", {"profile": "sage", "model": "fedavg-gpl"}, {**SAGE, "num_rounds": 500}),
        (
            "lc-bdir-svhn",
            {"profile": "sage", "model": "fedavg-gpl", "alpha": 1.0},
            {**SAGE, "num_rounds": 150, "labels_per_class": 23, "labeled_fraction": None, "alpha_labeled": 1.0},
        ),
        (
            "lc-biid-cinic10",
            {"profile": "sage"},
            {**SAGE, "num_rounds": 400, "labels_per_class": 45, "confidence": 0.75, "lambda_s": 10},
        ),
        ("lc-bdir-c10", {"profile": "proxyfl", "model": "fedavg-gpl"}, {**SAGE, "num_rounds": 300}),
    ],
)
def test_profiles_of_the_field_have_their_papers_training(
    task: str, given: dict[str, Any], expected: dict[str, Any]
) -> None:
    config = make_config(task, **given)
    assert {name: getattr(config, name) for name in expected} == expected


def test_only_a_run_whose_rate_does_not_depend_on_the_end_can_have_more_rounds() -> None:
    for name, why in (("cosine", "the cosine schedule"), ("linear", "the linear schedule")):
        with pytest.raises(ConfigError, match=f"--num-rounds: the run has 200, received 300; {why} of its learning"):
            continued(make_config("lc-biid-c10", lr_schedule=name), {"num_rounds": 300})
    assert continued(make_config("lc-biid-c10", lr_schedule="constant"), {"num_rounds": 300}).num_rounds == 300


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make_config("lc-biid-c10").lr = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"task": "lc-biid-c11"}, "--task: expected"),
        ({"task": "biid-c10"}, "--task: expected"),
        ({"task": ""}, "--task: expected"),
        ({"model": "fedsgd"}, "--model: expected one of fedmatch"),
        ({"profile": "mine"}, "--profile: expected one of official, paper"),
        ({"num_clients": 0}, "--num-clients: expected a whole number greater than 0, received 0"),
        ({"num_clients": 2.5}, "--num-clients: expected a whole number, received 2.5"),
        ({"num_clients": True}, "--num-clients: expected a whole number"),
        ({"frac_clients": 1.5}, "--frac-clients: expected a number greater than 0 and at most 1, received 1.5"),
        ({"frac_clients": 0.001}, "100 clients x 0.001 rounds to 0; use at least 0.01"),
        ({"lr": float("nan")}, "--lr: expected a finite number"),
        ({"lr": -1.0}, "--lr: expected a number greater than 0"),
        ({"lr_factor": 1.0}, "--lr-factor: expected a number greater than 1"),
        ({"confidence": 1.1}, "--confidence: expected a number between 0 and 1"),
        ({"seed": -1}, "--seed: expected a whole number between 0 and 4294967295"),
        ({"gpu": (0, -1)}, "--gpu: expected ids of 0 or greater"),
        ({"gpu": (0, 0, 1), "backend": "ray"}, "--gpu: Ray gives every GPU the same number of workers"),
        ({"clients_per_gpu": 0}, "--clients-per-gpu: expected a whole number greater than 0"),
        ({"gpu_memory": 0}, "--gpu-memory: expected a whole number greater than 0"),
        ({"gpu": ()}, "--gpu: expected ids as 0,1,2"),
        ({"ray_address": "head"}, "--ray-address: expected a text auto or host:port, received 'head'"),
        ({"ray_address": "ray://head:10001"}, "--ray-address: expected a text auto or host:port"),
        ({"ray_address": "head:99999"}, "--ray-address: expected a text auto or host:port"),
        ({"ray_address": "auto", "gpu": (0, 1)}, "--gpu: ids are of this machine"),
        ({"lr_devices": 6}, "--lr-devices: expected at most 5, one per client of a round; received 6"),
        ({"num_steps": 3}, "--num-steps: has no meaning here: the task is not streaming"),
        ({"task": "lc-simb-c10", "num_rounds": 5}, "each of 10 streaming steps, received 5"),
        ({"task": "ls-biid-c10", "batch_size_server": 0}, "--batch-size-server: expected at least 1"),
        ({"task": "lc-biid-own"}, "--source: expected your .npz file or image folder"),
        ({"image_size": 31}, "--image-size: expected at least 32 for resnet9, received 31"),
        ({"image_size": 18, "arch": "alexnet"}, "--image-size: expected at least 19 for alexnet, received 18"),
        ({"inertia": 0.9}, "expected names of settings, received inertia"),
        ({"momentum": 1.0}, "--momentum: expected a number 0 or greater and below 1, received 1.0"),
        ({"nesterov": True}, "--nesterov: has no meaning here: there is no --momentum"),
        ({"server_momentum": 1.0}, "--server-momentum: expected a number 0 or greater and below 1, received 1.0"),
        ({"server_momentum": 0.5, "model": "local-sl"}, "--server-momentum: has no meaning here: only fedmatch,"),
        ({"clip_norm": 0.0}, "--clip-norm: expected a number greater than 0, received 0.0"),
        ({"weak": "flip"}, "--weak: expected one of none, flip-crop; received 'flip'"),
        ({"lr_schedule": "step"}, "--lr-schedule: expected one of plateau, cosine, constant, linear; received 'step'"),
        ({"lr_schedule": "cosine", "lr_signal": "server"}, "--lr-signal: has no meaning here: --lr-schedule looks at"),
    ],
)
def test_bad_settings_are_refused_with_rule_and_value(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_config(**{"task": "lc-biid-c10", **given})
    assert message in str(error.value)


@pytest.mark.parametrize("value", ["10", None, [], 2.5, True, float("nan"), b"10"], ids=repr)
def test_a_value_of_another_type_is_refused_before_defaults_are_worked_out_from_it(value: Any) -> None:
    with pytest.raises(ConfigError, match="--num-clients: expected a whole number, received "):
        make_config("lc-biid-digits", num_clients=value)
    with pytest.raises(ConfigError, match="--task: expected a text, received "):
        make_config(10 if value == "10" else value)  # type: ignore[arg-type]


def test_a_number_that_may_be_absent_can_be_unset_and_no_other() -> None:
    assert from_text("--batch-size-unlabeled", "unset", settings()["batch_size_unlabeled"]) is None
    assert from_text("--source", "unset", settings()["source"]) == "unset", "a file may be called that"
    with pytest.raises(ConfigError, match="expected a whole number, received 'unset'"):
        from_text("--num-rounds", "unset", settings()["num_rounds"])


def test_every_model_is_an_algorithm_and_a_learner() -> None:
    learners = ["sl", "labels", "uda", "fixmatch", "flexmatch", "freematch"]
    received = ["gpl", "sage"]  # labels of the global model, which local clients have none of
    by_algorithm = {"fedavg": learners + received, "fedprox": learners + received, "local": learners}
    baselines = [f"{algorithm}-{learner}" for algorithm, names in by_algorithm.items() for learner in names]
    assert sorted(MODELS) == sorted(["fedmatch", "semifl", *baselines])
    config = make_config("lc-biid-c10", model="fedprox-uda")
    assert (config.algorithm, config.learner, config.has_global_model) == ("fedprox", "uda", True)
    config = make_config("lc-biid-c10")
    assert (config.algorithm, config.learner, config.decomposed, config.uses_helpers) == ("fedmatch",) * 2 + (True,) * 2
    assert not make_config("lc-biid-c10", model="local-sl").has_global_model


def test_settings_say_whether_they_may_change_and_whether_they_are_of_the_machine() -> None:
    while_running = (
        "backend checkpoint_every clients_per_gpu gpu_memory profile_run ray_address ray_data store task_timeout "
        "task_tries wandb workers"
    )
    assert {*while_running.split(), "dataset_path", "skip_broken", "source"} == MAY_CHANGE
    assert {*while_running.split(), "dataset_path", "gpu", "output_path", "threads_per_worker"} == OF_MACHINE
    assert {"source", "dataset_path", "init_weights", "probe_image"} == INPUT_PATHS


def test_a_setting_that_a_record_lacks_has_the_default_of_its_task_profile_and_model() -> None:
    config = make_config("ls-biid-c10", profile="paper", model="semifl", labeled_acc=True, gpu=(0, 1))
    recorded = dataclasses.asdict(config)
    for name in ("lr_signal", "init_draws", "labels_per_class", "lambda_s", "frac_clients"):
        del recorded[name]
    assert recorded_config({**recorded, "gpu": [0, 1]}) == config
    with pytest.raises(ConfigError, match="expected names of settings, received sigma_factor"):
        recorded_config({**recorded, "sigma_factor": 2})
    with pytest.raises(ConfigError, match="expected the setting task, found none"):
        recorded_config({"lr": 0.1})


@pytest.mark.parametrize(
    ("task", "given", "idle"),
    [
        ("lc-biid-c10", {}, "batch_size_server num_epochs_server"),
        ("ls-biid-c10", {"no_icc": True}, "lambda_i helper_interval icc_rows num_helpers"),
        ("ls-biid-c10", {"no_decomposition": True}, "lambda_l1 lambda_l2 l1_thres ablate_eval"),
        ("ls-biid-c10", {"lr_memory": "client", "labeled_fraction": 0.1}, "lr_devices labels_per_class"),
        ("ls-biid-c10", {"lr_memory": "device", "init_weights": "x.npz"}, "init_draws"),
        ("ls-biid-c10", {"lr_signal": "server"}, "lr_memory lr_devices"),
        ("lc-biid-c10", {"test_split": "source"}, "batch_size_server num_epochs_server num_test"),
        ("ls-biid-c10", {"lr_schedule": "cosine"}, "lr_signal lr_patience lr_factor lr_memory lr_devices"),
        ("ls-biid-c10", {"lr_schedule": "constant"}, "lr_signal lr_patience lr_factor lr_memory lr_devices lr_min"),
    ],
)
def test_settings_without_effect_are_known(task: str, given: dict[str, Any], idle: str) -> None:
    of_scenario = {"labeled_clients", "alpha_labeled", "epoch_of"} if task.startswith("ls") else set()
    assert set(without_effect(make_config(task, **given))) == of_scenario | {
        *idle.split(),
        *("lambda_u", "mu"),  # of other learners and algorithms
        *("alpha", "classes_per_client", "num_steps", "nesterov"),  # of other kinds; of momentum
        *("clients_per_gpu", "gpu_memory", "ray_address", "ray_data"),
    }
    on_gpu = without_effect(make_config(task, gpu=(0,), **given))
    assert not {"clients_per_gpu", "gpu_memory"} & set(on_gpu)


def test_what_is_fedmatchs_own_has_no_effect_on_baselines() -> None:
    idle = without_effect(make_config("ls-biid-c10", model="fedprox-fixmatch"))
    fedmatchs = {"lambda_i", "lambda_a", "delta_thres", "lambda_l2", "probe_image", "num_helpers", "s2c_content"}
    assert {idle[name] for name in fedmatchs} == {"only fedmatch reads it"}
    assert not {"mu", "lambda_u", "confidence", "lambda_s", "psi_factor"} & set(idle)
    idle = without_effect(make_config("ls-biid-c10", model="fedavg-uda"))
    assert idle["mu"] == "only fedprox reads it"
    assert "confidence" in idle


@pytest.mark.parametrize(("task", "model"), [("lc-biid-c10", "local-uda"), ("ls-biid-c10", "fedavg-sl")])
def test_what_has_no_meaning_is_refused_in_one_line_unless_it_is_the_default(task: str, model: str) -> None:
    other = {int: 3, float: 0.5, bool: True, str: "server"}
    for name, reason in without_effect(make_config(task, model=model)).items():
        setting = settings()[name]
        if not setting.refuse or setting.of_machine:
            continue
        value = setting.refuse[0] if isinstance(setting.refuse, tuple) else other[setting.kind]
        with pytest.raises(ConfigError) as error:
            make_config(task, model=model, **{name: value})
        assert str(error.value).startswith(f"{flag(name)}: has no meaning here: {reason}; leave it out.")
        assert "\n" not in str(error.value)
        assert make_config(task, model=model, **{name: setting.default}) == make_config(task, model=model)


def test_entries_of_models_name_settings_that_exist() -> None:
    groups = {setting.group for setting in settings().values()}
    for entry in algorithms().values():
        assert entry.reads <= set(settings())
        assert entry.group is None or entry.group in groups
    for learner in learners().values():
        assert learner.reads | set(learner.defaults) <= set(settings())


# The paper's table of hyper-parameters; lambda_ICCS stands for lambda_i and lambda_a, - for what a row lacks.
HYPER_PARAMETERS = """
scenario learner   lr   wd   lambda_s lambda_u lambda_ICCS lambda_l1 lambda_l2 LPC B_S_client B_U_client B_S_server mu
lc       sl        1e-3 1e-4 10       -        -           -         -         5   10         100        -          1e-2
lc       uda       1e-3 1e-4 10       1        -           -         -         5   10         100        -          1e-2
lc       fixmatch  1e-3 1e-4 10       1        -           -         -         5   10         100        -          1e-2
lc       fedmatch  1e-3 1e-4 10       -        1e-2        1e-4      10        5   10         100        -          -
ls       sl        1e-3 1e-4 10       -        -           -         -         100 -          100        100        1e-2
ls       uda       1e-3 1e-4 10       1        -           -         -         100 -          100        100        1e-2
ls       fixmatch  1e-3 1e-4 10       1        -           -         -         100 -          100        100        1e-2
ls       fedmatch  1e-3 1e-4 10       -        1e-2        1e-5      10        100 -          100        100        -
"""


def test_the_servers_patience_lasts_as_many_visits_as_a_clients() -> None:
    assert make_config("lc-biid-c10").patience == 5
    assert make_config("lc-biid-c10", lr_signal="server").patience == 100  # 5 visits, one every 20 rounds
    assert make_config("lc-simb-fmnist", lr_signal="server").patience == 5  # all ten clients every round


def test_a_number_of_labels_replaces_the_profiles_share_of_labels() -> None:
    assert make_config("lc-bdir-c10", profile="proxyfl").labeled_fraction == 0.1
    given = make_config("ls-bdir-c10", profile="proxyfl", labels_per_class=400)
    assert (given.labeled_fraction, given.labels_per_class) == (None, 400)
    both = make_config("lc-bdir-c10", profile="proxyfl", labels_per_class=400, labeled_fraction=0.2)
    assert both.labeled_fraction == 0.2  # as in a recorded run, which has all settings


def test_profile_paper_has_the_papers_hyper_parameters() -> None:
    names = {
        "lambda_ICCS": ("lambda_i", "lambda_a"),
        "LPC": ("labels_per_class",),
        "B_S_client": ("batch_size_client",),
        "B_U_client": ("batch_size_unlabeled",),
        "B_S_server": ("batch_size_server",),
    }
    head, *rows = [row.split() for row in HYPER_PARAMETERS.strip().splitlines()]
    assert len(rows) == 8
    for scenario, learner, *values in rows:
        model = learner if learner == "fedmatch" else f"fedprox-{learner}"
        config = make_config(f"{scenario}-biid-c10", model=model, profile="paper")
        for column, value in zip(head[2:], values):
            for name in names.get(column, (column,)):
                if value == "-":
                    used = name not in without_effect(config) and not (scenario == "ls" and name == "batch_size_client")
                    assert not used, (scenario, model, name)
                else:
                    assert getattr(config, name) == float(value), (scenario, model, name)
    config = make_config("lc-biid-c10", profile="paper")
    assert (config.confidence, config.lr_factor, config.lr_patience) == (
        0.85,
        3,
        5,
    )  # tau, and the appendix on training
    assert (config.num_clients, config.frac_clients, config.num_rounds) == (100, 0.05, 200)
