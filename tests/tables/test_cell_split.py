import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.tables import Columns
from coulomb.tables.cell_split import (
    components,
    equal_cells_split,
    joint_ids,
    shared_cells,
    split_rows,
)
from coulomb.tables.groups import find_groups

tables_of_ids = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(st.integers(0, 12), min_size=width, max_size=width), min_size=2, max_size=40)
)


def joined(rows):
    """Components by an independent method: sets are merged until none touch."""
    groups = [({(place, cell) for place, cell in enumerate(row)}, {number}) for number, row in enumerate(rows)]
    merged = True
    while merged:
        merged = False
        for left in groups:
            touching = [right for right in groups if right is not left and right[0] & left[0]]
            if touching:
                for cells, members in touching:
                    left[0].update(cells)
                    left[1].update(members)
                groups = [each for each in groups if each not in touching]
                merged = True
                break
    return {frozenset(members) for _, members in groups}


@given(tables_of_ids)
def test_components(rows):
    found = components(np.array(rows))
    assert {frozenset(np.flatnonzero(found == each).tolist()) for each in np.unique(found)} == joined(rows)


@given(tables_of_ids, st.floats(0.05, 0.9), st.integers(0, 3))
def test_no_cell_is_on_both_sides(rows, fraction, seed):
    ids = np.array(rows)
    try:
        train, test, sentence = equal_cells_split(ids, fraction, seed)
    except InputError as error:
        # Refused only where the components that fit into the test part have less than half of its rows.
        sizes = [len(each) for each in joined(rows)]
        fit = sum(size for size in sizes if size <= round(fraction * len(rows)))
        assert "can be held out" in str(error) and (fit < fraction / 2 * len(rows) or len(sizes) == 1)
        return
    assert sorted([*train, *test]) == list(range(len(rows))) and len(test) and len(train)
    for column in ids.T:
        assert not set(column[train]) & set(column[test])
    assert sentence.startswith(f"{len(test)} of {len(rows)} rows held out")
    again = equal_cells_split(ids, fraction, seed)
    assert again[0].tolist() == train.tolist() and again[1].tolist() == test.tolist()


def test_the_fraction_is_met_and_depends_on_the_seed():
    ids = np.column_stack([np.arange(1000), np.random.default_rng(0).integers(0, 700, 1000)])
    sizes = {len(equal_cells_split(ids, 0.2, seed)[1]) for seed in range(5)}
    assert sizes == {200}
    assert equal_cells_split(ids, 0.2, 0)[1].tolist() != equal_cells_split(ids, 0.2, 1)[1].tolist()
    assert len(equal_cells_split(np.arange(1000), 0.25, 0)[1]) == 250


def test_a_large_component_stays_in_training_and_is_named():
    ids = np.column_stack([np.arange(100), np.r_[np.zeros(70, int), np.arange(1, 31)]])
    train, _, sentence = equal_cells_split(ids, 0.2, 0, names=["image", "caption"])
    assert set(range(70)) <= set(train.tolist())
    assert "no image or caption is in both parts" in sentence
    assert (
        "One group has 70 of the 100 rows (70%)" in sentence and "the most frequent caption is in 70 rows" in sentence
    )


