"""A trained model in use: loaded with and without this project, evaluated, predicting, exported."""

from __future__ import annotations

import csv
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import fedmatch_tf as fm
from fedmatch_tf.base.errors import DataError
from fedmatch_tf.data.files import decode
from fedmatch_tf.results.evaluation import calibration, measure
from fedmatch_tf.results.export import export
from tests.command_server import CommandServer
from tests.conftest import assert_refused, save_npz

CLASSES, SIZE = ("cat", "dog", "owl"), 20
TINY = (
    "--task lc-biid-own --source own --arch alexnet --image-size 20 --num-clients 3 --num-test 30 --num-valid 20 "
    "--labels-per-class 4 --backend inline --quiet"
)


def pictures(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Images that can be told apart: each class has its own pattern, with noise."""
    patterns = np.random.default_rng(9).integers(0, 256, (3, SIZE, SIZE, 3))
    y = np.arange(count) % 3
    noise = np.random.default_rng(seed).normal(0, 20, (count, SIZE, SIZE, 3))
    return np.clip(patterns[y] + noise, 0, 255).astype(np.uint8), y


class Made(NamedTuple):
    cwd: Path
    run: Path
    commands: CommandServer

    def __call__(self, work_type: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.commands.run("--work-type", work_type, "--run", str(self.run), *arguments, cwd=self.cwd)

    @property
    def check_pts(self) -> Path:
        return self.cwd / "outputs" / "check_pts" / self.run.name

    def last(self) -> dict[str, Any]:
        line: dict[str, Any] = json.loads((self.run / "rounds.jsonl").read_text().splitlines()[-1])
        return line

    def test_set(self) -> tuple[np.ndarray, np.ndarray]:
        examples = decode((self.cwd / "datasets" / "lc-biid-own" / "test_own.npy").read_bytes())
        return examples.x.astype(np.float32) / 255, examples.y.argmax(axis=1)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, commands: CommandServer) -> Made:
    """A FedMatch run on a folder of three classes, which keeps its best model."""
    cwd = tmp_path_factory.mktemp("trained")
    x, y = pictures(150)
    for number, (image, label) in enumerate(zip(x, y)):
        (cwd / "own" / CLASSES[label]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(cwd / "own" / CLASSES[label] / f"{number:03}.png")
    flags = "--num-rounds 5 --lr 0.0005 --num-epochs-client 3 --l1-thres 0.003 --keep-best"
    result = commands.run(*TINY.split(), *flags.split(), cwd=cwd)
    assert result.returncode == 0, result.stderr
    assert "of the lowest validation loss" in result.stdout
    return Made(cwd, cwd / result.stdout.splitlines()[-1], commands)


ALONE = """
import json, sys
import numpy as np
import tensorflow as tf
sys.modules["fedmatch_tf"] = sys.modules["data"] = None  # whatever is installed: they can't be imported
x, y = np.load("x.npy"), np.load("y.npy")
for path in sys.argv[1:]:
    if path.endswith((".keras", ".h5")):
        probs = tf.keras.models.load_model(path).predict(x, verbose=0)
    else:
        saved = tf.saved_model.load(path)
        probs = saved.serve(x).numpy()
    print(json.dumps([float(np.mean(probs.argmax(axis=1) == y)), probs.shape, float(probs.sum(axis=1).max())]))
"""


def test_the_models_files_open_without_this_project_and_reach_the_recorded_accuracy(made: Made, tmp_path: Path) -> None:
    exported = [tmp_path / "exported.keras", tmp_path / "exported.h5", tmp_path / "saved"]
    for to in exported:
        result = made("export", "--to", str(to))
        assert (result.returncode, result.stdout) == (0, f"{to}\n"), result.stderr
    x, y = made.test_set()
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    (tmp_path / "alone.py").write_text(ALONE)
    paths = [made.check_pts / "model.keras", *exported]
    alone = subprocess.run(
        [sys.executable, "alone.py", *map(str, paths)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert alone.returncode == 0, alone.stderr
    found = [json.loads(line) for line in alone.stdout.splitlines()]
    assert [accuracy for accuracy, _, _ in found] == [made.last()["test_acc"]] * 4
    assert made.last()["test_acc"] > 0.5, "so that it says something"
    assert all(shape == [30, 3] and total == pytest.approx(1.0, abs=1e-5) for _, shape, total in found)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    for path in paths:
        probs = fm.load_model(path).predict(x, verbose=0)
        np.testing.assert_allclose(probs, fm.load_model(made.run).predict(x, verbose=0), atol=1e-6)
        with pytest.raises(fm.ConfigError, match="expected a run for parts, decomposed or best"):
            fm.load_model(path, parts="sigma")


def test_a_folder_that_cannot_be_written_is_an_error_of_the_system_and_leaves_nothing(
    made: Made, tmp_path: Path
) -> None:
    """Files of more than 100 kB can't be written, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match=r"could not write the model|File too large"):
            export(made.run, tmp_path / "saved")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_links_where_something_is_written_meanwhile_are_not_followed(made: Made, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("unchanged")
    (tmp_path / ".saved.partial").symlink_to(tmp_path / "precious")
    (tmp_path / ".model.h5.partial").symlink_to(tmp_path / "precious" / "file")
    export(made.run, tmp_path / "saved")
    with pytest.raises(OSError, match="symbolic links"):
        export(made.run, tmp_path / "model.h5")
    assert [path.name for path in (tmp_path / "precious").iterdir()] == ["file"]
    assert (tmp_path / "precious" / "file").read_text() == "unchanged"


@pytest.mark.parametrize("name", [b"sch\xf6n", b"sch\xf6n.keras", b"sch\xf6n.h5"])
def test_names_need_not_be_utf_8(name: bytes, made: Made, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(name)
    assert export(made.run, path) == path
    assert path.exists()
    assert len(list(tmp_path.iterdir())) == 1


def test_the_best_model_is_that_of_the_lowest_validation_loss(made: Made) -> None:
    lines = [json.loads(line) for line in (made.run / "rounds.jsonl").read_text().splitlines()]
    best = min(lines, key=lambda line: line["global_valid_loss"])
    x, y = made.test_set()
    model = tf.keras.models.load_model(made.check_pts / "best.keras")
    assert np.mean(model.predict(x, verbose=0).argmax(axis=1) == y) == best["test_acc"]
    examples = decode((made.cwd / "datasets" / "lc-biid-own" / "valid_own.npy").read_bytes())
    probs = model.predict(examples.x.astype(np.float32) / 255, verbose=0)
    loaded = fm.load_model(made.run, best=True)
    for one, other in zip(loaded.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, other)
    assert fm.load_run(made.run).best == best
    loss = -np.log(probs[examples.y == 1]).mean()
    assert loss == pytest.approx(best["global_valid_loss"], rel=1e-4)


def state(made: Made) -> tuple[np.ndarray, np.ndarray]:
    with np.load(made.check_pts / "state.npz") as file:
        return file["sigma"], file["psi"]


def test_a_loaded_model_has_the_parts_that_were_asked_for(made: Made) -> None:
    sigma, psi = state(made)
    small = np.abs(psi) <= 0.003
    assert 0 < small.mean() < 1, "so that the threshold has something to do"

    def weights(**how: Any) -> np.ndarray:
        return np.concatenate([weight.ravel() for weight in fm.load_model(made.run, **how).get_weights()])

    np.testing.assert_array_equal(weights(), sigma + np.where(small, 0, psi))
    np.testing.assert_array_equal(weights(parts="sigma"), sigma)
    np.testing.assert_array_equal(weights(parts="psi"), np.where(small, 0, psi))
    decomposed = fm.load_model(made.run, decomposed=True)
    np.testing.assert_array_equal(np.concatenate([layer.sigma.numpy().ravel() for layer in layers(decomposed)]), sigma)
    np.testing.assert_array_equal(np.concatenate([layer.psi.numpy().ravel() for layer in layers(decomposed)]), psi)
    assert len(decomposed.trainable_weights) == 2 * len(layers(decomposed))
    x, _ = made.test_set()
    plain = fm.load_model(made.run)
    np.testing.assert_allclose(decomposed.predict(x, verbose=0), plain.predict(x, verbose=0), atol=1e-6)
    with pytest.raises(fm.ConfigError, match="expected theta, sigma or psi, received 'all'"):
        fm.load_model(made.run, parts="all")  # type: ignore[arg-type]
    with pytest.raises(fm.ConfigError, match="both parts"):
        fm.load_model(made.run, parts="psi", decomposed=True)


def layers(model: Any) -> list[Any]:
    return [layer for layer in model.layers if hasattr(layer, "psi")]


def test_models_without_psi_or_without_a_global_model_say_so(made: Made) -> None:
    flags = "--num-rounds 1 --model"
    for model, message in (("fedavg-sl", "has one set of parameters"), ("local-sl", "its clients share nothing")):
        result = made.commands.run(*TINY.split(), *flags.split(), model, cwd=made.cwd)
        run = made.cwd / result.stdout.splitlines()[-1]
        with pytest.raises(fm.ConfigError, match=message):
            fm.load_model(run, parts="sigma")
        if model == "fedavg-sl":
            assert fm.load_model(run).count_params() > 0
            with pytest.raises(fm.ConfigError, match=message):
                fm.load_model(run, decomposed=True)
        check_pts = made.cwd / "outputs" / "check_pts" / run.name
        assert (check_pts / "model.keras").exists() == (model == "fedavg-sl")
    refused = made.commands.run(*TINY.split(), *flags.split(), "local-sl", "--keep-best", cwd=made.cwd)
    assert_refused(refused, "--keep-best: has no meaning here: the clients share nothing")


def test_an_evaluation_agrees_with_the_record_and_with_scikit_learn(made: Made) -> None:
    from sklearn.metrics import f1_score, log_loss

    result = made("evaluate", "--quiet")
    assert result.returncode == 0, result.stderr
    folder = made.cwd / result.stdout.splitlines()[-1]
    found = json.loads((folder / "evaluation.json").read_text())
    x, y = made.test_set()
    probs = fm.load_model(made.run).predict(x, verbose=0)
    assert found["accuracy"] == made.last()["test_acc"]
    assert found["loss"] == pytest.approx(made.last()["test_loss"], rel=1e-5)
    assert found["loss"] == pytest.approx(log_loss(y, probs), rel=1e-4)
    f1 = f1_score(y, probs.argmax(axis=1), average=None, labels=[0, 1, 2])
    assert [found["per_class"][name]["f1"] for name in CLASSES] == pytest.approx(f1)
    assert np.sum(found["confusion"]) == 30
    assert np.trace(found["confusion"]) / 30 == found["accuracy"]
    assert found["confusion"] == json.loads((made.run / "confusion.json").read_text())["matrix"]
    page = (folder / "evaluation.html").read_text()
    assert "dog" in page
    assert {path.name for path in (folder / "figures").iterdir()} == {
        f"{name}.{ending}" for name in ("confusion", "reliability") for ending in ("png", "svg")
    }


def test_images_of_ones_own_are_evaluated_by_the_names_of_their_folders(made: Made, tmp_path: Path) -> None:
    x, y = pictures(12, seed=5)
    for number, (image, label) in enumerate(zip(x, y)):
        if label:  # no cats: their class has no image
            (tmp_path / "new" / CLASSES[label]).mkdir(parents=True, exist_ok=True)
            Image.fromarray(image).save(tmp_path / "new" / CLASSES[label] / f"{number}.png")
    result = made("evaluate", "--source", str(tmp_path / "new"), "--output-path", str(tmp_path), "--quiet")
    assert result.returncode == 0, result.stderr
    found = json.loads((Path(result.stdout.splitlines()[-1]) / "evaluation.json").read_text())
    assert [found["per_class"][name]["images"] for name in CLASSES] == [0, 4, 4]
    probs = fm.load_model(made.run).predict(x[y > 0].astype(np.float32) / 255, verbose=0)
    assert found["accuracy"] == np.mean(probs.argmax(axis=1) == y[y > 0])
    (tmp_path / "new" / "dog").rename(tmp_path / "new" / "fox")
    assert_refused(made("evaluate", "--source", str(tmp_path / "new")), "cat, dog, owl; found fox")
    save_npz(tmp_path / "four.npz", x, np.arange(12) % 4)
    assert_refused(made("evaluate", "--source", str(tmp_path / "four.npz")), "expected labels 0 to 2, received 0 to 3")


def test_calibration_on_numbers_worked_out_by_hand() -> None:
    confidence = np.array([0.55, 0.65, 0.95, 1.0])
    found = calibration(confidence, np.array([True, False, True, True]), bins=2)
    assert found.counts.tolist() == [0, 4]
    assert found.accuracy[1] == 0.75
    assert found.error == pytest.approx(abs(0.7875 - 0.75))
    found = calibration(np.array([0.2, 0.5, 0.9]), np.array([False, True, True]), bins=2)  # 0.5 is in the first bin
    assert found.counts.tolist() == [2, 1]
    assert found.error == pytest.approx((2 * abs(0.35 - 0.5) + 0.1) / 3)


def test_measures_on_three_images() -> None:
    probs = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    found = measure(np.array([0, 1, 2]), probs, CLASSES)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.loss == pytest.approx(-(np.log(0.7) + np.log(0.3) + np.log(0.7)) / 3)
    assert found.precision.tolist() == [0.5, 0, 1]
    assert found.recall.tolist() == [1, 0, 1]
    assert found.confusion.tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 1]]


def test_images_of_any_size_are_predicted_and_unreadable_ones_are_named(made: Made, tmp_path: Path) -> None:
    x, _ = pictures(6, seed=7)
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for number, image in enumerate(x):
        folder = tmp_path / "deep" / "er" if number % 2 else tmp_path / "deep"
        Image.fromarray(image).resize((40 + number, 33)).save(folder / f"{number}, an image.PNG")
    (tmp_path / "deep" / "broken.jpg").write_bytes(b"no image")
    (tmp_path / "deep" / "notes.txt").write_text("not looked at")
    Image.fromarray(x[0]).save(tmp_path / "named.tif")
    arguments = ("--images", str(tmp_path / "deep"), str(tmp_path / "named.tif"), "--output", str(tmp_path / "p.csv"))
    result = made("predict", *arguments, "--quiet")
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == ["7 images predicted, 1 skipped", str(tmp_path / "p.csv")]
    assert "broken.jpg" in result.stderr
    assert "notes.txt" not in result.stderr
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["file", "class", "probability", "p_cat", "p_dog", "p_owl"]
    by_file = {Path(row["file"]).name: row for row in rows}
    probs = fm.load_model(made.run).predict(x[:1].astype(np.float32) / 255, verbose=0)[0]
    row = by_file["named.tif"]
    assert [float(row[f"p_{name}"]) for name in CLASSES] == pytest.approx(probs.tolist(), abs=1e-5)
    assert row["class"] == CLASSES[probs.argmax()]
    assert float(row["probability"]) == pytest.approx(probs.max(), abs=1e-5)
    assert set(by_file) == {"named.tif", *(f"{number}, an image.PNG" for number in range(6))}


@pytest.mark.parametrize(
    ("work_type", "arguments", "message"),
    [
        ("predict", ("--images", "absent"), "found nothing at absent"),
        ("predict", ("--images", "outputs/check_pts"), "expected images"),
        ("predict", ("--images", "datasets/lc-biid-own/manifest.json"), "none of 1 files is one"),
        ("predict", ("--images", "own", "--output", "datasets"), "--output: expected a file to write"),
        ("predict", (), "--images: expected one with --work-type predict"),
        ("export", ("--to", "model.onnx"), "expected a path that ends in .keras or .h5, or a folder"),
        ("export", ("--to", "own"), "expected a new or empty folder"),
        ("export", (), "--to: expected one with --work-type export"),
        ("export", ("--to", "m.keras", "--images", "own"), "--images: is for --work-type predict"),
        ("evaluate", ("--lr", "0.1"), "--lr: has no meaning with --work-type evaluate"),
        ("evaluate", ("--source", "absent"), "found nothing there"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_is_written(
    work_type: str, arguments: tuple[str, ...], message: str, made: Made
) -> None:
    before = {path for path in made.cwd.rglob("*") if "evaluations" not in str(path)}
    assert_refused(made(work_type, *arguments, "--quiet"), message)
    assert {path for path in made.cwd.rglob("*") if "evaluations" not in str(path)} == before


def test_a_folder_that_is_no_run_is_refused(made: Made, tmp_path: Path) -> None:
    result = made.commands.run("--work-type", "evaluate", "--run", str(tmp_path), cwd=tmp_path)
    assert_refused(result, "--run: expected the folder of a run")
    assert_refused(made.commands.run("--work-type", "evaluate", cwd=tmp_path), "--run: expected one")
    assert_refused(made.commands.run("--task", "lc-biid-c10", "--run", "x", cwd=tmp_path), "--run: is for --work-type")


def test_other_partitions_than_the_runs_are_refused_and_moved_ones_found(made: Made, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(made.cwd / "datasets", moved)
    fine = made("evaluate", "--dataset-path", str(moved), "--output-path", str(tmp_path), "--quiet")
    assert fine.returncode == 0, fine.stderr
    manifest = moved / "lc-biid-own" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": 1', '"seed": 2'))
    refused = made("evaluate", "--dataset-path", str(moved), "--output-path", str(tmp_path), "--quiet")
    assert_refused(refused, "expected the partitions that the run began with")


def test_fashion_mnist_pictures_get_the_frame_that_training_gave_them(tmp_path: Path) -> None:
    from fedmatch_tf.data.sources import read_image_like, read_labelled

    grey = np.full((28, 28), 200, np.uint8)
    Image.fromarray(grey).save(tmp_path / "shirt.png")
    framed = read_image_like("fmnist", tmp_path / "shirt.png", 32)
    assert framed.shape == (32, 32, 3)
    assert (framed[2:30, 2:30] == 200).all()
    assert framed.sum() == 200 * 28 * 28 * 3
    for name in ("bag", "boot"):
        (tmp_path / "folder" / name).mkdir(parents=True)
        Image.fromarray(grey).save(tmp_path / "folder" / name / "1.png")
    x, y = read_labelled(tmp_path / "folder", "fmnist", 32, ("bag", "boot"))
    np.testing.assert_array_equal(x[0], framed)
    assert y.tolist() == [0, 1]
    with pytest.raises(DataError, match="not a readable image"):
        read_image_like("fmnist", tmp_path / "absent.png", 32)
