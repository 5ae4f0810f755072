"""The datasets' records: what is said of them, and a page that says the same."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmatch_tf.base.errors import DataError
from fedmatch_tf.base.plugins import entries
from fedmatch_tf.data.dataset import Dataset
from fedmatch_tf.data.datasets import DATASETS
from fedmatch_tf.data.raw import Raw
from fedmatch_tf.data.sources import load_source
from tests.conftest import ROOT, made_up_images


def test_the_table_of_datasets_has_each_with_what_its_record_says() -> None:
    page = (ROOT / "docs" / "DATA.md").read_text()
    rows = [re.split(r" ?\| ?", row)[1:-1] for row in re.findall(r"^\| `\w+` \| .*", page, re.M)]
    table = {name.strip("`"): row for name, *row in rows if name.strip("`") in DATASETS}
    assert list(table) == list(DATASETS)
    for name, (title, images, shape, classes) in table.items():
        record = DATASETS[name]
        assert (name, title) == (record.name, record.title)
        sizes = tuple(int(size.replace(",", "")) for size in images.split(" + ")) if images != "-" else None
        assert sizes == record.sizes
        assert (None if shape == "-" else tuple(map(int, shape.split("x")))) == record.image_shape
        assert (None if classes == "-" else int(classes)) == record.num_classes
        assert not record.class_names or len(record.class_names) == record.num_classes


def test_the_embedded_digits_are_as_many_as_their_record_says() -> None:
    digits = DATASETS["digits"]
    source = load_source("digits")
    assert (len(source.y), len(source.class_names)) == (digits.num_images, digits.num_classes)


def test_a_format_of_its_own_is_read_by_the_datasets_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = made_up_images(20, num_classes=2)
    np.save(tmp_path / "columns.npy", np.column_stack([y, x.reshape(20, -1)]))

    def read(path: Path) -> Raw:
        table = np.load(path)
        return Raw(table[:, 1:].astype(np.uint8).reshape(-1, 32, 32, 3), table[:, 0].astype(np.int64), "columns")

    monkeypatch.setitem(
        DATASETS, "columns", Dataset("columns", "Columns", "columns", files=("columns.npy",), read=read)
    )
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path))
    source = load_source("columns")
    np.testing.assert_array_equal(source.x, x)
    assert source.y.tolist() == y.tolist()


def test_class_folders_of_another_number_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = Raw(np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1]), "image folder", ("a", "b"))
    (tmp_path / "covid").mkdir()
    monkeypatch.setitem(DATASETS, "covid", replace(DATASETS["covid"], read=lambda path: raw))
    monkeypatch.setenv("FEDMATCH_DATA", str(tmp_path))
    with pytest.raises(DataError, match="expected 3 class folders of COVID-19 radiography, found a, b"):
        load_source("covid")


def test_two_files_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "twice"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, title in (("a", "first"), ("b", "second")):
        text = f"from fedmatch_tf.data.dataset import Dataset\nA = Dataset('same', '{title}', 'same')\n"
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"twice\.b: expected an entry with a name of its own, received .*second"):
        entries("twice", Dataset)
