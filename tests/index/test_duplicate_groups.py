import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.index.duplicate_groups import duplicate_groups, keep_best
from curation_cases import cosine_table, crowded, normal


def group_numbers(x, above, **options):
    numbers = np.full(len(x), -1)
    for number, rows in enumerate(duplicate_groups(x, above, **options)):
        assert len(rows) > 1 and (numbers[rows] == -1).all()
        numbers[rows] = number
    return numbers


def alike_table(x):
    table = cosine_table(x)
    np.fill_diagonal(table, -np.inf)
    return table


@st.composite
def features(draw):
    """Rows of few dimensions, some of them near-copies, so that pairs of all strengths meet."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    n, dim = draw(st.integers(2, 40)), draw(st.integers(2, 5))
    x = random.normal(size=(n, dim)).astype(np.float32)
    copies = draw(st.integers(0, n // 2))
    x[n - copies :] = x[:copies] + draw(st.sampled_from([0.01, 0.05, 0.2])) * random.normal(size=(copies, dim))
    return x


thresholds = st.sampled_from([0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99])
partners = st.sampled_from([1, 2, 3, 16])


@pytest.fixture
def most(monkeypatch):
    """Sets how many partners of a row are visited; few, so that small examples have crowds."""

    def set_to(number):
        monkeypatch.setattr("coulomb.index.duplicate_groups.MOST_PARTNERS", number)

    return set_to


LAWS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@LAWS
@given(features(), thresholds, partners)
def test_every_image_with_a_partner_is_in_a_group_and_no_other(most, x, above, number):
    most(number)
    np.testing.assert_array_equal(group_numbers(x, above) >= 0, alike_table(x).max(1) >= above)


@LAWS
@given(features(), thresholds, thresholds)
def test_a_lower_threshold_never_drops_an_image(x, one, other):
    low, high = sorted([one, other])
    assert not ((group_numbers(x, high) >= 0) & (group_numbers(x, low) < 0)).any()


@LAWS
@given(features(), thresholds, partners)
def test_a_pair_is_never_parted_for_a_weaker_one(most, x, above, number):
    most(number)
    table, numbers = alike_table(x), group_numbers(x, above)
    together = (numbers[:, None] == numbers) & (numbers >= 0)
    strongest = np.where(together, table, -np.inf).max(1)
    i, j = np.nonzero(np.triu(table >= above) & ~together)
    assert (np.maximum(strongest[i], strongest[j]) >= table[i, j] - 1e-9).all()


@LAWS
@given(features(), thresholds)
def test_what_is_not_kept_is_like_a_kept_image_of_its_group(x, above):
    table = cosine_table(x)
    for rows in duplicate_groups(x, above):
        best = rows[np.random.default_rng(0).permutation(len(rows))]
        like, similarity = keep_best(x, best, above)
        kept = best[like == best]
        assert like[0] == best[0] and 0 < len(kept) < len(rows) and np.isin(like, kept).all()
        dropped = like != best
        np.testing.assert_allclose(similarity[dropped], table[best, like][dropped], atol=1e-12)
        assert (similarity[dropped] >= above).all()
        assert (table[np.ix_(kept, kept)][~np.eye(len(kept), dtype=bool)] < above).all()


def test_a_near_copy_stays_with_its_original_at_a_lower_threshold():
    """The copy is also .805 similar to a better image: with .8 it went there, and the original was listed nowhere."""
    copy = np.array([1.0, 0, 0, 0])
    original = np.array([0.959, np.sqrt(1 - 0.959**2), 0, 0])
    better = np.array([0.805, 0, np.sqrt(1 - 0.805**2), 0])
    x = np.stack([better, copy, original]).astype(np.float32)
    assert [rows.tolist() for rows in duplicate_groups(x, 0.95)] == [[1, 2]]
    assert {1, 2} <= set(duplicate_groups(x, 0.8)[0].tolist())


def test_a_chain_of_neighbors_is_not_one_group():
    angles = np.arange(12) * 0.2  # cosine of neighbors .98, of the ends below 0
    x = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    found = duplicate_groups(x, 0.97)
    assert sum(map(len, found)) == 12 and max(map(len, found)) <= 4


def test_copies_of_one_image_are_one_group_however_many():
    """Of a row of 400 equal ones, 16 partners are visited."""
    x = crowded(dtype=np.float32)
    x[:200], x[200:] = x[0], x[201]
    assert [len(rows) for rows in duplicate_groups(x, 0.999)] == [200, 200]


def test_equal_rows_need_no_memory_for_their_pairs():
    """3000 equal rows have 4.5 million pairs."""
    import tracemalloc

    x = np.ones((3000, 8), np.float16)
    tracemalloc.start()
    found = duplicate_groups(x, 0.99)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(rows) for rows in found] == [3000]
    assert peak < 60e6  # NumPy's; one pair takes at least 16 bytes


def test_groups_do_not_depend_on_the_order_of_the_rows():
    x = crowded(dtype=np.float32)
    order = np.random.default_rng(1).permutation(len(x))
    found = duplicate_groups(x, 0.9, order)
    moved = np.random.default_rng(2).permutation(len(x))
    again = duplicate_groups(x[moved], 0.9, np.argsort(moved)[order])
    assert [set(moved[rows].tolist()) for rows in again] == [set(rows.tolist()) for rows in found]


def test_only_rows_in_the_order_are_compared():
    (found,) = duplicate_groups(np.ones((5, 2), np.float32), 0.9, np.array([3, 1]))
    assert found.tolist() == [3, 1]


def test_pairs_that_are_given_count_as_alike():
    x = np.eye(4, dtype=np.float32)
    also = frozenset({(0, 2)})
    (found,) = duplicate_groups(x, 0.9, also=also)
    assert found.tolist() == [0, 2]
    assert keep_best(x, found, 0.9, also)[0].tolist() == [0, 0]
    assert keep_best(x, np.array([0, 1]), 0.9, also)[0].tolist() == [0, 1]


def test_both_products_find_the_same_groups(monkeypatch):
    found = []
    for half in (False, True):
        monkeypatch.setattr("coulomb.ground.machine.FAST_BFLOAT16", half)
        found.append([rows.tolist() for rows in duplicate_groups(crowded(dtype=np.float32), 0.8)])
    assert found[0] == found[1]


def test_zeros_are_in_no_group():
    assert duplicate_groups(np.zeros((4, 3), np.float32), 0.5) == []


@pytest.mark.parametrize("above", [0, -0.5, 1.01, float("nan")])
def test_a_threshold_outside_its_range_is_refused(above):
    with pytest.raises(InputError, match="above"):
        duplicate_groups(normal(4, 3), above)


def test_bad_rows_are_refused():
    x = normal(6, 3)
    x[2, 1] = np.nan
    with pytest.raises(InputError, match="1 of 6 rows have NaN"):
        duplicate_groups(x)
    for order in ([0, 0], [6], [-1]):
        with pytest.raises(InputError, match="order"):
            duplicate_groups(normal(6, 3), order=np.array(order))
    for bad in (np.zeros((0, 3), np.float32), np.zeros(3, np.float32), np.zeros((2, 3), np.int64)):
        with pytest.raises(InputError, match="features"):
            duplicate_groups(bad)
