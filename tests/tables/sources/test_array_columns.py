"""Arrays in Parquet: nested lists as pandas, datasets and Arrow write them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.tables import open_source
from coulomb.tables.sources import array_columns

DRAW = np.random.default_rng(0)
IMAGES = DRAW.normal(0, 99, (6, 5, 12, 14)).astype(np.float32)  # [N, C, H, W]


def written(path, column, **others):
    pq.write_table(pa.table({"image": column, **others}), path)
    return path


def lists(images):
    return pa.array([image.tolist() for image in images], pa.list_(pa.list_(pa.list_(pa.float32()))))


def test_nested_lists_with_labels_and_other_columns(tmp_path):
    labels = ["a", "b", "a", "b", "a", "b"]
    path = written(tmp_path / "a.parquet", lists(IMAGES), label=labels, place=list(range(6)))
    source = open_source(path)
    assert source.labels.tolist() == [0, 1, 0, 1, 0, 1]
    assert source.other_columns() == {"place": list(range(6))}
    for row in range(6):
        assert np.array_equal(source.image(row), np.moveaxis(IMAGES[row], 0, -1))


def test_tensors_of_arrow_and_arrays_of_datasets(tmp_path):
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.ascontiguousarray(IMAGES))
    source = open_source(written(tmp_path / "a.parquet", tensors))
    assert np.array_equal(source.image(2), np.moveaxis(IMAGES[2], 0, -1))
    datasets = pytest.importorskip("datasets")
    kinds = {"image": datasets.Array3D((5, 12, 14), "float32"), "label": datasets.ClassLabel(2, ["x", "y"])}
    features = datasets.Features(kinds)
    made = datasets.Dataset.from_dict({"image": list(IMAGES), "label": [0, 1] * 3}, features=features)
    made.to_parquet(tmp_path / "b.parquet")
    source = open_source(tmp_path / "b.parquet")
    assert np.array_equal(source.image(2), np.moveaxis(IMAGES[2], 0, -1))
    assert source.class_names == ["x", "y"]


def test_shards_and_arrays_of_several_sizes(tmp_path):
    written(tmp_path / "train-0.parquet", lists(IMAGES[:2]))
    written(tmp_path / "train-1.parquet", lists([IMAGES[2][:, :11], IMAGES[3][:4]]))
    source = open_source(tmp_path)
    assert [source.image(row).shape for row in range(4)] == [(12, 14, 5), (12, 14, 5), (11, 14, 5), (12, 14, 4)]
    assert np.array_equal(source.image(2), np.moveaxis(IMAGES[2][:, :11], 0, -1))


@pytest.mark.parametrize("images", [IMAGES, [*IMAGES[:5], IMAGES[5][:, :11]]], ids=["one size", "two sizes"])
def test_labels_by_name_and_the_other_columns(tmp_path, images):
    columns = {"place": ["x", "y"] * 3, "tone": list(range(6))}
    path = written(tmp_path / "a.parquet", lists(images), **columns)
    assert open_source(path).other_columns() == columns
    source = open_source(path, labels="place")
    assert source.labels.tolist() == [0, 1] * 3 and source.other_columns() == {"tone": columns["tone"]}


def test_numbers_beside_paths_are_no_images(tmp_path):
    Image.fromarray(np.zeros((8, 9, 3), np.uint8)).save(tmp_path / "a.png")
    boxes = pa.array([[[1.0, 2.0, 3.0, 4.0]]])
    pq.write_table(pa.table({"image_path": ["a.png"], "boxes": boxes}), tmp_path / "list.parquet")
    assert open_source(tmp_path / "list.parquet").image(0).shape == (8, 9, 3)


def test_a_missing_number_is_missing_and_other_mistakes_are_named(tmp_path, monkeypatch):
    rows = [image.tolist() for image in IMAGES]
    rows[0][0][0][0] = None
    kind = pa.list_(pa.list_(pa.list_(pa.float32())))
    source = open_source(written(tmp_path / "a.parquet", pa.array(rows, kind)))
    assert np.isnan(source.image(0)[0, 0, 0])
    assert np.isfinite(source.image(1)).all()
    for rows, reason in (
        ([None, *rows[1:]], "1 of 6 rows have no array"),
        ([[None, *rows[1][1:]], *rows[1:]], "lists are missing"),
        ([[rows[1][0][:3], *rows[1][1:]], *rows[1:]], "row 1 is not an array: its lists differ in length"),
    ):
        with pytest.raises(InputError, match=reason):
            open_source(written(tmp_path / "b.parquet", pa.array(rows, kind)))
    monkeypatch.setattr(array_columns, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="read at once"):
        open_source(written(tmp_path / "c.parquet", lists(IMAGES)))
