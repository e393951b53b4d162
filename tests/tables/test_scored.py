"""Pairs with scores of their similarity."""

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.tables.scored import open_scored_pairs

TEXT = "text"
ROWS = [
    ("a red flower", "a flower that is red", 4.5),
    ("two cats", "a dog sleeps", 1.0),
    ("rain at noon", "wet noon", 3.0),
]


def test_files_dictionaries_and_tuples_hold_the_same_pairs(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("one,two,score\n" + "".join(f"{a},{b},{score}\n" for a, b, score in ROWS))
    first, second, scores = zip(*ROWS, strict=True)
    for data in (str(path), {"one": list(first), "two": list(second), "score": list(scores)}, ROWS):
        found = open_scored_pairs(data, TEXT, "text")
        assert found is not None and len(found) == 3 and found.scores.tolist() == [4.5, 1.0, 3.0]
        left, right = found.places
        cells = found.table.columns["text"]
        assert [(cells[a], cells[b]) for a, b in zip(left.tolist(), right.tolist(), strict=True)] == [
            (a, b) for a, b, _ in ROWS
        ]
        assert len({found.table.item_id(row) for row in range(6)}) == 6


def test_incomplete_pairs_are_left_out_and_counted():
    rows = [*ROWS, ("", "no first", 2.0), ("no score", "here", None)]
    found = open_scored_pairs([dict(zip(("a", "b", "Score"), row, strict=True)) for row in rows], TEXT, "text")
    assert len(found) == 3 and found.names == ("a", "b", "Score")
    assert any("2 pairs" in note for note in found.table.notes)


def test_rows_without_scores_are_ordinary_ones():
    assert open_scored_pairs(["a text", "another text"], TEXT, "text") is None
    assert open_scored_pairs({"text": ["a b", "c d"], "score": [1, 2]}, TEXT, "text") is None


def test_of_several_columns_of_texts_usual_or_given_names_are_taken():
    rows = {
        "genre": ["news", "film", "news"],
        **dict(zip(("sentence1", "sentence2", "score"), zip(*ROWS), strict=True)),
    }
    data = {name: list(values) for name, values in rows.items()} | {"label": [3, 1, 2]}
    found = open_scored_pairs(data, TEXT, "text")
    assert found.names == ("sentence1", "sentence2", "score")
    found = open_scored_pairs(data, TEXT, "text", names=["genre", "sentence2", "label"])
    assert found.names == ("genre", "sentence2", "label") and found.scores.tolist() == [3, 1, 2]
    assert found.table.columns["text"][0] == "news"
    with pytest.raises(InputError, match="columns=genre,sentence3,label.*no column 'sentence3'"):
        open_scored_pairs(data, TEXT, "text", names=["genre", "sentence3", "label"])


def test_vectors_have_scored_pairs():
    draw = np.random.default_rng(0)
    data = {"a": draw.normal(size=(5, 3)), "b": draw.normal(size=(5, 3)), "similarity": np.arange(5.0)}
    found = open_scored_pairs(data, "x", "vector")
    assert found.table.columns["x"].shape == (10, 3) and found.table.kinds == {"x": "vector"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"a": ["b c", "d e", "f g"], "score": [1, 2, 3]}, "two columns of texts"),
        ({"a": ["b c", "d e", "f g"], "b": ["b c", "d e", "f g"], "score": ["1", "", "z"]}, "row 2: 'z' is no number"),
        ({"a": ["b c", "d e", "f g"], "b": ["b c", "d e", "f g"], "score": [2, 2, 2]}, "all scores are 2"),
        ({name: ["b c", "d e", "f g"] for name in "abc"} | {"score": [1, 2, 3]}, "call them sentence1 and sentence2"),
        ({"a": ["b c", "d e"], "b": ["b c", "d e"], "score": [1, 2]}, "2 scored pairs"),
    ],
)
def test_what_is_missing_is_said(data, message):
    with pytest.raises(InputError, match=message):
        open_scored_pairs(data, TEXT, "text")
