import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coulomb.tables.check_columns import check_columns, render_columns
from coulomb.tables.columns import open_columns

SHARED = Path(__file__).parents[3] / "shared" / "data"


def checked(data, columns, test=None, **options):
    held_out = None if test is None else open_columns(test, columns)
    result = check_columns(open_columns(data, columns), held_out, **options)
    json.dumps(result)
    return result, render_columns(result)


def test_each_column_is_described():
    texts = ["one two", "one two", "three", "", "four five six", "seven"]
    pictures = [Image.new("RGB", (4 + row, 3), (row, 0, 0)) for row in range(6)]
    vectors = np.arange(12.0).reshape(6, 2)
    vectors[:, 1] = 7
    result, text = checked({"p": pictures, "t": texts, "v": vectors}, "p,t,v:negative")
    p, t, v = result["columns"]
    assert (p["kind"], p["distinct"], p["survey"]["width_range"]) == ("image", 5, [4, 9])
    assert (t["distinct"], t["most"], t["example"], t["words"]) == (4, 2, "one two", [1, 2, 3])
    assert t["characters"] == [5, 7, 13] and t["lost"] == {"missing or empty": 1}
    assert (v["width"], v["range"], v["constant"], v["negative"]) == (2, [0, 10], 1, True)
    assert result["count"] == 5 and result["copies"] == 0 and result["leaks"] is None
    lines = text.splitlines()
    assert lines[0] == "columns (columns): 5 rows" and "t: missing or empty in 1 row (row 3)" in lines[1]
    header, *rows = [line for line in lines if line.startswith(("column ", "p ", "t ", "v "))]
    assert header.split()[:2] == ["column", "kind"] and len(rows) == 3
    assert "words 1, 2, 3" in rows[1] and "2 rows: one two" in rows[1] and "width 4…9 (median 6)" in rows[0]
    assert "v: 1 dimension has the same value in all rows" in text


def test_what_repeats_is_said():
    rows = {
        "a": ["the same long text"] * 8 + [f"text number {row}" for row in range(12)],
        "b": [f"b {row}" for row in range(20)],
    }
    rows["b"][:2] = ["the same long text", "b 2"]
    result, text = checked(rows, "a,b")
    assert "One a ('the same long text') is in 8 of 20 rows" in text
    assert result["copies"] == 1 and "1 row is a copy of an earlier row" in text
    assert result["same"] == [{"columns": ["a", "b"], "rows": 1}] and "In 1 row a and b are the same" in text
    assert "All rows have the same a" in checked({"a": ["x y z"] * 3, "b": ["p", "q", "r"]}, "a,b")[1]
    _, text = checked({"caption": ["cat", "dog"] * 20}, "caption")
    assert text.count("these look like labels; use --labels caption") == 2 and "is in 20 of 40" not in text


def test_the_split_and_its_leaks():
    rows = {"a": [f"a {row}" for row in range(10)], "b": [f"b {row // 2}" for row in range(10)], "house": [0, 1] * 5}
    result, text = checked(rows, "a,b")
    assert result["split"]["test"] == 2 and "no a or b is in both parts" in text and "leaks     none" in text
    result, text = checked(rows, "a,b", group="a", test_fraction=0.5)
    assert result["split"]["test"] == 5 and "of 5 test rows share a cell with the training set (b of" in result["leaks"]
    assert result["leaks"] in text.split("worth attention")[1]
    result, text = checked(rows, "a,b", group="house")
    assert "only 0 of 10 rows can be held out so that no a, b or house is in both" in result["split"]["refused"]
    assert "--group a:" in text
    result, text = checked(rows, "a,b", {"a": ["new", "a 3"], "b": ["b 0", "other"]})
    assert "2 of 2 test rows share a cell with the training set (a of 1, b of 1)" in text
    result, text = checked({"a": ["x", "y", "x"], "b": ["p", "p", "q"]}, "a,b")
    assert "can be held out" in result["split"]["refused"] and "The rows cannot be split" in text


def test_pictures_that_cannot_be_read(tmp_path):
    Image.new("L", (3, 3)).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"broken")
    (tmp_path / "list.csv").write_text("image,text\na.png,one\nb.png,two\n")
    _, text = checked(tmp_path / "list.csv", "image,text")
    assert "image: 1 of 2 pictures that were looked at cannot be read" in text and "b.png" in text
    (tmp_path / "a.png").write_bytes(b"broken")
    result, text = checked(tmp_path / "list.csv", "image,text")
    assert result["columns"][0]["survey"] is None and "not readable" in text and "none of 2 images can be read" in text


@pytest.mark.skipif(not (SHARED / "stamps.parquet").exists(), reason="needs stamps.parquet in ../shared/data")
def test_stamps():
    table = open_columns(SHARED / "stamps.parquet", "image,en", labels="topic")
    text = render_columns(check_columns(table), ["training  nothing"])
    assert "804" in text and "6 rows: A flower." in text and "16 classes" in text and "training  nothing" in text
    assert "190 of 950 rows held out" in text


def test_negatives_that_are_right_answers_are_counted():
    rows = {
        "picture": ["a b", "a b", "c d", "e f", "g h"],  # the first one has two captions
        "caption": ["one", "two", "three", "four", "five"],
        "wrong": ["two", "three", "three", "one", "five "],
    }
    result, text = checked(rows, "picture,caption,wrong:negative")
    assert result["right"] == {"wrong": 3}
    assert "In 3 rows wrong is a right answer of picture" in text and "cannot be apart" not in text
    rows["wrong"] = ["three", "four", "c d", "five", "one"]
    result, text = checked(rows, "picture,caption,wrong:negative")
    assert result["right"] == {} and "right answer" not in text and "picture and wrong are the same" in text
    assert checked(rows, "picture,caption")[0]["right"] == {}
