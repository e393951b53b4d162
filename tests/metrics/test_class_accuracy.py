import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, balanced_accuracy_score, confusion_matrix, recall_score

from coulomb.ground.errors import InputError
from coulomb.metrics.class_accuracy import by_frequency, class_table, confusions


def long_tail(seed=0):
    draw = np.random.default_rng(seed)
    train = np.repeat([0, 1, 2, 5], [300, 100, 20, 19])
    test = draw.choice([0, 1, 2, 5], 400)
    guess = np.where(draw.random(400) < 0.6, test, draw.choice([0, 1, 2, 5], 400))
    return draw.permutation(train), test, guess


def test_accuracy_per_class_is_recall():
    train, test, guess = long_tail()
    rows = class_table(train, test, {"knn": torch.from_numpy(guess), "linear": test}, ["a", "b", "c", "d", "e", "f"])
    assert [row["label"] for row in rows] == [0, 1, 2, 5] and [row["class"] for row in rows] == list("abcf")
    assert [row["train"] for row in rows] == [300, 100, 20, 19]
    assert [row["test"] for row in rows] == np.bincount(test)[[0, 1, 2, 5]].tolist()
    assert [row["knn"] for row in rows] == pytest.approx(recall_score(test, guess, average=None))
    assert all(row["linear"] == 1 for row in rows)
    weighted = sum(row["knn"] * row["test"] for row in rows) / len(test)
    assert weighted == pytest.approx(accuracy_score(test, guess))


def test_class_table_with_unknown_labels_and_classes_of_one_side():
    rows = class_table([0, 0, -1, 3], torch.tensor([0, -1, 7]), {"knn": [0, 7, 7]})
    assert rows == [
        {"label": 0, "class": "0", "train": 2, "test": 1, "knn": 1.0},
        {"label": 3, "class": "3", "train": 1, "test": 0, "knn": None},
        {"label": 7, "class": "7", "train": 0, "test": 1, "knn": 1.0},
    ]


def test_groups_by_the_published_thresholds():
    train, test, guess = long_tail()
    groups = by_frequency(class_table(train, test, {"knn": guess}))
    assert {name: group["classes"] for name, group in groups.items()} == {"many": 1, "medium": 2, "few": 1}
    assert groups["medium"]["train"] == 120 and groups["few"]["train"] == 19
    inside = np.isin(test, [1, 2])
    assert groups["medium"]["knn"] == pytest.approx(recall_score(test, guess, average=None)[1:3].mean())
    assert groups["medium"]["test"] == inside.sum()
    everything = by_frequency(class_table(train, test, {"knn": guess}), many_above=0, few_below=0)
    assert everything["medium"] is None and everything["few"] is None
    assert everything["many"]["knn"] == pytest.approx(balanced_accuracy_score(test, guess))


def test_classes_without_test_images_are_left_out_of_groups():
    groups = by_frequency(class_table([0, 1, 1], [1], {"knn": [1]}), many_above=1, few_below=2)
    assert groups["many"] == {"classes": 1, "train": 2, "test": 1, "knn": 1.0} and groups["few"] is None


@pytest.mark.parametrize(("many", "few"), [(10, 12), (-1, 0), (5, -1)])
def test_overlapping_thresholds_are_refused(many, few):
    with pytest.raises(InputError, match=f"many_above={many}, few_below={few}"):
        by_frequency([], many, few)


def test_prediction_of_another_length_is_refused():
    with pytest.raises(InputError, match=r"predicted\['knn'\] has shape \[1\]"):
        class_table([0], [0, 1], {"knn": [0]})


def test_confusions():
    _, test, guess = long_tail()
    found = confusions(torch.tensor([*test, -1]), [*guess, 0])
    dense = [[found[label].get(str(other), 0) for other in (0, 1, 2, 5)] for label in (0, 1, 2, 5)]
    assert dense == confusion_matrix(test, guess).tolist()
    assert all(n > 0 for row in found.values() for n in row.values())
