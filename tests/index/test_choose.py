import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.index.choose import choose_rows
from curation_cases import classes_of, cosine_table, normal


@pytest.mark.parametrize("strategy", ["typical", "diverse"])
def test_choices_are_new_different_and_repeatable(strategy):
    x, _ = classes_of(300, 6)
    labeled = np.arange(0, 40)
    chosen = choose_rows(x, 25, labeled, strategy=strategy, seed=3)
    assert len(set(chosen.tolist())) == 25 and not set(chosen.tolist()) & set(labeled.tolist())
    np.testing.assert_array_equal(chosen, choose_rows(x, 25, labeled, strategy=strategy, seed=3))


def test_typical_images_cover_the_classes_and_are_no_outliers():
    x, y = classes_of(400, 8, noise=0.2)
    x[:20] = normal(20, 16, seed=5) / 4
    chosen = choose_rows(x, 8)
    assert sorted(y[chosen].tolist()) == list(range(8))
    assert chosen.min() >= 20


def test_clusters_without_a_label_come_first():
    x, y = classes_of(400, 8, noise=0.2)
    labeled = np.flatnonzero(y < 6)[:200]
    assert set(y[choose_rows(x, 2, labeled)[:2]].tolist()) <= set(range(8))
    first = choose_rows(x, 1, np.array([np.flatnonzero(y == c)[0] for c in range(7)]))
    assert y[first].tolist() == [7]


def test_diverse_images_follow_the_greedy_rule():
    x, _ = classes_of(120, 4)
    table, labeled = cosine_table(x), [7, 8]
    chosen = choose_rows(x, 15, np.array(labeled), strategy="diverse").tolist()
    taken = list(labeled)
    for pick in chosen:
        closest = table[:, taken].max(1)
        closest[taken] = 9
        assert closest[pick] == pytest.approx(closest.min(), abs=1e-6)
        taken.append(pick)


@pytest.mark.parametrize("strategy", ["typical", "diverse"])
def test_all_images_and_copies_can_be_chosen(strategy):
    assert sorted(choose_rows(np.ones((6, 3), np.float32), 6, strategy=strategy).tolist()) == list(range(6))
    assert choose_rows(normal(1, 3), 1, strategy=strategy).tolist() == [0]


def test_bad_input():
    x = normal(10, 3)
    for number in (0, 11):
        with pytest.raises(InputError, match=f"number={number}"):
            choose_rows(x, number)
    with pytest.raises(InputError, match="every image has a label"):
        choose_rows(x, 1, np.arange(10))
    with pytest.raises(InputError, match="strategy='best'"):
        choose_rows(x, 1, strategy="best")