def test_where_nearly_all_rows_are_joined_the_error_says_what_to_do():
    ids = np.column_stack([np.arange(100) // 2, np.arange(100) % 3])
    with pytest.raises(InputError, match="only 0 of 100 rows.*most frequent caption is in 34 rows.*--group image"):
        equal_cells_split(ids, 0.2, 0, names=["image", "caption"])
    with pytest.raises(InputError, match="Give a test set"):
        equal_cells_split(np.zeros((10, 2), int), 0.2, 0)
    with pytest.raises(InputError, match="1 row cannot be split"):
        equal_cells_split(np.zeros((1, 1), int), 0.5, 0)
    with pytest.raises(InputError, match="test_fraction=1"):
        equal_cells_split(ids, 1, 0)


def test_rows_are_split_by_cells_and_groups():
    captions, houses = ["a", "a", "c", "d", "e", "f", "g", "h", "i", "j"], [0, 1, 2, 2, 3, 3, 4, 4, None, None]
    table = Columns({"x": np.arange(10.0)[:, None], "caption": captions}, groups={"house": houses})
    for seed in range(5):
        train, test, sentence = split_rows(table, 0.2, seed, group="house")
        assert len(test) == 2 and len(train) == 8
        for values in (captions, houses):
            known = [{values[row] for row in side} - {None} for side in (train, test)]
            assert not known[0] & known[1]
        assert "no x, caption or house is in both parts" in sentence
        assert "2 rows without a house are groups of their own" in sentence
        train, test, sentence = split_rows(table, 0.2, seed, group="caption")
        assert "no caption is in both parts" in sentence
    with pytest.raises(InputError, match="houses.*did you mean 'house'"):
        split_rows(table, 0.2, 0, group="houses")


def test_hard_negatives_do_not_join_rows():
    columns = {"a": list("abcd"), "b": list("efgh"), "n": ["same"] * 4}
    table = Columns(columns, negatives=("n",))
    _, test, sentence = split_rows(table, 0.25, 0)
    assert len(test) == 1 and "no a or b is in both" in sentence
    with pytest.raises(InputError, match="most frequent n is in 4 rows"):
        split_rows(Columns(columns), 0.25, 0)


def test_a_column_is_a_group():
    table = Columns(
        {"caption": ["a cat", "a dog", " a cat"], "x": np.array([[1.0], [2.0], [2.0]])}, ids=["p", "q", "r"]
    )
    groups = find_groups(table, "caption")
    assert groups.ids.tolist() == [0, 1, 0] and groups.names == ["a cat", "a dog"] and groups.noun == "caption"
    assert find_groups(table, "x").names == ["p", "q"]
    with pytest.raises(InputError, match="captoin.*did you mean 'caption'"):
        find_groups(table, "captoin")


def test_shared_cells_are_counted():
    train = Columns({"a": ["x", "y", "z"], "b": ["1", "2", "3"]})
    test = Columns({"a": ["x", "new", "x ", "w"], "b": ["1", "2", "9", "8"]})
    shared = shared_cells(*joint_ids([train, test], ["a", "b"]), ["a", "b"])
    assert (shared.rows, shared.pairs, shared.any, shared.total) == ((2, 2), 1, 3, 4)
    assert re.search("3 of 4 test rows.*a of 2, b of 2, 1 with the whole row.*test rows 0, 1, 2", shared.sentence())
    other = Columns({"a": ["p"], "b": ["q"]})
    assert shared_cells(*joint_ids([train, other], ["a", "b"]), ["a", "b"]).sentence() is None
    with pytest.raises(InputError, match="'a' is text and vector"):
        joint_ids([train, Columns({"a": np.zeros((1, 2))})], ["a"])


@given(tables_of_ids)
def test_columns_that_are_numbered_together(rows):
    ids = np.array(rows)
    found = components(ids, ["text"] * ids.shape[1])
    assert (found == components(np.array([[*row] for row in _same_column(rows)]))).all()


def _same_column(rows):
    """The rows with one 0/1 column per cell, in which rows without the cell have values of their own."""
    cells = sorted({cell for row in rows for cell in row})
    return [[0 if cell in row else number + 1 for cell in cells] for number, row in enumerate(rows)]


def test_a_text_is_the_same_in_two_columns():
    table = Columns({"a": ["x", "y", "z", "w"], "b": ["y", "p", "q", "r"]})
    (ids,) = joint_ids([table], ["a", "b"])
    assert ids[1, 0] == ids[0, 1]
    assert components(ids).tolist() == [0, 1, 2, 3] and components(ids, ["text", "text"]).tolist() == [0, 0, 1, 2]
    test = Columns({"a": ["new"], "b": ["x"]})
    train, test = joint_ids([table, test], ["a", "b"])
    assert not shared_cells(train, test, ["a", "b"]).any
    assert shared_cells(train, test, ["a", "b"], alike=["text", "text"]).rows == (0, 1)
