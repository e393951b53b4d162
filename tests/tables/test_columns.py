import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image import Image as ImageKind
from coulomb.kinds.text import Text
from coulomb.tables import ArraySource, Samples
from coulomb.tables.columns import Column, open_columns, parse_columns
from coulomb.tables.groups import find_groups

SHARED = Path(__file__).parents[3] / "shared" / "data"


def png(value):
    out = io.BytesIO()
    Image.new("RGB", (6, 4), (value, 0, 0)).save(out, "PNG")
    return out.getvalue()


CAPTIONS = ["a red cat", "a dog", "a red cat", "two birds", "a fish", "one more dog"]


@pytest.fixture
def pairs(tmp_path):
    """A Parquet file of 6 rows in 3 row groups; rows 0 and 3 have the same picture, rows 0 and 2 the same caption."""
    rows = {
        "image": [{"bytes": png(each), "path": None} for each in (10, 20, 30, 10, 50, 60)],
        "caption": CAPTIONS,
        "house": [1, 1, 2, 2, 3, 3],
    }
    pq.write_table(pa.table(rows), tmp_path / "pairs.parquet", row_group_size=2)
    return tmp_path / "pairs.parquet"


def test_names_kinds_and_negatives_are_parsed():
    assert parse_columns("image, caption:text,hard:text:negative") == (
        Column("image"),
        Column("caption", "text"),
        Column("hard", "text", negative=True),
    )
    assert parse_columns(["image", Column("dc:title, long")])[1].name == "dc:title, long"
    assert parse_columns("a,hard:negative:text")[1] == Column("hard", "text", negative=True)
    assert parse_columns(parse_columns("a,b:negative")) == parse_columns("a,b:negative")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("", "no names"),
        ([], "no names"),
        ("image,,caption", "a name is empty"),
        (":text", "a name is empty before ':text'"),
        ("image,image", "image is named twice"),
        ("image:picture", "unknown kind 'picture'.*image, text, vector or negative"),
        ("caption:txt", "did you mean 'text'"),
        ("caption:text:image", "must be NAME, NAME:KIND"),
        ("a:negative:negative", "must be NAME, NAME:KIND"),
        ("a:negative,b:negative", "a, b are all marked ':negative'"),
        (["a", 3], "3 is a int"),
    ],
)
def test_wrong_names(columns, message):
    with pytest.raises(InputError, match=message):
        parse_columns(columns)


def test_parquet(pairs):
    table = open_columns(pairs, "image,caption")
    assert table.kinds == {"image": "image", "caption": "text"} and len(table) == 6 and not table.notes
    assert list(table.columns["caption"]) == CAPTIONS
    assert [int(table.columns["image"].image(row)[0, 0, 0]) for row in range(6)] == [10, 20, 30, 10, 50, 60]
    assert table.cell_ids("image").tolist() == [0, 1, 2, 0, 3, 4]
    assert table.cell_ids("caption").tolist() == [0, 1, 0, 2, 3, 4]
    assert len({table.item_id(row) for row in range(6)}) == 6
    assert table.other_columns() == {"house": [1, 1, 2, 2, 3, 3]} and len(find_groups(table, "house").names) == 3
    assert table.blocks is not None and table.blocks.of.tolist() == [0, 0, 1, 1, 2, 2]


def test_columns_are_read_by_the_loader_in_workers(pairs):
    table = pickle.loads(pickle.dumps(open_columns(pairs, "image,caption")))
    kinds = {"image": ImageKind(4, 3), "caption": Text(lambda text: list(text.encode()))}
    batch = Samples(table, kinds).__getitems__([4, 0])
    assert batch.columns["image"].canvas[:, 0, 0, 0].tolist() == [50, 10]
    assert batch.columns["caption"].mask.sum(1).tolist() == [len("a fish"), len("a red cat")]


def test_shards_are_one_table(tmp_path, pairs):
    whole = pq.read_table(pairs)
    pq.write_table(whole.slice(0, 2), tmp_path / "train-00.parquet")
    pq.write_table(whole.slice(2), tmp_path / "train-01.parquet")
    pairs.unlink()
    for data in (tmp_path, tmp_path / "train-*.parquet"):
        table = open_columns(data, "caption,image")
        assert list(table.columns["caption"]) == CAPTIONS and list(table.kinds) == ["caption", "image"]
        assert table.cell_ids("image").tolist() == [0, 1, 2, 0, 3, 4]
    pq.write_table(whole.drop_columns(["house"]), tmp_path / "train-02.parquet")
    with pytest.raises(InputError, match="train-02.*differ"):
        open_columns(tmp_path, "caption,image")
    pq.write_table(whole, tmp_path / "test-00.parquet")
    with pytest.raises(InputError, match="test, train"):
        open_columns(tmp_path, "caption,image")


