"""What a run knows of its partitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedmatch_tf.config import Config, make_config
from fedmatch_tf.data.manifest import note_on_skipped, read_manifest
from fedmatch_tf.data.sources import load_source
from fedmatch_tf.runs.display import progress_for
from fedmatch_tf.runs.partition_folder import (
    beside_others,
    check_complete,
    client_sizes,
    ensure_partitions,
    note_on_order,
    shares_of_test,
)
from tests.conftest import made_up_images, save_npz


def partitioned(folder: Path, task: str, **given: Any) -> Config:
    config = make_config(task, dataset_path=str(folder), **given)
    ensure_partitions(config, progress_for(True))
    return config


def test_a_clients_size_is_what_its_files_hold(tmp_path: Path) -> None:
    config = partitioned(tmp_path, "lc-bdir-digits", num_clients=4, alpha=0.3)
    held = dict.fromkeys(range(4), 0)
    for path in config.partition_folder.glob("[su]_*.npy"):
        stored = np.load(path, allow_pickle=True).item()
        held[int(path.stem.split("_")[-1])] += len(stored["x"])
    assert client_sizes(check_complete(config)) == held
    assert len(set(held.values())) > 1
    (config.partition_folder / "manifest.json").unlink()  # as the original's partitions have none
    assert client_sizes(check_complete(config)) == {}


def test_labelled_files_that_are_sorted_by_class_are_told_of(tmp_path: Path) -> None:
    config = partitioned(tmp_path, "lc-biid-digits", num_clients=3)
    assert note_on_order(check_complete(config)) == ""
    (config.partition_folder / "manifest.json").unlink()
    assert note_on_order(check_complete(config)) == "", "made by us, so shuffled"
    path = config.partition_folder / "s_digits_1.npy"
    stored = np.load(path, allow_pickle=True).item()
    order = np.argsort(np.argmax(stored["y"], axis=1), kind="stable")
    content: Any = {**stored, "x": stored["x"][order], "y": stored["y"][order]}
    np.save(path, content, allow_pickle=True)
    assert "1 labelled files, such as s_digits_1.npy, are sorted by class" in note_on_order(check_complete(config))


def test_the_manifest_and_a_note_have_the_images_that_were_left_out(tmp_path: Path) -> None:
    for number, image in enumerate(made_up_images(40, num_classes=2, size=8)[0]):
        (tmp_path / "own" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "own" / "ab"[number % 2] / f"{number:02}.png")
    (tmp_path / "own" / "a" / "00.png").write_bytes(b"no image")
    small: dict[str, Any] = {"num_clients": 2, "labels_per_class": 2, "num_test": 4, "num_valid": 4}
    config = partitioned(tmp_path / "d", "lc-biid-own", source=str(tmp_path / "own"), skip_broken=True, **small)
    found = read_manifest(config.partition_folder).source
    assert (found.num_examples, found.skipped) == (39, ("a/00.png",))
    skipped = check_complete(config).skipped
    assert note_on_skipped(skipped) == "1 images that can't be read are left out: a/00.png"
    digits = partitioned(tmp_path / "d", "lc-biid-digits", num_clients=3)
    assert note_on_skipped(check_complete(digits).skipped) == ""


def test_the_classes_shares_of_the_test_data(tmp_path: Path) -> None:
    config = partitioned(tmp_path, "lc-biid-digits", num_clients=3)
    stored = np.load(config.partition_folder / "test_digits.npy", allow_pickle=True).item()
    counts = np.argmax(stored["y"], axis=1).tolist()
    assert shares_of_test(check_complete(config)) == {
        str(label): counts.count(label) / len(counts) for label in range(10)
    }


def test_no_two_runs_share_a_folder_unless_seed_settings_and_images_are_the_same(tmp_path: Path) -> None:
    x, y = made_up_images(100, num_classes=4, size=8)
    sources = [save_npz(tmp_path / "a.npz", x, y), save_npz(tmp_path / "b.npz", 255 - x, y)]
    small = {"num_clients": 2, "labels_per_class": 2, "num_test": 10, "num_valid": 10, "image_size": 32}
    folders: dict[Path, tuple[int, Path]] = {}
    for seed, source in [(1, 0), (2, 1), (2, 0), (1, 1), (2, 1), (1, 0)]:
        wanted = make_config(
            "lc-biid-own", dataset_path=str(tmp_path / "d"), seed=seed, source=str(sources[source]), **small
        )
        config, note, read = beside_others(wanted, progress_for(True))
        ensure_partitions(config, progress_for(True), read)
        assert (note == "") == ((seed, source) == (1, 0)), "only what is not in the usual folder is told"
        assert folders.setdefault(config.partition_folder, (seed, sources[source])) == (seed, sources[source])
        made = read_manifest(config.partition_folder)
        assert (made.spec.seed, made.source.checksum) == (seed, load_source("own", str(sources[source])).checksum)
    assert len(folders) == 4
