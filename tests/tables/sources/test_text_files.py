import json

import pytest

from coulomb.ground.errors import InputError
from coulomb.ground.reading.cells import to_cell
from coulomb.tables.columns import open_columns
from coulomb.tables.sources import text_files


def test_csv_cells_with_quotes_commas_and_lines(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes('\ufeffq, answer\n"one, ""two""","line 1\nline 2"\n\n\'=1+1,x\n'.encode())
    table = open_columns(path, "q,answer")
    assert list(table.columns["q"]) == ['one, "two"', "=1+1"] and list(table.columns["answer"]) == [
        "line 1\nline 2",
        "x",
    ]
    assert to_cell("=1+1") == "'=1+1"
    (tmp_path / "a.tsv").write_text("q\tp\na, b\tc\n")
    assert list(open_columns(tmp_path / "a.tsv", "q,p").columns["q"]) == ["a, b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "table is empty"),
        ("a,b\n", "no rows"),
        ("a,a\n1,2\n", "a occurs more than once"),
        ("a,b\nx,y\nx\n", "(?s)3"),
    ],
)
def test_malformed_csv(tmp_path, content, message):
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(InputError, match=message):
        open_columns(tmp_path / "a.csv", "a,b")


def test_other_separators_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("image;caption\na.png;x\n")
    with pytest.raises(InputError, match="only image;caption.*separated by ';'"):
        open_columns(tmp_path / "a.csv", "image,caption")


def test_json_lines(tmp_path, monkeypatch):
    monkeypatch.setattr(text_files, "_CHUNK", 2)
    rows = [{"q": f"question {row}", "n": row, "v": [row, 0.5], "more": [f"a {row}", f"b {row}"]} for row in range(5)]
    del rows[3]["q"]
    rows[4]["late"] = "x"
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    table = open_columns(path, "q,more")
    assert list(table.columns["more"])[:3] == ["a 0", "b 0", "a 1"] and len(table) == 8
    assert table.other_columns()["n"] == [0, 0, 1, 1, 2, 2, 4, 4] and table.other_columns()["late"][-1] == "x"
    assert open_columns(path, "v").columns["v"].tolist() == [[row, 0.5] for row in range(5)]
    path.rename(tmp_path / "a.json")
    assert len(open_columns(tmp_path / "a.json", "q")) == 4
    (tmp_path / "a.json").write_text(json.dumps(rows, indent=1))
    whole = open_columns(tmp_path / "a.json", "q,more")
    assert list(whole.columns["more"]) == list(table.columns["more"]) and whole.other_columns() == table.other_columns()
    assert list(whole.other_columns()) == ["n", "late"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[\n1]", "entry 0 is a int, not a JSON object"),
        (b'[{"q": 1}', "not a JSON list"),
        (b'{\n"q": 1}', "line 1 is not a JSON object.*write one object per line"),
        (b'{"q": "a"}\n{"q": \n', "line 2 is not a JSON object"),
        (b'{"q": "a"}\n[1]\n', "line 2 is a list"),
        (b'{"q": "a"}\n{"q": "\xff"}\n', "line 2 is not UTF-8"),
        (b"{}\n", "no columns"),
        (b'{"q": "a"}\n{"q": "\\ud800"}\n', "key 'q': the text of row 1 has half of a surrogate pair"),
    ],
)
def test_malformed_json_lines(tmp_path, content, message):
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_columns(tmp_path / "a.jsonl", "q")


def test_lines_of_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\r\ntwo\u2028three\nlast".encode())
    table = open_columns(path, "text")
    assert list(table.columns["text"]) == ["one", "two\u2028three", "last"] and table.item_id(2) == "3"
    assert "missing or empty in 1 row (row 1)" in table.notes[0]
    path.write_bytes(b"one\ncaf\xe9\n")
    with pytest.raises(InputError, match="line 2 is not UTF-8"):
        open_columns(path, "text")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="no rows"):
        open_columns(path, "text")


def test_several_files_are_one_table(tmp_path):
    (tmp_path / "part-1.csv").write_text("a,b\n1 x,2 x\n")
    (tmp_path / "part-2.csv").write_text("a,b\n3 x,4 x\n")
    for data in (tmp_path, tmp_path / "part-*.csv", tmp_path / "part-{1,2}.csv"):
        assert list(open_columns(data, "a,b").columns["b"]) == ["2 x", "4 x"]
    (tmp_path / "part-3.csv").write_text("a,c\n5,6\n")
    with pytest.raises(InputError, match="part-3.csv: its columns differ"):
        open_columns(tmp_path, "a,b")
    (tmp_path / "part-3.jsonl").write_text("{}")
    with pytest.raises(InputError, match="several kinds"):
        open_columns(tmp_path / "part-*", "a,b")
    with pytest.raises(InputError, match="1 of 2 shards do not exist: part-9.csv"):
        open_columns(tmp_path / "part-{1,9}.csv", "a,b")
