"""Partitions on disk: whole or not there, described by their manifest, never overwritten by accident."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmatch_tf.base import temporary
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.generator import difference, generate
from fedmatch_tf.data.loader import open_partitions
from fedmatch_tf.data.manifest import read_manifest
from fedmatch_tf.data.sources import load_source
from tests.conftest import ROOT, made_up_images, save_npz
from tests.data import test_partition

SPEC = replace(test_partition.SPEC, num_clients=4, num_test=40, num_valid=30)

GEN_DATA = (sys.executable, str(ROOT / "main.py"), "--work-type", "gen_data", "--quiet")


def contents(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.npy"))}


def test_files_are_named_and_stored_as_the_original_does(small_npz: Path, tmp_path: Path) -> None:
    generated = generate(SPEC, load_source("c10", str(small_npz)), tmp_path)
    assert generated.folder == tmp_path / "lc-biid-c10"
    names = {path.name for path in generated.folder.iterdir()}
    clients = {f"{kind}_cifar_10_{c}.npy" for kind in "su" for c in range(4)}
    assert names == clients | {"test_cifar_10.npy", "valid_cifar_10.npy", "manifest.json", "partition.png"}
    stored = np.load(generated.folder / "u_cifar_10_2.npy", allow_pickle=True).item()
    assert stored["x"].dtype == np.uint8
    assert stored["x"].shape[1:] == (32, 32, 3)
    assert stored["y"].dtype == np.float32
    assert stored["name"] == "u_cifar_10_2"
    assert not list(tmp_path.glob("fedmatch-*")), "the working folder was left behind"


def test_the_manifest_says_how_the_files_were_made_and_what_they_hold(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(replace(SPEC, kind="bimb", seed=7), source, tmp_path).folder
    content = json.loads((folder / "manifest.json").read_text())
    assert (content["version"], content["task"], content["seed"]) == (1, "lc-bimb-c10", 7)
    assert content["settings"] == {
        "scenario": "lc",
        "kind": "bimb",
        "dataset": "c10",
        "num_clients": 4,
        "labels_per_class": 2,
        "num_test": 40,
        "num_valid": 30,
        "num_steps": 1,
        "image_size": 32,
    }
    assert content["source"]["checksum"] == source.checksum
    assert len(content["files"]) == 10
    total = content["unused"]
    for name, record in content["files"].items():
        stored = np.load(folder / name, allow_pickle=True).item()
        assert record["sha256"] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
        assert record["class_counts"] == stored["y"].sum(axis=0).astype(int).tolist()
        assert record["num_examples"] == len(stored["x"])
        total += len(stored["x"])
    assert total == 600


def test_streaming_files_carry_client_and_step(small_npz: Path, tmp_path: Path) -> None:
    spec = replace(SPEC, kind="simb", dataset="fmnist", num_clients=2, num_steps=3)
    folder = generate(spec, load_source("fmnist", str(small_npz)), tmp_path).folder
    streamed = {path.name for path in folder.glob("u_*")}
    assert streamed == {f"u_fashion_mnist_{c}_{t}.npy" for c in range(2) for t in range(3)}


def test_the_server_holds_the_labels_in_labels_at_server(small_npz: Path, tmp_path: Path) -> None:
    folder = generate(replace(SPEC, scenario="ls"), load_source("c10", str(small_npz)), tmp_path).folder
    assert [path.name for path in folder.glob("s_*")] == ["s_cifar_10.npy"]


def test_the_same_request_again_verifies_and_writes_nothing(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again = generate(SPEC, source, tmp_path)
    assert not again.written
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    first = contents(generate(SPEC, source, tmp_path / "a").folder)
    assert contents(generate(SPEC, source, tmp_path / "b").folder) == first
    assert contents(generate(replace(SPEC, seed=2), source, tmp_path / "c").folder) != first
    manifests = [(tmp_path / side / "lc-biid-c10" / "manifest.json").read_bytes() for side in "ab"]
    assert manifests[0] == manifests[1]


def test_other_settings_are_refused_with_the_difference_unless_forced(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    before = contents(folder)
    with pytest.raises(DataError) as error:
        generate(replace(SPEC, seed=2, num_clients=5), source, tmp_path)
    assert "seed: found 1, wanted 2" in str(error.value)
    assert "num_clients: found 4, wanted 5" in str(error.value)
    assert contents(folder) == before
    assert generate(replace(SPEC, num_clients=5), source, tmp_path, force=True).written
    assert (folder / "u_cifar_10_4.npy").exists()
    assert read_manifest(folder).spec.num_clients == 5
    assert not list(tmp_path.glob(".*"))


def test_another_source_under_the_same_settings_is_refused(small_npz: Path, tmp_path: Path) -> None:
    generate(SPEC, load_source("c10", str(small_npz)), tmp_path)
    x, y = made_up_images(600)
    other = load_source("c10", str(save_npz(tmp_path / "other.npz", 255 - x, y)))
    with pytest.raises(DataError, match="source: found npz"):
        generate(SPEC, other, tmp_path)
    assert len(difference(tmp_path / "lc-biid-c10", SPEC, other)) == 1


@pytest.mark.parametrize("damage", ["altered", "missing", "manifest"])
def test_damage_is_found_when_partitions_are_verified(damage: str, small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    path = folder / ("manifest.json" if damage == "manifest" else "u_cifar_10_1.npy")
    if damage == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    with pytest.raises(DataError, match=path.name):
        generate(SPEC, source, tmp_path)
    generate(SPEC, source, tmp_path, force=True)
    assert not generate(SPEC, source, tmp_path).written


def test_force_never_deletes_what_is_not_a_partition_file(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    (folder / "thesis.txt").write_text("years of work")
    with pytest.raises(DataError, match=r"found thesis\.txt as well"):
        generate(replace(SPEC, seed=2), source, tmp_path, force=True)
    assert (folder / "thesis.txt").exists()


def test_a_folder_without_manifest_is_left_alone(small_npz: Path, tmp_path: Path) -> None:
    (tmp_path / "lc-biid-c10").mkdir()
    (tmp_path / "lc-biid-c10" / "u_cifar_10_0.npy").write_bytes(b"the original's")
    with pytest.raises(DataError, match="without manifest"):
        generate(SPEC, load_source("c10", str(small_npz)), tmp_path)


def test_an_impossible_request_writes_nothing(small_npz: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="600 examples - 400 test - 400 validation = -200"):
        generate(replace(SPEC, num_test=400, num_valid=400), load_source("c10", str(small_npz)), tmp_path / "d")
    assert not (tmp_path / "d").exists()


def test_a_failure_while_writing_leaves_the_old_partitions_and_no_trace(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    before = contents(folder)

    def full_disk(items, total, what):  # type: ignore[no-untyped-def]
        for done, item in enumerate(items):
            if done == 3:
                raise OSError(28, "No space left on device")
            yield item

    with pytest.raises(OSError, match="No space left"):
        generate(replace(SPEC, seed=2), source, tmp_path, force=True, progress=full_disk)
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["lc-biid-c10"]


def test_gen_data_killed_at_any_moment_leaves_no_folder_that_looks_complete(tmp_path: Path) -> None:
    x, y = made_up_images(3000)
    source = save_npz(tmp_path / "s.npz", x, y)
    command = [
        *GEN_DATA,
        "--task",
        "lc-bimb-c10",
        "--source",
        str(source),
        "--dataset-path",
        str(tmp_path / "d"),
        "--num-clients",
        "40",
        "--num-test",
        "100",
        "--num-valid",
        "100",
    ]
    folder = tmp_path / "d" / "lc-bimb-c10"
    killed_while_writing = 0
    for attempt in range(6):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not list((tmp_path / "d").glob("fedmatch-*/new/u_*")):
            time.sleep(0.002)
        time.sleep(0.03 * attempt)
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        process.wait()
        if not folder.exists():
            killed_while_writing += 1
            continue
        generate_again = subprocess.run(command, capture_output=True, text=True, check=False)
        assert generate_again.returncode == 0, generate_again.stderr
        break
    assert killed_while_writing > 0
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0
    assert open_partitions(tmp_path / "d", "lc-bimb-c10").num_clients == 40
    assert [path.name for path in (tmp_path / "d").iterdir()] == ["lc-bimb-c10"], "abandoned folders are cleared away"


def test_two_processes_making_the_same_partitions_both_succeed(small_npz: Path, tmp_path: Path) -> None:
    command = [
        *GEN_DATA,
        "--task",
        "ls-biid-c10",
        "--source",
        str(small_npz),
        "--dataset-path",
        str(tmp_path),
        "--num-clients",
        "5",
        "--num-test",
        "50",
        "--num-valid",
        "50",
        "--labels-per-class",
        "5",
    ]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=240)
        assert process.returncode == 0, errors
    assert [path.name for path in tmp_path.iterdir()] == ["ls-biid-c10"]


@pytest.mark.parametrize("name", ["my_cifar_10_results.npy", "u_cifar_10_x.npy", "notes.npy"])
def test_force_spares_files_that_only_look_like_ours(name: str, small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    (folder / name).write_text("years of work")
    with pytest.raises(DataError, match=f"found {name} as well"):
        generate(replace(SPEC, seed=2), source, tmp_path, force=True)
    (folder / name).unlink()
    (folder / "u_cifar_10_77.npy").mkdir()
    with pytest.raises(DataError, match=r"found u_cifar_10_77\.npy as well"):
        generate(replace(SPEC, seed=2), source, tmp_path, force=True)


def test_a_link_to_partitions_is_not_replaced(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    generate(SPEC, source, tmp_path / "real")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "lc-biid-c10").symlink_to(tmp_path / "real" / "lc-biid-c10")
    assert not generate(SPEC, source, tmp_path / "links").written
    with pytest.raises(DataError, match="found a link"):
        generate(replace(SPEC, seed=2), source, tmp_path / "links", force=True)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"num_examples": 40', '"num_examples": 41'),
        ('"class_names": [', '"class_names": ["zebra",'),
        ('"image_shape": [\n  32', '"image_shape": [\n  31'),
        ('"unused": ', '"unused": 1'),
        ('"role": "valid"', '"role": "unlabeled"'),
    ],
)
def test_an_edited_manifest_is_found_out(old: str, new: str, small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    path = generate(SPEC, source, tmp_path).folder / "manifest.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match="does not describe these settings"):
        generate(SPEC, source, tmp_path)


def test_files_that_vanish_together_with_their_entry_are_missed(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    content = json.loads((folder / "manifest.json").read_text())
    del content["files"]["u_cifar_10_1.npy"]
    (folder / "manifest.json").write_text(json.dumps(content))
    (folder / "u_cifar_10_1.npy").unlink()
    with pytest.raises(DataError, match="does not describe these settings"):
        generate(SPEC, source, tmp_path)


def test_a_missing_picture_is_drawn_again_and_shows_every_class(small_npz: Path, tmp_path: Path) -> None:
    from PIL import Image

    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    (folder / "partition.png").unlink()
    assert not generate(SPEC, source, tmp_path).written
    pixels = np.asarray(Image.open(folder / "partition.png").convert("RGB")).reshape(-1, 3)
    colors, counts = np.unique(pixels, axis=0, return_counts=True)
    large = colors[counts > 2000]
    assert len(large) >= 11  # ten classes and the white of the paper


def test_an_interrupt_between_the_renames_puts_the_old_partitions_back(
    small_npz: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    before, rename = contents(folder), Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if self.name == "new":
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        generate(replace(SPEC, seed=2), source, tmp_path, force=True)
    monkeypatch.undo()
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["lc-biid-c10"]


def test_what_a_killed_process_had_set_aside_comes_back(small_npz: Path, tmp_path: Path) -> None:
    source = load_source("c10", str(small_npz))
    folder = generate(SPEC, source, tmp_path).folder
    os.close(temporary.hold(tmp_path / "fedmatch-x"))  # as the system does when a process ends
    folder.rename(tmp_path / "fedmatch-x" / folder.name)
    generate(replace(SPEC, kind="bimb"), source, tmp_path)  # any later gen_data under the same path
    assert not generate(SPEC, source, tmp_path).written