def test_a_csv_file_names_images_that_rows_share(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.png").write_bytes(png(number))
    (tmp_path / "list.csv").write_text(
        'file,caption\n0.png,"one, two"\n./0.png,three\n1.png,\n9.png,four\n2.png,five\n'
    )
    table = open_columns(tmp_path / "list.csv", "file,caption")
    assert list(table.columns["caption"]) == ["one, two", "three", "five"]
    assert table.cell_ids("file").tolist() == [0, 0, 1] and table.columns["file"].source.paths == [
        "0.png",
        "1.png",
        "2.png",
    ]
    assert [table.item_id(row) for row in range(3)] == ["0.png#0", "0.png#1", "2.png"]
    assert table.has_paths and table.root == tmp_path
    notes = " ".join(table.notes)
    assert "caption: missing or empty in 1 row (row 2)" in notes
    assert "file: its file does not exist in 1 row (9.png)" in notes
    assert "2 rows of 5 are left out" in notes


def test_a_list_of_texts_is_one_row_per_text():
    table = open_columns(
        {"picture": [Image.new("L", (3, 3), value) for value in (1, 2, 3)], "captions": [["a", "b"], [], ["c", ""]]},
        "picture,captions",
    )
    assert list(table.columns["captions"]) == ["a", "b", "c"] and table.cell_ids("picture").tolist() == [0, 0, 1]
    assert [int(table.columns["picture"].image(row)[0, 0, 0]) for row in range(3)] == [1, 1, 3]
    assert [table.item_id(row) for row in range(3)] == ["0#0", "0#1", "2"]
    assert "4 texts in 3 rows" in " ".join(table.notes) and "2 rows of 5 are left out" in " ".join(table.notes)
    both = {"a": [["x", "y"], ["z"]], "b": [["1 x", "1 y"], ["1 z"]]}
    assert list(open_columns(both, "a,b").columns["b"]) == ["1 x", "1 y", "1 z"]
    with pytest.raises(InputError, match="a, b hold lists of different lengths"):
        open_columns({"a": [["x", "y"], ["z"]], "b": [["1"], ["2", "3"]]}, "a,b")


def test_lists_of_rows():
    assert list(open_columns(["a", "b"], "text").columns["text"]) == ["a", "b"]
    table = open_columns([("a", [1.0, 2.0]), ("b", [3.0, 4.0])], ["words", "place"])
    assert table.kinds == {"words": "text", "place": "vector"} and table.columns["place"].tolist() == [[1, 2], [3, 4]]
    assert list(open_columns([{"q": "a", "p": "b"}, {"p": "d", "q": "c"}], "q,p").columns["p"]) == ["b", "d"]
    with pytest.raises(InputError, match="2 cells for 1 columns"):
        open_columns([("a", "b")], "text")
    with pytest.raises(InputError, match="one column, and columns are a, b"):
        open_columns(["a", "b"], "a,b")
    with pytest.raises(InputError, match="empty"):
        open_columns([], "text")


def test_arrays_and_other_libraries():
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    table = open_columns({"x": vectors, "t": np.array(["a", "b", "c"])}, "x,t")
    assert table.columns["x"] is vectors and list(table.columns["t"]) == ["a", "b", "c"]
    assert open_columns({"i": np.zeros((2, 5, 5, 3), np.uint8), "t": ["a", "b"]}, "i,t").kinds["i"] == "image"
    arrow = pa.table({"t": ["a", "b"], "v": pa.array([[1, 2], [3, 4]], pa.list_(pa.int64(), 2))})
    assert open_columns(arrow, "t,v").columns["v"].tolist() == [[1, 2], [3, 4]]
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"t": ["a", None, "c"], "n": [1, 2, 3]}, index=[7, 8, 9])
    table = open_columns(frame, "t,n:vector")
    assert list(table.columns["t"]) == ["a", "c"] and table.columns["n"].tolist() == [[1], [3]]


def test_a_table_is_opened_again(pairs):
    table = open_columns(pairs, "image,caption")
    again = open_columns(table, "caption,image")
    assert list(again.columns["caption"]) == CAPTIONS and again.other_columns() == table.other_columns()
    assert again.cell_ids("image").tolist() == table.cell_ids("image").tolist()
    source = ArraySource(np.zeros((2, 4, 4), np.uint8))
    assert open_columns(source, "image").kinds == {"image": "image"}


