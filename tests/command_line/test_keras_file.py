"""Training a network that a user gives as a Keras file, on vectors, with a frozen part: from start to end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import fedmatch_tf as fm
from tests.command_server import CommandServer
from tests.conftest import assert_refused, made_up_images, save_npz

SMALL = "--num-clients 3 --num-test 30 --num-valid 20 --labels-per-class 4 --threads-per-worker 1 --quiet"
FLAGS = f"--task lc-biid-own --source points.npz --arch mlp.keras --lr 0.01 --num-epochs-client 10 {SMALL}".split()
FROZEN, TRAINED = 3 * 8 + 8, 8 * 2 + 2  # weights of the first layer, and of the second


def points(count: int = 150) -> tuple[np.ndarray, np.ndarray]:
    """Two clusters in three dimensions."""
    y = np.arange(count) % 2
    return np.random.default_rng(0).normal(0, 1, (count, 3)) + np.where(y == 1, 2.0, -2.0)[:, np.newaxis], y


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points, and an untrained network whose first layer is frozen."""
    path = tmp_path_factory.mktemp("vectors")
    save_npz(path / "points.npz", *points(), num_test=10)
    tf.keras.utils.set_random_seed(4)
    first = tf.keras.layers.Dense(8, activation="relu", trainable=False)
    model = tf.keras.Sequential([tf.keras.Input((3,)), first, tf.keras.layers.Dense(2, activation="softmax")])
    signs = np.hstack([np.eye(3), -np.eye(3), np.zeros((3, 2))])  # of the coordinates, for the head to look at
    first.set_weights([signs, np.zeros(8)])
    model.save(path / "mlp.keras")
    return path


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def test_a_head_on_a_frozen_layer_learns_and_the_run_needs_the_file_no_more(
    folder: Path, commands: CommandServer, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    flags = [*FLAGS, "--augment", "none", "--num-rounds", "2", "--workers", "1"]
    first = commands.run(*flags, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    given = tf.keras.models.load_model(tmp_path / "mlp.keras").get_weights()
    for name in ("mlp.keras", "points.npz"):
        (tmp_path / name).unlink()
    run = tmp_path / first.stdout.splitlines()[-1]
    result = commands.run("--resume", str(run), "--num-rounds", "4", "--quiet", cwd=tmp_path)
    assert result.returncode == 0, result.stderr

    rounds, model = lines(run), fm.load_model(run)
    assert rounds[-1]["test_acc"] > 0.9
    # First visit: two sets of kernels, one of biases, and once what is frozen; later at most what is trained.
    assert rounds[0]["s2c"]["sigma"] == pytest.approx(1 + FROZEN / TRAINED)
    assert rounds[0]["s2c"]["psi"] == pytest.approx(16 / TRAINED)
    assert rounds[0]["s2c"]["bytes"] == 4 * (TRAINED + 16 + FROZEN)
    assert all(line["s2c"]["sigma"] <= 1 for line in rounds[1:])
    for before, after in zip(given[:2], model.get_weights()[:2]):
        np.testing.assert_array_equal(before, after)
    assert not np.allclose(given[2], model.get_weights()[2])
    with np.load(tmp_path / "outputs" / "check_pts" / run.name / "init.npz") as start:
        np.testing.assert_allclose(1.2 * start["sigma_0"], given[2], rtol=1e-6)  # with psi, a fifth of it, as given

    x = points()[0].astype(np.float32)
    written = fm.load_model(tmp_path / "outputs" / "check_pts" / run.name / "model.keras")
    np.testing.assert_array_equal(written.predict(x, verbose=0), model.predict(x, verbose=0))
    save_npz(tmp_path / "more.npz", *points(40))
    evaluated = commands.run("--work-type", "evaluate", "--run", str(run), "--source", "more.npz", cwd=tmp_path)
    assert evaluated.returncode == 0, evaluated.stderr
    found = json.loads((tmp_path / evaluated.stdout.splitlines()[-1] / "evaluation.json").read_text())
    assert (found["images"], found["accuracy"] > 0.9) == (40, True)
    refused = commands.run("--work-type", "predict", "--run", str(run), "--images", "more.npz", cwd=tmp_path)
    assert_refused(refused, "--images: the run is of vectors")


def test_a_plain_learner_sends_what_is_frozen_once(tmp_path: Path) -> None:
    """Images of 8x8, a frozen convolution; every client takes part in both rounds."""
    save_npz(tmp_path / "images.npz", *made_up_images(150, num_classes=3, size=8))
    image = tf.keras.Input((8, 8, 3))
    conv = tf.keras.layers.Conv2D(2, 3, trainable=False)
    x = tf.keras.layers.GlobalAveragePooling2D()(conv(image))
    tf.keras.Model(image, tf.keras.layers.Dense(3)(x)).save(tmp_path / "head.keras")
    sizes: dict[str, Any] = {"num_clients": 2, "num_test": 20, "num_valid": 20, "labels_per_class": 4, "num_rounds": 2}
    result = fm.train(
        "lc-biid-own",
        model="fedavg-sl",
        source=tmp_path / "images.npz",
        arch=tmp_path / "head.keras",
        image_size=8,
        workers=1,
        dataset_path=tmp_path / "datasets",
        output_path=tmp_path / "outputs",
        **sizes,
    )
    frozen, trained = 3 * 3 * 3 * 2 + 2, 2 * 3 + 3
    assert [line["s2c"]["sum"] for line in result.rounds] == [pytest.approx(1 + frozen / trained), 1]
    assert [line["s2c"]["bytes"] for line in result.rounds] == [4 * (trained + frozen), 4 * trained]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("", "--augment: expected none, as the data are vectors; received randaugment"),
        ("--augment none --image-size 16", "--image-size: expected 32, as the data are vectors; received 16"),
        ("--augment none --arch resnet9", "--arch: resnet9 is for images, the data are vectors; expected mlp or"),
        ("--augment none --arch broken.keras", "broken.keras: expected a file that Keras' model.save wrote"),
        ("--augment none --arch absent.keras", "--arch: expected a Keras model's file at"),
        ("--augment none --arch other.keras", r"it takes [4]; expected [3], as the data are"),
        ("--augment none --arch mlp.keras --task lc-biid-digits", "expected the images of 8x8 digits"),
    ],
)
def test_what_has_no_meaning_for_vectors_is_one_line(
    more: str, message: str, folder: Path, commands: CommandServer
) -> None:
    (folder / "broken.keras").write_bytes(b"no model")
    tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(2)]).save(folder / "other.keras")
    result = commands.run(*FLAGS, "--backend=inline", *more.split(), cwd=folder)
    assert_refused(result, message)
    assert message in result.stderr.splitlines()[-1]
    assert not (folder / "outputs").exists()
