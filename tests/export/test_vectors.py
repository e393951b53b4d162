"""Exports of an index answer as the index does."""

import json
import sys

import numpy as np
import pyarrow.csv
import pytest

from coulomb.export import to_csv, to_faiss, to_lance, to_npz
from coulomb.export.vectors import Recall
from coulomb.ground.errors import InputError
from export_cases import FakeIndex


def test_csv_holds_every_digit_and_any_name(tmp_path, monkeypatch):
    monkeypatch.setattr("coulomb.export.tables.ROWS", 7)
    index = FakeIndex(20, dtype=np.float32)
    assert to_csv(index, tmp_path / "x.csv") == {"out": str(tmp_path / "x.csv"), "images": 20, "features": 8}
    options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    table = pyarrow.csv.read_csv(tmp_path / "x.csv", parse_options=options)
    assert table.column("id").to_pylist() == index.ids
    assert [label or None for label in table.column("label").to_pylist()] == index.labels
    read = np.stack([table.column(f"f{column}").to_numpy() for column in range(8)], 1).astype(np.float32)
    np.testing.assert_array_equal(read, index.features)


def test_npz_opens_without_pickle(tmp_path):
    index = FakeIndex(20)
    to_npz(index, tmp_path / "x.npz")
    with np.load(tmp_path / "x.npz", allow_pickle=False) as read:
        np.testing.assert_array_equal(read["features"], index.features)
        assert read["ids"].tolist() == index.ids and read["labels"][:3].tolist() == ["", "class 1", "class 2"]
    with pytest.raises(InputError, match=r"must end in \.npz"):
        to_npz(index, tmp_path / "x.bin")


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivf"])
def test_faiss_finds_the_same_neighbors(tmp_path, kind):
    faiss = pytest.importorskip("faiss")
    index = FakeIndex(2000)
    result = to_faiss(index, tmp_path / "x.faiss", kind=kind)
    assert result["kind"] == kind and result["recall"] >= 0.99
    read = faiss.read_index(str(tmp_path / "x.faiss"))
    assert read.ntotal == 2000 and json.loads((tmp_path / "x.faiss.ids.json").read_text()) == index.ids
    queries = index.rows(0, 50).numpy()
    exact = np.argsort(-queries @ index.rows(0, 2000).numpy().T, axis=1)[:, :10]
    found = read.search(queries, 10)[1]
    assert np.mean([len({*a} & {*b}) for a, b in zip(exact, found, strict=True)]) >= 9.5, "the effort is in the file"


def test_faiss_is_chosen_by_size(tmp_path, monkeypatch):
    pytest.importorskip("faiss")
    monkeypatch.setattr("coulomb.export.faiss_file.HNSW_FROM", 100)
    monkeypatch.setattr("coulomb.export.faiss_file.IVF_FROM", 200)
    kinds = [to_faiss(FakeIndex(count), tmp_path / str(count))["kind"] for count in (1, 99, 100, 199, 200)]
    assert kinds == ["flat", "flat", "hnsw", "hnsw", "ivf"]
    with pytest.raises(InputError, match="kind='pq': must be one of flat, hnsw, ivf"):
        to_faiss(FakeIndex(5), tmp_path / "x", kind="pq")


def test_lance_answers_exactly(tmp_path):
    lancedb = pytest.importorskip("lancedb")
    index = FakeIndex(300)
    result = to_lance(index, tmp_path / "x.lance")
    assert result["recall"] == 1 and result["images"] == 300
    table = lancedb.connect(str(tmp_path / "x.lance")).open_table("images")
    query = index.rows(7, 8)[0].numpy()
    (first,) = table.search(query).distance_type("cosine").limit(1).to_list()
    assert first["id"] == index.ids[7] and first["row"] == 7 and first["label"] == "class 1"


def test_recall_counts_misses_and_not_ties():
    index = FakeIndex(50, dtype=np.float32)
    recall = Recall(index)
    exact = np.argsort(-recall.queries.numpy() @ index.features.T, axis=1)
    assert recall.of(exact[:, :10]) == 1
    assert recall.of(np.where(np.arange(10) < 4, -1, exact[:, :10])) == pytest.approx(0.6)
    assert recall.of(exact[:, [0] * 10]) == pytest.approx(0.1), "one neighbor found ten times"
    index.features[1:] = index.features[0]
    assert Recall(index).of(np.tile(np.arange(40, 50), (50, 1))) == 1


@pytest.mark.parametrize("write", [to_csv, to_npz, to_faiss, to_lance])
def test_empty_indexes_and_existing_files_are_refused(tmp_path, write):
    (tmp_path / "x.npz").touch()
    with pytest.raises(InputError, match="out=.*already exists"):
        write(FakeIndex(3), tmp_path / "x.npz")
    empty = FakeIndex(3)
    empty.features = empty.features[:0]
    with pytest.raises(InputError, match="has no images"):
        write(empty, tmp_path / "y.npz")
    assert [each.name for each in tmp_path.iterdir()] == ["x.npz"]


def test_missing_libraries_are_named(tmp_path, monkeypatch):
    for name, write in (("faiss", to_faiss), ("lancedb", to_lance)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match=f"needs {name}: pip install"):
            write(FakeIndex(3), tmp_path / "x")