def test_labels(pairs):
    rows = {"t": ["a", "b", ""], "label": ["x", "y", "x"], "score": [0.5, 1.5, 2.5]}
    table = open_columns(rows, "t")
    assert table.labels.tolist() == [0, 1] and table.class_names == ["x", "y"]
    assert table.other_columns() == {"score": [0.5, 1.5]}
    assert open_columns(rows, "t", labels=False).labels is None
    assert open_columns(rows, "t", labels=[2, 1, 0]).labels.tolist() == [2, 1]
    assert open_columns(pairs, "caption", labels="house").labels.tolist() == [1, 1, 2, 2, 3, 3]
    table = open_columns({"t": ["a", "b"], "label": [0.25, 0.5]}, "t")
    assert table.labels is None and "'label' is not used as labels" in " ".join(table.notes)
    with pytest.raises(InputError, match="no label column 'kind'"):
        open_columns(rows, "t", labels="kind")


@pytest.mark.parametrize(
    ("data", "columns", "message"),
    [
        ({"a": ["x", "y"], "b": ["x"]}, "a,b", "differ in length.*'a' 2, 'b' 1"),
        ({"image": ["x"], "en": ["y"]}, "Image,en", "no such column.*did you mean 'image'"),
        ({"a": ["x"], "n": [3]}, "a,n", "column 'n'.*plain numbers.*'n:text'.*'n:vector'"),
        ({"n": [[1, 2], [3]]}, "n", "1, 2 numbers; vectors must have one length"),
        ({"a": ["", " ", None]}, "a", "all 3 cells are missing or empty"),
        ({"a": [None, None]}, "a", "all 2 cells are missing"),
        ({"a": ["x", 3]}, "a", "several types.*str in row 0.*int in row 1"),
        ({"a": ["x", "\ud800"]}, "a", "row 1"),
        ({"a": [b"x"], "b": ["y"]}, "a,b", "no images.*'a:text'"),
        ({"a": [b"x", b"\xff"]}, "a:text", "row 1 is not UTF-8.*0xff"),
        ({"a": ["none.jpg"]}, "a", "none of its 1 files exists.*none.jpg.*root="),
        ({"a": ["x", ""], "b": ["", "y"]}, "a,b", "no row has a cell in every column"),
        ({"v": [[1.0, np.nan]]}, "v", "NaN or infinite"),
        ({"v": np.zeros((2, 3, 4))}, "v", "gray pictures or matrices"),
        ({"a": [{"key": 1}]}, "a", "column 'a': cells of type dict are neither"),
        ({"a": [b"x"] * 9, "b": ["y"] * 9}, "a:image,b", "no images"),
        ({"v": ["[1, 2]", "[x]"]}, "v:vector", "row 1 is not a list of numbers"),
        ({"n": ["1", "x"]}, "n:vector", "holds texts"),
        ({}, "a", "no columns"),
        ({"a": 3}, "a", "int is not a list"),
        (7, "a", "data is a int"),
        ("nowhere.csv", "a", "nowhere.csv: no such file"),
    ],
)
def test_wrong_data(data, columns, message):
    with pytest.raises(InputError, match=message):
        open_columns(data, columns)


def test_kinds_are_held_to(pairs):
    with pytest.raises(InputError, match="holds pictures.*leave out ':text'"):
        open_columns(pairs, "image:text,caption")
    with pytest.raises(InputError, match="holds texts.*leave out ':vector'"):
        open_columns(pairs, "image,caption:vector")
    assert open_columns({"a": ["none.jpg"]}, "a:text").kinds == {"a": "text"}


def test_texts_that_look_like_labels_are_noted():
    words = ["cat", "dog", "cow", "red fox"] * 10
    (note,) = open_columns({"caption": words}, "caption").notes
    assert "caption has only 4 different values for 40 rows" in note and "--labels caption" in note
    (note,) = open_columns({"n": [1, 2] * 20}, "n:text").notes
    assert "only 2 different values" in note
    assert not open_columns({"caption": [f"{word} number {row}" for row, word in enumerate(words)]}, "caption").notes
    assert not open_columns({"caption": ["a photo of a cat", "a photo of a dog"] * 20}, "caption").notes


def test_pictures_as_captions_are_noted(tmp_path):
    (tmp_path / "a.png").write_bytes(png(1))
    table = open_columns({"image": [tmp_path / "a.png"], "caption": [str(tmp_path / "a.png")]}, "image,caption:text")
    assert "caption: its texts are names of image files" in table.notes[0]


def test_vectors_as_texts_tensors_and_hub_cells():
    table = open_columns({"v": ["[1, 2.5]", "", "[3, 4]"], "t": ["a", "b", "c"]}, "v:vector,t")
    assert table.columns["v"].tolist() == [[1, 2.5], [3, 4]] and list(table.columns["t"]) == ["a", "c"]
    assert open_columns({"v": [torch.ones(3), None, torch.zeros(3)]}, "v").columns["v"].tolist() == [[1] * 3, [0] * 3]
    assert open_columns({"i": [{"bytes": png(7), "path": None}]}, "i").columns["i"].image(0)[0, 0, 0] == 7


