import numpy as np
import pyarrow.parquet as pq
import pytest

from coulomb.data import ArraySource
from coulomb.errors import InputError
from coulomb.evaluation import encode
from coulomb.models import build_encoder


@pytest.fixture
def encoder():
    return build_encoder("convnet", channels=3, image_size=16, width=4, stages=2).eval()


def test_labels_and_classes_go_along(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "ROWS", 4)  # several row groups
    images = np.random.default_rng(0).integers(0, 256, (10, 16, 16, 3), dtype=np.uint8)
    labels = np.array([0, 1, -1, 0, 1, -1, 0, 1, 1, 1])
    source = ArraySource(images, labels, class_names=["ant", "bee"])
    done = encode.embed_to_parquet(encoder, source, tmp_path / "f.parquet", progress=False)
    table = pq.read_table(tmp_path / "f.parquet")
    assert done == {"rows": 10, "features": 8, "failed": []}
    assert table.column("label").to_pylist() == [None if label < 0 else label for label in labels]
    assert table.column("class").to_pylist()[:3] == ["ant", "bee", None]
    assert pq.ParquetFile(tmp_path / "f.parquet").num_row_groups == 3
    assert len(set(table.column("id").to_pylist())) == 10


def test_nothing_is_overwritten_and_nothing_half_written(encoder, tmp_path):
    source = ArraySource(np.zeros((3, 16, 16, 3), np.uint8))
    (tmp_path / "f.parquet").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        encode.embed_to_parquet(encoder, source, tmp_path / "f.parquet")
    with pytest.raises(InputError, match="cannot be written"):
        encode.embed_to_parquet(encoder, source, tmp_path / "nowhere" / "f.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["f.parquet"]
