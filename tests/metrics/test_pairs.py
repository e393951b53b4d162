import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.metrics import pairs as module
from coulomb.metrics.pairs import nearest_above, similar_pairs, strongest_pairs
from coulomb.metrics.rows import blocks
from curation_cases import cosine_table, crowded, normal


@pytest.fixture(params=[False, True], ids=["fp32", "bf16"])
def small_tiles(request, monkeypatch):
    """Products in fp32 or bf16, in tiles so small that every test crosses their borders."""
    monkeypatch.setattr(module.machine, "FAST_BFLOAT16", request.param)
    monkeypatch.setattr(module, "blocks", lambda count, size=48: blocks(count, min(size, 48)))


def all_pairs(parts):
    return {(i, j) for rows, columns, _ in parts for i, j in zip(rows.tolist(), columns.tolist(), strict=True)}


@pytest.mark.parametrize("above", [0.6, 0.95, 0.999])
def test_pairs_are_those_of_fp64(above, small_tiles):
    x = crowded()
    wanted = {tuple(pair) for pair in np.argwhere(np.triu(cosine_table(x), 1) >= above).tolist()}
    assert all_pairs(similar_pairs(x, above)) == wanted


def test_pairs_a_hair_from_the_threshold_are_decided_in_fp64(small_tiles):
    """Cosines within 1e-7 of .95 on both sides: fp32 cannot tell them apart."""
    base = np.zeros((1, 8))
    base[0, 0] = 1
    angles = 0.95 + np.linspace(-1e-7, 1e-7, 40)
    others = np.zeros((40, 8))
    others[:, 0], others[:, 1] = angles, np.sqrt(1 - angles**2)
    keys = np.concatenate([others, -others])
    wanted = {(0, column) for column in np.flatnonzero(cosine_table(base, keys)[0] >= 0.95).tolist()}
    assert 10 < len(wanted) < 30
    assert all_pairs(similar_pairs(base, 0.95, keys)) == wanted


@pytest.mark.parametrize("most", [1, 3, 16])
@pytest.mark.parametrize("above", [0.1, 0.6, 0.95])
def test_the_strongest_pairs_of_each_row_are_those_of_fp64(above, most, small_tiles):
    x = crowded(dtype=np.float32)
    order = np.random.default_rng(1).permutation(len(x))[:300]
    found = strongest_pairs(x, above, order, most)
    table = np.triu(cosine_table(x[order]), 1)
    similar = np.where(table >= above, table, -np.inf)
    similar = np.maximum(similar, similar.T)
    lists = np.sort(-similar, 1)[:, :most]
    for row in range(len(order)):
        own = [(found.rows == row) & found.own[:, 0], (found.columns == row) & found.own[:, 1]]
        values = np.sort(-found.cosines[own[0] | own[1]])
        np.testing.assert_allclose(values, lists[row][np.isfinite(lists[row])], atol=1e-6)
    assert (found.rows < found.columns).all() and found.own.any(1).all() and (np.diff(found.cosines) <= 0).all()


def test_zeros_resemble_nothing():
    assert not all_pairs(similar_pairs(np.zeros((4, 3), np.float32), 0.5))


def test_leaks_are_the_nearest_keys(small_tiles):
    x, keys = crowded(), crowded(seed=3)
    keys[:90] = x[100:190]
    column, cosine = nearest_above(x, keys, 0.9)
    table = cosine_table(x, keys)
    np.testing.assert_array_equal(column >= 0, table.max(1) >= 0.9)
    near = column >= 0
    np.testing.assert_allclose(cosine[near], table.max(1)[near], atol=1e-12)
    np.testing.assert_allclose(table[near, column[near]], table.max(1)[near], atol=1e-12)
    assert near[100:190].all() and (cosine[~near] == -np.inf).all()


@pytest.mark.parametrize("above", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_outside_its_range_is_refused(above):
    with pytest.raises(InputError, match="above"):
        list(similar_pairs(normal(4, 3), above))


def test_bad_rows_are_refused():
    with pytest.raises(InputError, match="2 dimensions instead of 3"):
        nearest_above(normal(6, 3), normal(6, 2))
    x = normal(6, 3)
    x[2, 1] = np.nan
    with pytest.raises(InputError, match="1 of 6 rows"):
        list(similar_pairs(x, 0.9))
