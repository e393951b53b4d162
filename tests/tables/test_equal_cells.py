import io

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from coulomb.tables import ArraySource, Columns
from coulomb.tables.equal_cells import equal_cells
from coulomb.tables.pictures import EncodedBytes, PictureRows
from coulomb.tables.sources.files import FileSource


@given(st.lists(st.sampled_from(["a", "b", " a", "é", "e\u0301", "a\n", ""]), max_size=8))
def test_texts_are_equal_after_normalization(texts):
    (ids,) = equal_cells("text", [texts])
    plain = [text.strip().replace("e\u0301", "é") for text in texts]
    assert ids.tolist() == [list(dict.fromkeys(plain)).index(text) for text in plain]


def test_ids_are_shared_by_tables_and_missing_texts_are_equal_to_none():
    first, second = equal_cells("text", [["a", None, "b"], ["b", None, "c"]])
    assert first[2] == second[0] and len({*first.tolist(), *second.tolist()}) == 5


@given(st.lists(st.sampled_from([0.0, -0.0, 1.0, np.nan]), min_size=1, max_size=6))
def test_vectors_are_equal_by_value(values):
    rows = np.array([[value, 1.0] for value in values])
    (ids,) = equal_cells("vector", [rows])
    keys = [str(abs(value)) for value in values]
    assert ids.tolist() == [list(dict.fromkeys(keys)).index(key) for key in keys]
    (single, double) = equal_cells("vector", [rows.astype(np.float32), rows])
    assert single.tolist() == double.tolist()


@pytest.fixture
def files(tmp_path):
    """Four files: a.png and c.png have the same bytes, b.png has the same size as these, d.png is larger."""
    out = io.BytesIO()
    Image.new("L", (4, 4)).save(out, "PNG")
    for name, content in {"a": b"1", "b": b"2", "c": b"1", "d": b"33"}.items():
        (tmp_path / f"{name}.png").write_bytes(out.getvalue() + content)
    return tmp_path


def test_images_are_equal_by_their_bytes_wherever_they_are(files, monkeypatch):
    source = FileSource(files, ["a.png", "b.png", "c.png", "d.png"], kind="folder", name="x")
    rows = PictureRows(source, np.array([3, 0, 0, 1, 2]))
    (ids,) = equal_cells("image", [rows])
    assert ids.tolist() == [0, 1, 1, 2, 1]
    cells = EncodedBytes(pa.array([(files / "d.png").read_bytes(), (files / "c.png").read_bytes(), b"other"]), "x")
    ids, others = equal_cells("image", [rows, cells])
    assert ids.tolist() == [0, 1, 1, 2, 1] and others.tolist() == [0, 1, 3]


def test_missing_files_are_equal_to_none(files):
    source = FileSource(files, ["none.png", "nothing.png", "a.png"], kind="folder", name="x")
    assert equal_cells("image", [source])[0].tolist() == [0, 1, 2]


def test_a_table_has_ids_of_its_cells():
    pixels = np.zeros((3, 2, 2), np.uint8)
    pixels[1] = 1
    table = Columns({"image": ArraySource(pixels), "text": ["a", "a", "b"], "vector": np.zeros((3, 2))})
    assert table.kinds == {"image": "image", "text": "text", "vector": "vector"}
    assert [table.cell_ids(name).tolist() for name in table.columns] == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
