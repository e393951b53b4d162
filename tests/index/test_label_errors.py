import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.index.folds import stratified_folds
from coulomb.index.label_errors import find_label_errors, probe_probabilities
from curation_cases import classes_of, normal


def with_flips(n=600, flips=30):
    x, y = classes_of(n, 5)
    given = y.copy()
    given[:flips] = (given[:flips] + 1) % 5
    return x, y, given


def test_planted_flips_come_first_with_the_right_suggestion():
    x, y, given = with_flips()
    found = find_label_errors(x, given)
    assert set(found.rows[:30].tolist()) == set(range(30))
    np.testing.assert_array_equal(found.suggested[:30], y[found.rows[:30]])
    assert (np.diff(found.confidence) <= 0).all() and found.judged == 600
    assert (found.suggested != given[found.rows]).all()


def test_the_cutoff_keeps_planted_flips_and_leaves_out_most_of_the_rest():
    """Classes that overlap: a third of all labels is suspicious, as in a hard data set."""
    x, y = classes_of(1500, 5, noise=1.6)
    given, flipped = y.copy(), np.arange(75)
    given[flipped] = (given[flipped] + 1) % 5
    found = find_label_errors(x, given)
    listed = found.rows[found.confidence >= found.cutoff]
    assert len(found.rows) > 300 and len(listed) < 150
    assert np.isin(listed, flipped).mean() > 2 * np.isin(found.rows, flipped).mean()
    assert found.cutoff == find_label_errors(x, given).cutoff


def test_too_few_images_have_no_cutoff():
    x, _, given = with_flips(100, 5)
    assert find_label_errors(x, given).cutoff == 0


def test_images_without_a_label_are_neither_judged_nor_used():
    x, _, given = with_flips()
    given[300:] = -1
    found = find_label_errors(x, given)
    alone = find_label_errors(x[:300], given[:300])
    np.testing.assert_array_equal(found.rows, alone.rows)
    np.testing.assert_allclose(found.confidence, alone.confidence, atol=1e-5)
    assert found.rows.max() < 300


def test_class_numbers_may_have_gaps_and_single_images_are_counted():
    x, _, given = with_flips()
    given = given * 7 + 3
    given[50], given[51] = 1000, 2000
    found = find_label_errors(x, given)
    assert (found.single, found.judged) == (2, 598)
    assert not {50, 51} & set(found.rows.tolist())
    assert set(np.unique(found.suggested)) <= {3, 10, 17, 24, 31}


def test_no_image_trains_its_own_probe():
    """With random labels an image that took part in the fit would be recognized, in 32 dimensions by far above chance."""
    x, y = normal(60, 64), np.random.default_rng(0).integers(0, 2, 60)
    held_out = probe_probabilities(x, np.arange(60), y, 0)
    assert (held_out.argmax(1) == y).mean() < 0.75


def test_every_fold_has_every_class():
    classes = np.repeat(np.arange(4), [100, 50, 7, 2])
    fold = stratified_folds(classes, 0)
    for number in range(3):
        assert set(fold[classes == number]) == set(range(5))
    assert len(set(fold[classes == 3])) == 2
    np.testing.assert_array_equal(fold, stratified_folds(classes, 0))


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.full(10, -1), "0 classes"),
        (np.zeros(10, int), "1 classes"),
        (np.arange(10), "0 classes"),
        (np.zeros(9, int), "must be 10 integers"),
        (np.zeros(10), "must be 10 integers"),
    ],
)
def test_labels_that_cannot_be_judged_are_refused(labels, reason):
    with pytest.raises(InputError, match=reason):
        find_label_errors(normal(10, 4), labels)
