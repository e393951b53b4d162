import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, Columns
from coulomb.tables.groups import find_groups
from coulomb.tables.pictures import PictureRows
from coulomb.tables.table import RowNames


def test_columns_have_ids_and_labels():
    table = Columns({"text": ["a", "b"]}, ids=["first", "second"], labels=[3, -1], name="mine")
    assert len(table) == 2 and table.item_id(1) == "second" and list(table.columns) == ["text"]
    assert table.describe()["labeled"] == 1 and table.describe()["name"] == "mine"
    assert Columns({"text": ["a", "b"]}).item_id(1) == "1"


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({}, {}, "at least one"),
        ({"a": [1, 2], "b": [1]}, {}, "'a': 2, 'b': 1"),
        ({"a": [1, 2]}, {"ids": ["x"]}, "'ids': 1"),
        ({"a": [1, 2]}, {"labels": [0, 1, 2]}, "'labels': 3"),
        ({"a": [1, 2]}, {"groups": {"patient": [0]}}, "'patient': 1"),
        ({"a": [1, 2, 3]}, {"ids": ["x", "y", "x"]}, "1 of 3 are not unique"),
    ],
)
def test_columns_are_checked(columns, options, message):
    with pytest.raises(InputError, match=message):
        Columns(columns, **options)


def test_columns_have_groups():
    table = Columns({"text": ["a", "b", "c", "d"]}, groups={"patient": ["x", "y", "x", None]})
    groups = find_groups(table, "patient")
    assert groups.ids[0] == groups.ids[2] and len(set(groups.ids.tolist())) == 3 and groups.alone == 1
    with pytest.raises(InputError, match="patients.*patient"):
        find_groups(table, "patients")


def test_a_source_is_a_table_with_a_column_of_images():
    source = ArraySource(np.zeros((2, 4, 4), np.uint8))
    assert source.columns == {"image": source}


def test_rows_are_named_by_number_or_image():
    assert list(RowNames(np.array([4, 7]))) == ["4", "7"]
    assert list(RowNames(np.array([4, 7, 7, 9]))) == ["4", "7#0", "7#1", "9"]
    images = ArraySource(np.zeros((4, 2, 2), np.uint8))
    rows = PictureRows(images, np.array([1, 3, 1, 0]))
    assert list(RowNames(np.arange(4), rows, rows.at)) == ["1#0", "3", "1#1", "0"]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=20))
def test_names_of_rows_are_unique(rows):
    number, picture = (np.array([row[place] for row in rows], dtype=np.int64) for place in (0, 1))
    images = PictureRows(ArraySource(np.zeros((4, 2, 2), np.uint8)), picture)
    for names in (RowNames(number), RowNames(number, images, picture)):
        assert len(set(names)) == len(names) == len(rows)
    alone = [row for row in range(len(rows)) if (picture == picture[row]).sum() == 1]
    assert [RowNames(number, images, picture)[row] for row in alone] == [str(picture[row]) for row in alone]


def test_groups_may_be_read_when_they_are_needed():
    table = Columns({"text": ["a", "b"]}, groups=lambda: {"patient": [1, 2]})
    assert table.other_columns() == {"patient": [1, 2]}
    assert pickle.loads(pickle.dumps(table)).other_columns() == {}
