import numpy as np
import pytest

from coulomb.curation import best_first, duplicate_groups, duplicates, nearest_above, similar_pairs
from coulomb.curation.rows import blocks
from coulomb.errors import InputError
from curation_cases import cosine_table, crowded, normal


@pytest.fixture(params=[False, True], ids=["fp32", "bf16"])
def small_tiles(request, monkeypatch):
    """Products in fp32 or bf16, in tiles so small that every test crosses their borders."""
    monkeypatch.setattr(duplicates.machine, "FAST_BFLOAT16", request.param)
    monkeypatch.setattr(duplicates, "blocks", lambda count, size=48: blocks(count, min(size, 48)))


def greedy(x, order, above):
    """Representatives and similarities by the definition, in fp64."""
    table = cosine_table(x)
    heads, representative, similarity = [], np.arange(len(x)), np.ones(len(x))
    for row in order:
        if heads and table[row, heads].max() >= above:
            similarity[row] = table[row, heads].max()
            representative[row] = heads[int(table[row, heads].argmax())]
        else:
            heads.append(row)
    return representative, similarity


def all_pairs(parts):
    return {(i, j) for rows, columns, _ in parts for i, j in zip(rows.tolist(), columns.tolist(), strict=True)}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("above", [0.1, 0.6, 0.95, 0.999])
def test_groups_follow_the_definition_in_fp64(above, dtype, small_tiles):
    x = crowded(dtype=dtype)
    order = np.random.default_rng(1).permutation(len(x))
    found = duplicate_groups(x, above, order)
    representative, similarity = greedy(x, order, above)
    np.testing.assert_array_equal(found.representative, representative)
    np.testing.assert_allclose(found.similarity, similarity, atol=1e-12)


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


def test_a_chain_of_neighbours_is_not_one_group():
    angles = np.arange(40) * 0.2  # cosine of neighbours .98, of the ends below 0
    x = np.stack([np.cos(angles), np.sin(angles)], 1)[:12].astype(np.float32)
    found = duplicate_groups(x, 0.97)
    assert found.representative.tolist() == [0, 0, 2, 2, 4, 4, 6, 6, 8, 8, 10, 10]
    assert found.similarity.min() >= 0.97


def test_equal_rows_need_no_memory_for_their_pairs():
    """3000 equal rows have 4.5 million pairs."""
    import tracemalloc

    x = np.ones((3000, 8), np.float16)
    tracemalloc.start()
    found = duplicate_groups(x, 0.99)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (found.representative == 0).all()
    assert peak < 30e6  # NumPy's; one pair takes at least 16 bytes


def test_groups_do_not_depend_on_the_order_of_the_rows():
    x = crowded(dtype=np.float32)
    order = np.random.default_rng(1).permutation(len(x))
    found = duplicate_groups(x, 0.9, order)
    moved = np.random.default_rng(2).permutation(len(x))
    again = duplicate_groups(x[moved], 0.9, np.argsort(moved)[order])
    np.testing.assert_array_equal(moved[again.representative], found.representative[moved])


def test_only_rows_in_the_order_are_compared():
    found = duplicate_groups(np.ones((5, 2), np.float32), 0.9, np.array([3, 1]))
    assert found.representative.tolist() == [0, 3, 2, 3, 4]


def test_lists_have_the_largest_group_first_and_its_most_similar_member():
    x = np.array([[1, 0], [0.9, 0.1], [1, 0.01], [0, 1], [0, 2]], np.float32)
    groups = duplicate_groups(x, 0.95).lists()
    assert [(head, rows.tolist()) for head, rows in groups] == [(0, [2, 1]), (3, [4])]
    assert duplicate_groups(np.eye(3, dtype=np.float32)).lists() == []


def test_zeros_resemble_nothing():
    assert duplicate_groups(np.zeros((4, 3), np.float32), 0.5).lists() == []
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


def test_the_best_image_has_most_pixels_then_bytes_then_the_first_id():
    order = best_first(np.array([4, 9, 9, 9, 9]), np.array([9, 1, 5, 5, 5]), ["a", "b", "e", "d", "c"])
    assert order.tolist() == [4, 3, 2, 1, 0]


@pytest.mark.parametrize("above", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_outside_its_range_is_refused(above):
    with pytest.raises(InputError, match="above"):
        duplicate_groups(normal(4, 3), above)


def test_bad_rows_are_refused():
    x = normal(6, 3)
    x[2, 1] = np.nan
    with pytest.raises(InputError, match="1 of 6 rows have NaN"):
        duplicate_groups(x)
    with pytest.raises(InputError, match="2 dimensions instead of 3"):
        nearest_above(normal(6, 3), normal(6, 2))
    for order in ([0, 0], [6], [-1]):
        with pytest.raises(InputError, match="order"):
            duplicate_groups(normal(6, 3), order=np.array(order))
    for bad in (np.zeros((0, 3), np.float32), np.zeros(3, np.float32), np.zeros((2, 3), np.int64)):
        with pytest.raises(InputError, match="features"):
            duplicate_groups(bad)