def test_parquet_cells_that_are_no_images(tmp_path):
    rows = {"image": [{"bytes": b"zz", "path": None}] * 2, "caption": ["a", "b"]}
    pq.write_table(pa.table(rows), tmp_path / "x.parquet")
    with pytest.raises(InputError, match="no images"):
        open_columns(tmp_path / "x.parquet", "image,caption")
    rows["image"][0] = {"bytes": png(1), "path": None}
    rows["image"] += [{"bytes": None, "path": "gone.png"}, None]
    pq.write_table(pa.table(rows | {"caption": list("abcd")}), tmp_path / "x.parquet")
    table = open_columns(tmp_path / "x.parquet", "image,caption")
    assert len(table) == 2 and "image: missing or empty in 2 rows (row 2, row 3)" in table.notes[0]


def test_bytes_that_are_no_utf8_in_a_csv_file(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\nx,y\nx,\xe9t\xe9\n")
    with pytest.raises(InputError, match=r"line 3 is not UTF-8 \(byte 0xe9"):
        open_columns(path, "a,b")
    path.write_bytes("a,b\nx,y\n".encode("utf-16"))
    with pytest.raises(InputError, match="UTF-16"):
        open_columns(path, "a,b")


def test_a_cell_of_a_million_tokens_is_accepted(tmp_path):
    long = "word " * 1_000_000
    (tmp_path / "a.csv").write_text(f'a,b\n"{long}",x\ny,z\n')
    table = open_columns(tmp_path / "a.csv", "a,b")
    assert table.columns["a"][0] == long and table.columns["a"][1] == "y"


@pytest.mark.skipif(not (SHARED / "stamps.parquet").exists(), reason="needs stamps.parquet in ../shared/data")
def test_stamps():
    table = open_columns(SHARED / "stamps.parquet", "image,en", labels="topic")
    assert len(table) == 950 and len(np.unique(table.cell_ids("en"))) == 804 and len(table.class_names) == 16
    assert len(open_columns(SHARED / "stamps.parquet", "image,zh")) == 950 - 177
    assert "topic" in open_columns(SHARED / "stamps.parquet", "image,en").other_columns()


@pytest.mark.skipif(not (SHARED / "glosses.parquet").exists(), reason="needs glosses.parquet in ../shared/data")
def test_glosses():
    table = open_columns(SHARED / "glosses.parquet", "term,gloss")
    assert len(table) == 100_271 and table.kinds == {"term": "text", "gloss": "text"}
    assert table.columns["gloss"].array.nbytes < 10 * 2**20


def test_columns_of_numbers_are_joined_to_vectors(tmp_path):
    table = {
        "f_1": [1, 2, 3],
        "f_2": [0.5, None, 2.5],
        "name": ["a b", "c d", "e f"],
        "label": [0, 1, 0],
        "height": [9, 8, 7],
    }
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table(table), path)
    opened = open_columns(path, "height+f_1")
    assert opened.kinds == {"height+f_1": "vector"}
    assert opened.columns["height+f_1"].tolist() == [[9, 1], [8, 2], [7, 3]]
    assert opened.labels.tolist() == [0, 1, 0]
    assert set(opened.other_columns()) == {"f_2", "name"}
    some = open_columns(path, "f_*")
    assert some.columns["f_*"].tolist() == [[1, 0.5], [3, 2.5]] and some.labels.tolist() == [0, 0]
    assert any("f_2 is missing or empty in 1 row" in note for note in some.notes)
    both = open_columns(path, ["name", "f_1+height"])
    assert both.kinds == {"name": "text", "f_1+height": "vector"}
    everything = open_columns({name: table[name] for name in ("f_1", "label", "height")}, "*")
    assert everything.columns["*"].shape == (3, 2)  # without the labels
    csv = tmp_path / "rows.csv"
    csv.write_text("a,b\n1,2.5\n3,4\n")
    assert open_columns(csv, "a+b").columns["a+b"].tolist() == [[1, 2.5], [3, 4]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("f_1+f_3", r"no column 'f_3'.*f_1"),
        ("g_*", r"no column 'g_\*'"),
        ("f_1+name", "column 'name'"),
        ("f_1+f_2:text", "joined columns are vectors"),
        ("f_1", r"f_1\+OTHER"),
    ],
)
def test_columns_that_cannot_be_joined(columns, message):
    with pytest.raises(InputError, match=message):
        open_columns({"f_1": [1, 2], "f_2": [0.5, 1], "name": ["a b", "c d"]}, columns)


def test_a_column_may_have_a_plus_in_its_name():
    assert open_columns({"a+b": ["one text", "two texts"], "a": [1, 2], "b": [1, 2]}, "a+b").kinds == {"a+b": "text"}
