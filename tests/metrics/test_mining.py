"""Hard negatives, compared with the whole table of cosines in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.metrics import mining as module
from coulomb.metrics.mining import hard_negatives
from curation_cases import cosine_table


def table_of(first, second, ids, count, margin, relative, skip):
    """The definition for each row: (second ids in order, cosines, best positive)."""
    ids = np.asarray(ids)
    if ids.ndim == 1:
        ids = np.stack([np.arange(len(ids)), np.arange(len(ids)), ids], axis=1)
    cosine, result = cosine_table(first, second), []
    for i in range(len(first)):
        best = max(cosine[i, j] for j in range(len(first)) if (ids[j] == ids[i])[[0, *range(2, ids.shape[1])]].all())
        right = {ids[j, 1] for j in range(len(first)) if (ids[j] == ids[i]).any()}
        limit = min(
            np.inf if margin is None else best - margin, np.inf if relative is None else best - relative * abs(best)
        )
        wrong = {ids[j, 1]: cosine[i, j] for j in range(len(first)) if ids[j, 1] not in right and cosine[i, j] < limit}
        order = sorted(wrong, key=lambda cell: -wrong[cell])[skip : skip + count]
        result.append((order, [wrong[cell] for cell in order], best))
    return result


def pairs_of(rows=60, pictures=20, captions=40, width=5, seed=0):
    """Pictures with several captions, and captions of several pictures; equal cells have equal embeddings."""
    draw = np.random.default_rng(seed)
    ids = np.stack([draw.integers(0, pictures, rows), draw.integers(0, captions, rows)], axis=1)
    cells = draw.normal(size=(pictures, width)), draw.normal(size=(captions, width))
    return cells[0][ids[:, 0]].astype(np.float32), cells[1][ids[:, 1]].astype(np.float32), ids


def check(found, expected, ids):
    second = np.arange(len(ids)) if ids.ndim == 1 else ids[:, 1]
    for row, (cells, values, best) in enumerate(expected):
        kept = found.rows[row][found.rows[row] >= 0]
        assert second[kept].tolist() == cells
        np.testing.assert_allclose(found.cosines[row][: len(cells)], values, atol=1e-6)
        assert np.isnan(found.cosines[row][len(cells) :]).all() and (found.rows[row][len(cells) :] == -1).all()
        assert found.positive[row] == pytest.approx(best, abs=1e-6)
    assert found.short == sum(len(cells) < found.rows.shape[1] for cells, _, _ in expected)


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 10_000),
    st.integers(1, 40),
    st.integers(1, 5),
    st.sampled_from([None, 0.0, 0.05, 0.5]),
    st.sampled_from([None, 0.0, 0.3]),
    st.integers(0, 3),
)
def test_negatives_are_those_of_the_table(seed, rows, count, margin, relative, skip):
    first, second, ids = pairs_of(rows, seed=seed)
    found = hard_negatives(first, second, ids, count=count, margin=margin, relative=relative, skip=skip)
    check(found, table_of(first, second, ids, count, margin, relative, skip), ids)


def test_one_id_per_row_and_further_columns():
    draw = np.random.default_rng(3)
    first, second = draw.normal(size=(2, 50, 4)).astype(np.float32)
    group = draw.integers(0, 8, 50)
    found = hard_negatives(first, second, group, count=3)
    check(found, table_of(first, second, group, 3, 0.05, None, 0), group)
    assert (group[np.where(found.rows >= 0, found.rows, 0)] != group[:, None])[found.rows >= 0].all()
    ids = np.stack([np.arange(50), np.arange(50), group], axis=1)
    same = hard_negatives(first, second, ids, count=3)
    assert np.array_equal(same.rows, found.rows)


def test_many_right_cells_are_searched_past(monkeypatch):
    """A thousand captions of one picture are nearer to it than any other caption."""
    draw = np.random.default_rng(0)
    center = draw.normal(size=8)
    ids = np.stack([np.append(np.zeros(1000, int), [1, 2]), np.arange(1002)], axis=1)
    second = np.concatenate([center + 0.01 * draw.normal(size=(1000, 8)), -center + draw.normal(size=(2, 8))])
    first = np.concatenate([np.repeat(center[None], 1000, 0), draw.normal(size=(2, 8))])
    found = hard_negatives(first.astype(np.float32), second.astype(np.float32), ids, count=2)
    assert (np.sort(found.rows[:1000], axis=1) == [1000, 1001]).all()


def test_cells_closer_than_the_margin_are_left_out():
    second = np.array([[1, 0], [0.999, 0.045], [0.97, 0.24], [0, 1]], np.float32)
    first = np.repeat(second[:1], 4, axis=0)
    ids = np.stack([np.arange(4), np.arange(4)], axis=1)
    nearest = {
        margin: hard_negatives(first, second, ids, margin=margin).rows[0, 0] for margin in (None, 0.0, 0.01, 0.05)
    }
    assert nearest == {None: 1, 0.0: 1, 0.01: 2, 0.05: 3}
    assert hard_negatives(first, second, ids, margin=None, relative=0.02).rows[0, 0] == 2
    none = hard_negatives(first, second, ids, margin=1.5)
    assert none.short == 4 and (none.rows == -1).all()
    negative = hard_negatives(-first, second, ids, margin=None, relative=0.1)  # s⁺ = −1: nothing is below −1.1
    assert negative.rows[0, 0] == -1


def test_blocks_and_memory_mapped_features(tmp_path, monkeypatch):
    first, second, ids = pairs_of(200, 50, 90)
    expected = hard_negatives(first, second, ids, count=4)
    np.save(tmp_path / "x.npy", second)
    monkeypatch.setattr(module, "QUERIES", 7)
    monkeypatch.setattr(module, "SPARE", 0)
    found = hard_negatives(first, np.load(tmp_path / "x.npy", mmap_mode="r"), ids, count=4)
    assert np.array_equal(found.rows, expected.rows) and found.short == expected.short


def test_invalid_input_is_refused():
    first, second, ids = pairs_of(9)
    with pytest.raises(InputError, match="first has 9 rows, second 8"):
        hard_negatives(first, second[:8], ids)
    with pytest.raises(InputError, match=r"ids\[9, 1\]"):
        hard_negatives(first, second, ids[:, :1])
    with pytest.raises(InputError, match="count=0"):
        hard_negatives(first, second, ids, count=0)
    with pytest.raises(InputError, match="margin=-1"):
        hard_negatives(first, second, ids, margin=-1)
