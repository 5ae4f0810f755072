"""Workers, threads and devices."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tensorflow as tf

from fedmatch_tf.config import ConfigError, make_config
from fedmatch_tf.workers import choose
from fedmatch_tf.workers.environment import (
    Gpu,
    check_cpu_precision,
    check_gpus,
    check_keras,
    limit_memory,
    worker_variables,
)
from tests.conftest import HAS_BFLOAT16, assert_refused, run_main


@pytest.mark.parametrize(
    ("cores", "given", "expected"),
    [
        (2, {}, (2, 1)),
        (1, {}, (1, 1)),
        (2, {"lr_signal": "server"}, (2, 2)),  # nobody validates: the last client's second thread uses the idle core
        (2, {"lr_signal": "server", "arch": "alexnet"}, (2, 1)),  # too small to be split
        (2, {"lr_signal": "server", "backend": "inline"}, (1, 2)),  # the same bits as with workers
        (2, {"lr_signal": "server", "workers": 1}, (1, 2)),
        (1, {"lr_signal": "server"}, (1, 1)),
        (8, {"lr_signal": "server"}, (5, 1)),
        (64, {}, (5, 12)),  # 5 clients per round: a sixth worker would have nothing to do
        (8, {"threads_per_worker": 4}, (2, 4)),
        (64, {"workers": 2}, (2, 12)),  # never other threads for other workers: a result may depend on them
        (64, {"backend": "inline"}, (1, 12)),
        (2, {"workers": 7}, (7, 1)),
        (2, {"threads_per_worker": 7}, (1, 7)),
        (8, {"workers": 3, "threads_per_worker": 5}, (3, 5)),
        (8, {"gpu": (0, 3)}, (2, 1)),
        (8, {"gpu": (0, 0, 1, 1)}, (4, 1)),
        (8, {"gpu": (0, 3), "clients_per_gpu": 3}, (6, 1)),
    ],
)
def test_workers_and_threads_follow_from_the_cores(
    cores: int, given: dict[str, object], expected: tuple[int, int]
) -> None:
    config = choose.decide(make_config("lc-biid-c10", **given), cores)
    assert (config.workers, config.threads_per_worker) == expected


def test_the_cores_are_those_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    assert choose.decide(make_config("lc-biid-c10")).workers == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"gpu": (0, 1), "workers": 3}, r"as many as ids x --clients-per-gpu: expected 2 or none, received 3"),
        ({"backend": "inline", "gpu": (0,), "clients_per_gpu": 2}, "inline is this one process"),
        ({"backend": "inline", "workers": 2}, "inline is this one process"),
        ({"backend": "inline", "gpu": (0, 1)}, "inline is this one process"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        choose.decide(make_config("lc-biid-c10", **given), 8)


@pytest.mark.parametrize(
    ("gpu", "given", "visible"),
    [
        (None, {}, "-1"),  # without --gpu, no GPU is touched
        (None, {"CUDA_VISIBLE_DEVICES": "0,1"}, "-1"),
        (2, {}, "2"),
        (1, {"CUDA_VISIBLE_DEVICES": "4,6"}, "6"),  # the second of those we may see
        (0, {"CUDA_VISIBLE_DEVICES": "GPU-8f2a , GPU-91cc"}, "GPU-8f2a"),
    ],
)
def test_a_worker_sees_its_own_gpu_only(gpu: int | None, given: dict[str, str], visible: str) -> None:
    assert worker_variables(gpu, given)["CUDA_VISIBLE_DEVICES"] == visible


def test_workers_that_share_a_gpu_see_the_same_one() -> None:
    same = make_config("lc-biid-c10", gpu=(0, 0, 2, 2))
    assert same.gpu_of_workers == (0, 0, 2, 2)
    assert make_config("lc-biid-c10", gpu=(0, 2), clients_per_gpu=2).gpu_of_workers == (0, 0, 2, 2)
    assert make_config("lc-biid-c10", clients_per_gpu=2).gpu_of_workers == ()  # on the CPU


class Devices:
    """What limit_memory uses of tf.config, with GPUs that are not there."""

    LogicalDeviceConfiguration = dict

    def __init__(self, in_use: bool) -> None:
        self.in_use = in_use
        self.limits: dict[str, Any] = {}

    def list_physical_devices(self, kind: str) -> list[Any]:
        return [SimpleNamespace(name=f"/physical_device:{kind}:{number}") for number in range(2)]

    def set_logical_device_configuration(self, gpu: Any, parts: list[Any]) -> None:
        if self.in_use:
            raise RuntimeError("Virtual devices cannot be modified after being initialized")
        self.limits[gpu.name] = parts


def test_a_worker_takes_no_more_memory_than_it_is_given() -> None:
    free = Devices(in_use=False)
    limit_memory(free, 3000)
    assert free.limits == {f"/physical_device:GPU:{number}": [{"memory_limit": 3000}] for number in range(2)}
    with pytest.raises(ConfigError, match=r"--gpu-memory: expected to set 3000 MB before TensorFlow uses .*GPU:0"):
        limit_memory(Devices(in_use=True), 3000)


def test_a_limit_is_something_that_tensorflow_takes() -> None:
    assert tf.config.LogicalDeviceConfiguration(memory_limit=3000).memory_limit == 3000
    limit_memory(tf.config, 3000)  # no GPU, nothing to do


def test_keras_3_is_told_from_keras_2() -> None:
    check_keras(tf)  # this one
    keras_3 = SimpleNamespace(__version__="2.21.0", keras=SimpleNamespace(__version__="3.15.1"))
    with pytest.raises(ConfigError, match=r"expected tf.keras to be Keras 2, received Keras 3.15.1 of TensorFlow 2.21"):
        check_keras(keras_3)


def test_gpus_are_numbered_as_nvidia_smi_does_and_compute_the_same_every_time() -> None:
    variables = worker_variables(0, {})
    assert (variables["CUDA_DEVICE_ORDER"], variables["TF_DETERMINISTIC_OPS"]) == ("PCI_BUS_ID", "1")
    assert worker_variables(0, {"TF_DETERMINISTIC_OPS": "0"})["TF_DETERMINISTIC_OPS"] == "0"


def test_a_gpu_that_is_not_there_is_refused_with_a_list_of_those_that_are() -> None:
    both = [Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA T4", (7, 5))]
    check_gpus((1, 0), both)
    with pytest.raises(ConfigError) as error:
        check_gpus((1, 2, 5), both)
    assert str(error.value) == "--gpu: there is no GPU 2, 5 here; there is 0 (NVIDIA A100), 1 (NVIDIA T4)"
    with pytest.raises(ConfigError, match="finds no GPU on this machine"):
        check_gpus((0,), [])


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="there may be a GPU here")
def test_a_machine_without_gpu_says_so_before_anything_is_written(tmp_path: Path) -> None:
    result = run_main("--task", "lc-biid-digits", "--gpu", "0,1", cwd=tmp_path)
    assert_refused(result, "--gpu: expected GPUs 0, 1, but TensorFlow finds no GPU on this machine")
    assert not (tmp_path / "datasets").exists()
    assert not (tmp_path / "outputs").exists()


def test_a_gpu_without_bfloat16_is_refused_by_name() -> None:
    gpus = [Gpu("NVIDIA A100", (8, 0)), Gpu("NVIDIA T4", (7, 5)), Gpu("Other")]
    check_gpus((0, 2), gpus, "bfloat16")
    check_gpus((0, 1, 2), gpus, "float16")
    with pytest.raises(ConfigError, match=r"compute capability 8\.0 or higher; NVIDIA T4 has 7\.5"):
        check_gpus((0, 1), gpus, "bfloat16")


def cpuinfo(folder: Path, *lines: str) -> Path:
    path = folder / "cpuinfo"
    path.write_text("\n".join(("processor\t: 0", *lines, "", "")) * 2)
    return path


@pytest.mark.parametrize(
    ("line", "has_it"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16 avx512_vnni", True),
        ("flags\t\t: fpu avx512f amx_bf16 amx_tile", True),
        ("Features\t: fp asimd bf16 i8mm", True),
        ("flags\t\t: fpu avx2 avx512f avx512_vnni", False),
        ("bugs\t\t: avx512_bf16", False),
        ("", False),
    ],
)
def test_bfloat16_needs_a_processor_that_has_it(
    line: str, has_it: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    path = cpuinfo(tmp_path, "model name\t: Some CPU", line)
    check_cpu_precision("float32", path)
    if has_it:
        check_cpu_precision("bfloat16", path)
        return
    with pytest.raises(ConfigError, match=r"avx512_bf16 or amx_bf16\); Some CPU does not.*--precision float32"):
        check_cpu_precision("bfloat16", path)


def test_where_the_system_does_not_tell_its_processor_bfloat16_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="whether this one does is not known"):
        check_cpu_precision("bfloat16", tmp_path / "none")


def test_bfloat16_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    flags = ("--task", "lc-biid-digits", "--precision", "bfloat16")
    result = run_main(*flags, cwd=tmp_path, TF_ENABLE_ONEDNN_OPTS="0")  # on processors without it, for that reason
    assert_refused(result, "--precision: bfloat16 needs", "Use --precision float32" if not HAS_BFLOAT16 else "oneDNN")
    assert not list(tmp_path.iterdir())
