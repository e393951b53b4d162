"""Columns of tables that are not used and could be labels."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.data import check, open_source, render_check
from coulomb.data.check_labels import label_like

COLUMNS = {
    "breed": ["pug", "dachshund", "pug", "dachshund", "", "pug", "poodle", "poodle"],
    "house": [0, 0, 1, 1, 2, 2, 3, 3],
    "caption": [f"a dog, number {number}" for number in range(8)],
    "weight": [0.5, 1.25, 0.5, 1.25, 3.5, 0.5, 0.5, 0.5],
    "constant": [7] * 8,
}


@pytest.fixture
def paths(tmp_path):
    for number in range(8):
        Image.fromarray(np.full((8, 8), 20 * number, np.uint8)).save(tmp_path / f"{number}.png")
    return [f"{number}.png" for number in range(8)]


def csv_list(paths, folder):
    names = ["path", *COLUMNS]
    rows = [",".join(f'"{value}"' for value in row) for row in zip(paths, *COLUMNS.values(), strict=True)]
    (folder / "list.csv").write_text("\n".join([",".join(names), *rows]))
    return folder / "list.csv"


def parquet_list(paths, folder):
    pq.write_table(pa.table({"path": paths, **COLUMNS}), folder / "list.parquet")
    return folder / "list.parquet"


def parquet_images(paths, folder):
    images = [{"bytes": (folder / path).read_bytes(), "path": path} for path in paths]
    pq.write_table(pa.table({"image": images, **COLUMNS}), folder / "images.parquet")
    return folder / "images.parquet"


def hub(paths, folder):
    import datasets

    images = datasets.Dataset.from_dict({"image": [str(folder / path) for path in paths], **COLUMNS})
    return images.cast_column("image", datasets.Image())


def arrays(paths, folder):
    np.savez(folder / "data.npz", images=np.zeros((8, 8, 8), np.uint8), **{k: np.array(v) for k, v in COLUMNS.items()})
    return folder / "data.npz"


@pytest.mark.parametrize("make", [csv_list, parquet_list, parquet_images, hub, arrays])
def test_columns_that_could_be_labels_are_named(make, paths, tmp_path):
    data = make(paths, tmp_path)
    source = open_source(data)
    assert source.labels is None
    found = label_like(pickle.loads(pickle.dumps(source)) if make is not hub else source)
    assert [(entry["name"], entry["values"]) for entry in found] == [("breed", 3), ("house", 4)]
    assert found[0]["examples"] == ["dachshund", "poodle", "pug"] and found[0]["unlabelled"] == 1
    used = open_source(data, labels="breed")
    assert used.class_names == ["dachshund", "poodle", "pug"]
    assert [entry["name"] for entry in label_like(used)] == ["house"]
    if make is hub:
        return  # its paths lie outside the hub's download folder, so the images themselves are refused
    text = render_check(check(source))
    assert "breed: 3 values (dachshund, poodle, pug); use it with --labels breed" in text
    assert "No labels are used, but column 'breed' could hold them" in text


def test_columns_named_like_labels_come_first(paths, tmp_path):
    table = {"path": paths, "camera": ["a", "b"] * 4, "fine_label": [0, 1, 2, 3] * 2}
    pq.write_table(pa.table(table), tmp_path / "list.parquet")
    assert [entry["name"] for entry in label_like(open_source(tmp_path / "list.parquet"))] == ["fine_label", "camera"]


def test_a_folder_has_no_columns(paths, tmp_path):
    assert label_like(open_source(tmp_path)) == []
