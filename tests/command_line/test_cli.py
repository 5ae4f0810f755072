"""The command line as a user types it, through real processes: what it writes, prints and exits with."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import time
from parser import parse
from pathlib import Path

import numpy as np
import pytest

from fedmatch_tf import main
from fedmatch_tf.config import Config, flag, settings
from fedmatch_tf.data import files
from fedmatch_tf.data.manifest import read_manifest
from tests.command_server import CommandServer
from tests.conftest import ROOT, SHARED, SMALL, assert_refused, made_up_images, needs_shared, run, run_main, save_npz


def test_help_lists_every_setting_in_groups_and_imports_nothing_heavy() -> None:
    result = run_main("--help")
    assert result.returncode == 0
    for name in settings():
        assert re.search(rf"{flag(name)}[ ,]", result.stdout)
    for group in ("what to run:", "data and partitions:", "FedMatch:", "baselines:", "machine:"):
        assert group in result.stdout
    code = (
        "import sys, main\n"
        "try: main.main(['--help'])\n"
        "except SystemExit: print([m for m in ('tensorflow', 'matplotlib', 'sklearn') if m in sys.modules])"
    )
    loaded = run(sys.executable, "-c", code)
    assert loaded.stdout.splitlines()[-1] == "[]"


def config_of(*arguments: str) -> Config:
    config = parse(arguments).arguments["config"]
    assert isinstance(config, Config)
    return config


def test_every_setting_can_be_given_by_its_flag() -> None:
    samples = {int: "3", float: "0.5", str: "text", tuple: "0,2"}
    for name, setting in settings().items():
        if name in ("task", "num_steps", "lr_factor", "image_size"):
            continue
        if setting.kind is bool:
            momentum = ["--momentum", "0.9"] if name == "nesterov" else []
            assert getattr(config_of("--task", "lc-biid-c10", *momentum, flag(name)), name) is True
            continue
        text = setting.choices[0] if setting.choices else samples[setting.kind]
        text = {"ray_address": "head:6379", "arch": "alexnet"}.get(name, text)
        with_ray = ["--backend", "ray"] if name.startswith("ray_") else []
        config = config_of("--task", "lc-biid-c10", *with_ray, flag(name), text)
        expected = (0, 2) if setting.kind is tuple else setting.kind(text)
        assert getattr(config, name) == expected, name


def test_the_originals_command_works() -> None:
    text = "--gpu 0,1 --work-type train --model fedmatch --task lc-biid-c10 --frac-client 0.1 --seed 1"
    config = config_of(*text.split())
    assert (config.frac_clients, config.gpu) == (0.1, (0, 1))


def test_a_kind_of_work_is_the_first_argument_or_a_flag_anywhere() -> None:
    flags = ["--task=lc-biid-digits", "--force"]
    command = parse(["gen_data", *flags])
    assert command.work == "gen_data"
    for arguments in (["--work-type", "gen_data", *flags], [*flags, "--work-type=gen_data"]):
        assert parse(arguments) == command
    assert parse(["--task=lc-biid-digits"]) == parse(["train", "--task=lc-biid-digits"])
    assert parse(["--resume", "x", "--num-rounds=3"]) == ("resume", {"run": "x", "given": {"num_rounds": 3}})


@pytest.mark.parametrize(
    ("work", "flags"),
    [
        ("report", "--runs --output-path --quiet"),
        ("compare", "--runs --official --output-path --quiet"),
        ("evaluate", "--run --source --dataset-path --precision --output-path --quiet"),
        ("predict", "--run --images --output --precision --output-path --quiet"),
        ("export", "--run --to --quiet"),
    ],
)
def test_help_of_a_kind_of_work_has_what_it_reads_and_nothing_else(work: str, flags: str) -> None:
    for arguments in ((work, "--help"), ("--help", "--work-type", work)):
        shown = run_main(*arguments).stdout.split("options:")[1]
        assert set(re.findall(r"^  (?:-h, )?(--[\w-]+)", shown, re.M)) == {"--help", "--version", *flags.split()}


def test_gen_data_shows_what_decides_partitions_and_takes_the_flags_of_a_training_run() -> None:
    shown = run_main("gen_data", "--help").stdout
    assert all(name in shown for name in ("--task", "--seed", "--num-clients", "--alpha", "--source", "--force"))
    assert not any(name in shown for name in ("--lr", "--confidence", "--gpu", "--resume", "--runs", "--work-type"))
    assert parse(["gen_data", "--task=lc-biid-digits", "--lr=0.5", "--workers=3"]).arguments["config"].lr == 0.5


def test_gen_data_writes_partitions_and_prints_their_folder_last(small_npz: Path, tmp_path: Path) -> None:
    arguments = ("--work-type", "gen_data", "--task", "lc-bimb-c10", "--source", str(small_npz), "--dataset-path", "d")
    result = run_main(*arguments, *SMALL[:-1], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "d/lc-bimb-c10"
    assert re.search(r"labelled +50 for each client, 5 of each class", result.stdout)
    assert "Writing lc-bimb-c10" in result.stderr
    assert read_manifest(tmp_path / "d" / "lc-bimb-c10").spec.num_clients == 4
    again = run_main(*arguments, *SMALL, cwd=tmp_path)
    assert again.returncode == 0
    assert again.stdout == "d/lc-bimb-c10\n"
    assert again.stderr == "main.py: note: this is not the published c10 (its checksum differs)\n"


def test_a_datasets_own_test_set_is_kept_whole_and_in_order(small_npz: Path, tmp_path: Path) -> None:
    arguments = ("--work-type=gen_data", "--task=lc-biid-c10", f"--source={small_npz}", "--test-split=source")
    result = run_main(*arguments, *SMALL[:-1], cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "--num-test has no effect" in result.stderr
    with np.load(small_npz) as raw:
        test = files.decode((tmp_path / "datasets" / "lc-biid-c10" / "test_cifar_10.npy").read_bytes())
        np.testing.assert_array_equal(test.x, raw["x_test"])
        np.testing.assert_array_equal(test.y.argmax(axis=1), raw["y_test"])
    manifest = read_manifest(tmp_path / "datasets" / "lc-biid-c10")
    assert (manifest.spec.test_split, manifest.files["valid_cifar_10.npy"].num_examples) == ("source", 40)
    refused = run_main("--work-type=gen_data", "--task=lc-biid-digits", "--test-split=source", cwd=tmp_path)
    assert_refused(refused, "--test-split: expected a dataset that has a test set of its own")


def test_a_reader_who_goes_away_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} {ROOT / 'main.py'} --work-type reproduce --experiment batch --dry-run | head -1"
    result = run("bash", "-c", command, cwd=tmp_path)
    assert result.stdout.startswith("python main.py --task")
    assert result.stderr == ""


def test_help_has_the_defaults_of_the_task_and_model_that_are_given() -> None:
    def lines(*arguments: str) -> str:
        result = run_main(*arguments, "--help")
        assert result.returncode == 0
        return " ".join(result.stdout.split())

    plain, streaming = lines(), lines("--task", "ls-simb-fmnist", "--model=fedavg-uda")
    fixmatch = lines("--task=lc-biid-c10", "--model", "fedavg-fixmatch")
    assert "communication rounds; default: by task and profile --" in plain
    assert "default: resnet9" not in plain, "profiles of the field have other networks"
    assert "no inter-client consistency, so no helpers; has no effect here" in streaming
    assert "get no pseudo-label; default: by profile and model" in plain
    assert "clients in the federation; default: 10 --" in streaming
    assert "communication rounds; default: 100 --" in streaming
    assert "get no pseudo-label; has no effect here" in streaming
    assert "get no pseudo-label; default: 0.75" in lines("--task=lc-biid-c10")
    assert "clients in the federation; default: 100 --" in fixmatch
    assert "get no pseudo-label; default: 0.85" in fixmatch
    assert "here: fedavg-uda; default: fedmatch" in streaming
    assert "examples in the server's batch (ls); has no effect here" in fixmatch
    assert "semifl is for labels-at-server" in lines("--task=lc-biid-c10", "--model=semifl")
    assert "received 'nonsense'" in lines("--task=nonsense")
    assert "Defaults are those of --task ls-simb-fmnist --model fedavg-uda --profile official." in streaming
    for text in (plain, streaming, lines("--task=nonsense"), lines("--task=lc-biid-own")):
        assert "default: none" not in text.replace("; default: none --augment", ""), "--weak has such a choice"
        assert "default: None" not in text
        assert ".py " not in text.replace("main.py ", "")


@pytest.mark.parametrize("task", ["lc-biid-digits", "ls-bimb-digits", "lc-simb-digits", "ls-simb-digits"])
def test_digits_need_no_download_for_any_kind_of_task(task: str, tmp_path: Path, commands: CommandServer) -> None:
    result = commands.run("--work-type", "gen_data", "--task", task, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    manifest = read_manifest(tmp_path / "datasets" / task)
    assert manifest.source.num_examples == 1797
    assert manifest.num_classes == 10
    assert (tmp_path / "datasets" / task / "partition.png").read_bytes()[:4] == b"\x89PNG"


def test_gen_data_imports_no_tensorflow(tmp_path: Path) -> None:
    code = (
        "import sys; from fedmatch_tf import main\n"
        "arguments = '--work-type gen_data --task lc-biid-digits --dataset-path'.split()\n"
        f"code = main.main([*arguments, {str(tmp_path)!r}])\n"
        "print(code, 'tensorflow' in sys.modules)"
    )
    result = run(sys.executable, "-c", code)
    assert result.stdout.splitlines()[-1] == "0 False"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--task: expected a task with --work-type train"),
        ("--work-type gen_data", "--task: expected a task with --work-type gen_data"),
        ("--task lc-biid-c11", "for example lc-biid-c10; received 'lc-biid-c11'"),
        ("--task lc-biid-c10 --num-clients many", "--num-clients: expected a whole number, received 'many'"),
        ("--task lc-biid-c10 --num-clients -3", "--num-clients: expected a whole number greater than 0, received -3"),
        ("--task lc-biid-c10 --num-client 3", "did you mean --num-clients?"),
        ("--task lc-biid-c10 --rounds 3", "did you mean --num-rounds?"),
        ("--task lc-biid-c10 --lr", "--lr: expected one argument"),
        ("--task lc-biid-c10 --model fedsgd", "--model: expected one of fedmatch"),
        ("--task lc-biid-c10 --ray-address auto", "--ray-address: is for --backend ray, received --backend process"),
        ("--task lc-biid-c10 --gpu zero", "--gpu: expected ids, received 'zero'"),
        ("--task ls-biid-c10 --model local-sl", "never learn from labels"),
        ("--task lc-biid-c10 --work-type dance", "--work-type: invalid choice: 'dance'"),
        ("--task lc-biid-c10 extra", "unrecognized arguments: extra"),
        ("dance --task lc-biid-c10", "expected a flag or one of train, gen_data, "),
        ("evalute --run x", "received 'evalute'; did you mean evaluate?"),
        ("evaluate --work-type train --run x", "expected one kind of work, received evaluate and train"),
        ("--task lc-biid-c10 --work-type", "--work-type: expected one argument"),
        ("gen_data --task lc-biid-c10 --resume x", "--resume: is for --work-type train; received"),
    ],
)
def test_bad_flags_exit_with_2_and_one_message(arguments: str, message: str, tmp_path: Path) -> None:
    result = run_main(*arguments.split(), cwd=tmp_path)
    assert_refused(result, message)
    assert len(result.stderr.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


def test_bad_data_exits_with_2_and_leaves_nothing(small_npz: Path, tmp_path: Path) -> None:
    base = ("--work-type", "gen_data", "--task", "lc-biid-c10", *SMALL)
    assert_refused(run_main(*base, "--source", "nowhere.npz", cwd=tmp_path), "nowhere.npz: expected a file or folder")
    too_many = run_main(*base, "--source", str(small_npz), "--labels-per-class", "90", cwd=tmp_path)
    assert_refused(too_many, "4 clients x 90 labels = 360 training examples of every class")
    (tmp_path / "broken.npz").write_bytes(small_npz.read_bytes()[:5000])
    assert_refused(run_main(*base, "--source", "broken.npz", cwd=tmp_path), "broken.npz: damaged or unreadable")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.npz"]


def test_an_output_path_that_is_a_file_exits_with_2(small_npz: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    arguments = ("--work-type", "gen_data", "--task", "lc-biid-c10", "--source", str(small_npz), *SMALL)
    assert_refused(run_main(*arguments, "--dataset-path", "file", cwd=tmp_path), "file")
    assert (tmp_path / "file").read_text() == "x"


def test_other_settings_under_the_same_path_exit_with_2_unless_forced(
    small_npz: Path, tmp_path: Path, commands: CommandServer
) -> None:
    arguments = ("--work-type", "gen_data", "--task", "lc-biid-c10", "--source", str(small_npz), *SMALL)
    assert commands.run(*arguments, cwd=tmp_path).returncode == 0
    assert_refused(commands.run(*arguments, "--seed", "2", cwd=tmp_path), "seed: found 1, wanted 2", "--force")
    assert commands.run(*arguments, "--seed", "2", "--force", cwd=tmp_path).returncode == 0


def test_a_disk_that_cannot_take_the_files_exits_with_1_and_leaves_nothing(small_npz: Path, tmp_path: Path) -> None:
    script = f"ulimit -f 20; exec {sys.executable} {ROOT / 'main.py'} --work-type gen_data --task lc-biid-c10"
    script += f" --source {small_npz} {' '.join(SMALL)}"
    result = run("bash", "-c", script, cwd=tmp_path)
    assert result.returncode == 1
    assert "File too large" in result.stderr
    assert "Traceback" not in result.stderr
    assert list((tmp_path / "datasets").iterdir()) == []


def test_an_interrupt_exits_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    save_npz(tmp_path / "s.npz", *made_up_images(3000))
    command = [sys.executable, str(ROOT / "main.py"), "gen_data", "--task=lc-biid-c10", "--source=s.npz"]
    command += ["--num-clients=40", "--num-test=100", "--num-valid=100", "--quiet"]
    for number in range(10):  # on a busy machine it may be done before the signal reaches it
        folder = tmp_path / str(number)
        process = subprocess.Popen(
            [*command, "--dataset-path", str(folder)], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        while process.poll() is None and not list(folder.glob("fedmatch-*/new/u_*")):
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=240)
        if process.returncode != 0:
            break
    assert process.returncode == 130
    assert "Interrupted" in errors
    assert "Traceback" not in errors
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_workers_start_ends_as_ctrl_c_does(number: signal.Signals, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, str(ROOT / "main.py"), "--task", "lc-biid-digits", "--arch", "alexnet"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    )
    while process.poll() is None and not list(temporary.glob("fedmatch*")):
        time.sleep(0.01)
    process.send_signal(number)
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 130, errors
    assert "Interrupted." in errors
    assert "Traceback" not in errors
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_library_that_makes_an_error_of_an_interrupt_changes_nothing(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text(
        f"import os, time\ntry:\n    os.kill(os.getpid(), {int(number)})\n    time.sleep(9)\n"
        "except KeyboardInterrupt:\n    raise ImportError('half of it')\n"
    )
    done = run_main("gen_data", "--task", "lc-biid-digits", cwd=tmp_path, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr.strip()) == (130, "Interrupted.")


def test_nohup_is_heeded(tmp_path: Path) -> None:
    command = (
        f"trap '' HUP; exec {sys.executable} {ROOT / 'main.py'} --work-type gen_data --task lc-biid-digits --quiet"
    )
    process = subprocess.Popen(["bash", "-c", command], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    program = Path(f"/proc/{process.pid}/cmdline")
    while bytes(ROOT / "main.py") not in program.read_bytes().split(b"\0"):
        time.sleep(0.01)  # until it is no longer the shell, which does not ignore the signal from the start
    while process.poll() is None:
        process.send_signal(signal.SIGHUP)
        time.sleep(0.05)
    assert process.returncode == 0, process.communicate()[1]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("--lr=" + "9" * 5000, "--lr: expected a finite number"),
        ("--num-rounds=" + "9" * 4000, "--num-rounds: expected a whole number below 2^53, received a whole number of"),
        ("--task=" + "x" * 5000, "received 'xxxxx"),
        ("--model=\x1b[31m", "invalid choice"),
        ("--workers=100000", "--workers: expected a whole number from 1 to 4096, received 100000"),
        ("--threads-per-worker=5000", "--threads-per-worker: expected a whole number from 1 to 1024, received 5000"),
        ("--image-size=99999", "--image-size: expected a whole number from 8 to 1024, received 99999"),
    ],
    ids=["long number", "long count", "long task", "escape", "workers", "threads", "image size"],
)
def test_a_long_or_odd_value_is_quoted_short_and_harmless(given: str, message: str, tmp_path: Path) -> None:
    result = run_main("--task=lc-biid-digits", given, cwd=tmp_path)
    assert result.returncode == 2
    assert len(result.stderr) < 1500, len(result.stderr)
    assert "\x1b" not in result.stderr
    assert "Traceback" not in result.stderr
    if "invalid" not in message:
        assert message in result.stderr


@pytest.mark.parametrize(
    "error",
    [MemoryError("9 GB"), RuntimeError("can't start new thread"), OSError(errno.ENOMEM, "Cannot allocate memory")],
)
def test_too_little_memory_is_no_defect(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert main._failure(error) == 1
    told = capsys.readouterr().err
    assert "this machine has too little memory (" in told
    assert "--image-size" in told
    assert "Traceback" not in told


def test_own_images_in_a_folder_become_partitions(tmp_path: Path) -> None:
    from tests.data.test_sources import X, image_folder

    image_folder(tmp_path / "mine", {"cat": [*X[:30], X[0], X[0]], "dog": list(X[30:])})
    result = run_main(
        *["--work-type", "gen_data", "--task", "ls-bimb-own", "--source", "mine"],
        *["--num-clients", "3", "--labels-per-class", "4"],
        *["--num-test", "9", "--num-valid", "8"],
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    manifest = read_manifest(tmp_path / "datasets" / "ls-bimb-own")
    assert manifest.class_names == ("cat", "dog")
    assert "s_own.npy" in manifest.files


@needs_shared
def test_real_cifar10_xrays_and_fashion_mnist_become_partitions(tmp_path: Path) -> None:
    data = str(SHARED / "data")
    tasks = ["lc-biid-c10", "ls-bimb-c10", "lc-biid-covid", "ls-biid-covid"]
    if Path("/usr/share/datasets/fashion-mnist").is_dir():
        tasks += ["lc-simb-fmnist", "ls-simb-fmnist"]
    for task in tasks:
        result = run_main("--work-type", "gen_data", "--task", task, "--quiet", cwd=tmp_path, FEDMATCH_DATA=data)
        assert result.returncode == 0, result.stderr
    unlabeled = [
        record.num_examples
        for record in read_manifest(tmp_path / "datasets" / "lc-biid-c10").files.values()
        if record.role == "unlabeled"
    ]
    assert len(unlabeled) == 100
    assert set(unlabeled) <= set(range(500, 511))  # 51,000 examples, but for what doesn't divide by class


def test_a_flag_that_does_nothing_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    parse(["--task=lc-biid-digits", "--model=fedavg-uda", "--mu=1", "--lr=0.1"])
    errors = capsys.readouterr().err
    assert "note: --mu has no effect with fedavg-uda on lc-biid-digits" in errors
    assert "--lr" not in errors
    parse(["--task=lc-biid-digits", "--lr-schedule=cosine", "--lr-patience=3"])
    assert "note: --lr-patience has no effect with fedmatch on lc-biid-digits: --lr-schedule looks at no" in _errors(
        capsys
    )


def test_a_rate_at_which_psi_oscillates_is_noted_where_there_is_a_psi(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, factor in ((["--lr=0.1"], "-1"), (["--lr=0.05"], "0"), (["--lr=0.1", "--lambda-l2=7"], "-0.4")):
        parse(["--task=lc-biid-digits", *flags])
        (line,) = _errors(capsys).splitlines()
        assert f"note: every unlabelled step takes psi - sigma times 1 - 2 lambda_l2 lr = {factor}: psi" in line
    for flags in (["--lr=0.04"], ["--lr=0.1", "--no-decomposition"], ["--lr=0.1", "--model=fedavg-sl"]):
        parse(["--task=lc-biid-digits", *flags])
        assert _errors(capsys) == ""


def _errors(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err
