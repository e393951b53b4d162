import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.index.few_labels import UNVALIDATED, _threshold, classify_rows
from curation_cases import classes_of, normal


def few(noise=0.35, labeled=40):
    x, y = classes_of(600, 4, noise=noise)
    given = np.full(600, -1)
    given[:labeled] = y[:labeled] * 3
    return x, y * 3, given


def test_the_rest_is_classified():
    x, y, given = few()
    found = classify_rows(x, given)
    assert found.classes.tolist() == [0, 3, 6, 9]
    np.testing.assert_allclose(found.probabilities.sum(1), 1, atol=1e-5)
    assert (found.predicted == y).mean() > 0.97
    best = np.sort(found.probabilities, 1)
    np.testing.assert_allclose(found.margin, best[:, -1] - best[:, -2], atol=1e-6)


def test_sure_predictions_are_right_more_often():
    x, y, given = few(noise=2.5, labeled=200)
    found = classify_rows(x, given, target=0.9)
    right = found.predicted == y
    assert 0.1 < found.unsure.mean() < 0.95
    assert right[~found.unsure].mean() > right.mean() + 0.05
    assert found.sure_accuracy >= 0.9 > found.accuracy


def test_the_threshold_is_the_smallest_margin_with_the_accuracy_wanted():
    margin, right = np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.4]), np.array([1, 1, 0, 1, 1, 0])
    assert _threshold(margin, right, 0.8) == 0.5
    assert _threshold(margin, right, 1.0) == 0.8
    assert _threshold(margin, right, 0.1) == 0.4
    assert _threshold(margin, np.zeros(6), 0.5) > 1
    assert _threshold(np.array([0.5, 0.5]), np.array([1, 0]), 0.9) > 1  # equal margins stay together


def test_too_few_labels_for_a_measurement():
    x, _, given = few(labeled=12)
    found = classify_rows(x, given)
    assert (found.accuracy, found.sure_accuracy, found.threshold) == (None, None, UNVALIDATED)


def test_single_images_of_a_class_are_allowed():
    x, _, given = few()
    given[500] = 77
    assert 77 in classify_rows(x, given).classes


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (np.full(10, -1), "0 different classes"),
        (np.array([4] * 3 + [-1] * 7), "1 different classes"),
        (np.zeros(9, int), "must be 10 integers"),
    ],
)
def test_labels_that_give_no_classifier_are_refused(labels, reason):
    with pytest.raises(InputError, match=reason):
        classify_rows(normal(10, 4), labels)
    with pytest.raises(InputError, match="target=0"):
        classify_rows(normal(10, 4), np.arange(10), target=0)


@pytest.mark.parametrize(("noise", "target"), [(0.1, 0.95), (2.5, None)])
def test_by_default_sure_predictions_make_half_the_errors(noise, target):
    """95% of the predictions for hard classes would be unsure if 95% of the others had to be right."""
    x, y = classes_of(600, 5, noise=noise)
    labels = np.where(np.arange(600) < 150, y, -1)
    found = classify_rows(x, labels)
    assert found.target == pytest.approx(target or (1 + found.accuracy) / 2)
    assert (~found.unsure).mean() > (0.9 if target else 0.1)
    assert target or (~found.unsure).sum() > (~classify_rows(x, labels, target=0.95).unsure).sum()
