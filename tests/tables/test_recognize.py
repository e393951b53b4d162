import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.tables.recognize import Asked, names_image, recognize


def found(values, kind=None, **options):
    return recognize(values, Asked("column", kind, "table", **options))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array(["a", "b"]), "text"),
        (pa.array(["a", "b"], pa.large_string()), "text"),
        (pa.array(["a", "b"]).dictionary_encode(), "text"),
        (pa.chunked_array([["a"], ["b"]]), "text"),
        (pa.array([["a"], ["b", "c"]]), "text"),
        (pa.array([[1, 2], [3, 4]]), "vector"),
        (pa.array([[1.0, 2], [3, 4]], pa.list_(pa.float32(), 2)), "vector"),
        (np.zeros((2, 3)), "vector"),
        (np.zeros((2, 3), np.int8), "vector"),
        (np.array(["a", "b"]), "text"),
        (np.array(["a", "b"], dtype=object), "text"),
        (np.zeros((2, 5, 5), np.uint8), "image"),
        (["a", None], "text"),
        ([(1, 2), [3, 4]], "vector"),
        ([np.zeros(2), None], "vector"),
        (["1", "2 or 3"], "text"),
    ],
)
def test_kinds_of_values(values, kind):
    assert found(values).kind == kind


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        (pa.array([1, 2]), None, "plain numbers.*'column:text'"),
        (pa.array([1, 2]), "image", "holds numbers, not cells of kind 'image'"),
        (np.array([True, False]), None, "plain numbers"),
        (["1", "2.5"], None, "plain numbers"),
        (pa.array([datetime.date(2020, 1, 1)]), None, "neither pictures, texts nor vectors"),
        (pa.array([{"a": 1}]), None, "neither pictures, texts nor vectors"),
        (pa.array([[["a"]]]), None, "neither texts nor vectors"),
        (pa.nulls(2), None, "all 2 cells are missing"),
        (pa.array([[], []], pa.list_(pa.float32())), None, "hold no numbers"),
        (np.zeros((2, 3, 4)), None, "gray pictures or matrices"),
        (np.zeros((2, 3), complex), None, "complex128"),
        (np.zeros((2, 0)), None, "hold no numbers"),
        (["a", "b"], "vector", "holds texts"),
        (np.zeros((2, 3)), "text", "an array of numbers"),
    ],
)
def test_values_without_a_kind(values, kind, message):
    with pytest.raises(InputError, match=f"table, column 'column': .*{message}"):
        found(values, kind)


def test_kinds_that_are_given():
    assert found(pa.array([3, None, 5]), "vector").cells.tolist() == [[3], [5]]
    assert found(pa.array([3, None, 5]), "vector").at.tolist() == [0, -1, 1]
    assert list(found(pa.array([3, 5]), "text").cells) == ["3", "5"]
    assert list(found(pa.array([1, 0, -1]), "text", class_names=["cat", "dog"]).cells)[:2] == ["dog", "cat"]
    assert found(pa.array([1, 0, -1]), "text", class_names=["cat", "dog"]).at.tolist() == [0, 1, -1]
    assert list(found(pa.array([datetime.date(2020, 1, 1)]), "text").cells) == ["2020-01-01"]
    assert list(found(pa.array([b"a", b"b"]), "text").cells) == ["a", "b"]
    assert found(["1", "", "2.5"], "vector").cells.tolist() == [[1], [2.5]]


cells = st.lists(st.one_of(st.none(), st.sampled_from(["", " ", "a", "b c", "ä"])), min_size=1, max_size=12)


@given(cells.filter(lambda texts: any(text and text.strip() for text in texts)))
def test_blank_texts_are_missing(texts):
    result = found(texts)
    kept = np.flatnonzero(result.at >= 0)
    assert kept.tolist() == [row for row, text in enumerate(texts) if text and text.strip()]
    assert list(result.take(kept)) == [texts[row] for row in kept]
    assert sum(count for count, _ in result.lost.values()) == len(texts) - len(kept)


@given(st.lists(st.one_of(st.none(), cells), min_size=1, max_size=6))
def test_lists_of_texts_have_rows(rows):
    plain = [(row, text) for row, texts in enumerate(rows) for text in texts or [] if text and text.strip()]
    try:
        result = found(pa.array(rows, pa.list_(pa.string())))
    except InputError:
        assert not plain
        return
    kept = np.flatnonzero(result.at >= 0)
    assert [(int(result.row[entry]), text) for entry, text in zip(kept, result.take(kept))] == plain
    empty = sum(not texts for texts in rows) + sum(
        not (text and text.strip()) for texts in rows for text in texts or []
    )
    assert sum(count for count, _ in result.lost.values()) == empty
    named = {example for _, examples in result.lost.values() for example in examples}
    assert named <= {
        f"row {row}" for row, texts in enumerate(rows) if not texts or not all(text and text.strip() for text in texts)
    }


def test_vectors_that_are_not_finite_are_missing():
    values = np.array([[1.0, 2], [np.nan, 1], [np.inf, 1], [3, 4]])
    result = found(values)
    assert result.at.tolist() == [0, -1, -1, 3] and result.lost == {"NaN or infinite values": (2, ["row 1", "row 2"])}
    assert result.take(np.array([0, 3])).tolist() == [[1, 2], [3, 4]]
    mapped = np.zeros((3, 2), np.float32)
    assert found(mapped).take(np.arange(3)) is mapped


def test_names_of_images():
    assert names_image("a/b.JPG") and names_image("x y.webp") and names_image("IMG.heic")
    assert not names_image("a sentence about a.jpg file") and not names_image("b.txt") and not names_image("jpg")
