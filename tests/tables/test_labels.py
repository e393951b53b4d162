import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, match_classes
from coulomb.tables.labels import read_labels


def labels_of(values, names=None):
    labels, result = read_labels(values, len(values), "list.csv", names)
    return (None if labels is None else labels.tolist()), result


def test_integers_are_class_numbers():
    assert labels_of([2, 0, 5]) == ([2, 0, 5], None)
    assert labels_of(np.array([2, 0, -1], dtype=np.int8)) == ([2, 0, -1], None)
    assert labels_of(["2", "0", "", "-1"]) == ([2, 0, -1, -1], None)
    assert labels_of(["2.0", "nan", "0.0"]) == ([2, -1, 0], None)  # what pandas writes for columns with missing values
    assert labels_of([2.0, float("nan"), None]) == ([2, -1, -1], None)
    assert labels_of(np.array([[1], [0]])) == ([1, 0], None)


def test_names_are_numbered_in_natural_order():
    assert labels_of(["c10", "c2", "", None, "c2"]) == ([1, 0, -1, -1, 0], ["c2", "c10"])
    assert labels_of(["3", "cat"]) == ([0, 1], ["3", "cat"])
    assert labels_of(["cat", "dog"], ["dog", "cat", "cow"]) == ([1, 0], ["dog", "cat", "cow"])


def test_all_unknown_is_no_labels():
    assert labels_of([-1, None, "", float("nan")]) == (None, None)


@pytest.mark.parametrize(
    ("values", "names", "message"),
    [
        ([0, 1.5], None, "label 1.5 of image 1 is not an integer"),
        (["0", "1.5"], None, "label 1.5 of image 1 is not an integer"),
        ([0, float("inf")], None, "label inf of image 1 is not an integer"),
        ([0, -2], None, "label -2 of image 1 is outside the range"),
        ([0, 10**9], None, "label 1000000000 of image 1 is outside the range"),
        ([0, 3], ["a", "b", "c"], "label 3 of image 1 is outside the range 0…2 of the 3 class names"),
        (["a", "x"], ["a", "b"], "label 'x' is not one of the classes a, b"),
        ([[1, 2], [0, 1]], None, "one-hot"),
        ([{}, {}], None, "a label is a dict"),
    ],
)
def test_errors_for_invalid_labels(values, names, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        labels_of(values, names)


def test_length_must_match():
    with pytest.raises(InputError, match="2 labels for 3 images"):
        read_labels([0, 1], 3, "here")


@given(st.lists(st.one_of(st.none(), st.integers(0, 50)), min_size=1))
def test_text_and_numbers_agree(values):
    as_text = ["" if value is None else str(value) for value in values]
    assert labels_of(values) == labels_of(as_text)


@given(st.lists(st.text("abc", min_size=1), min_size=1))
def test_labels_keep_their_names(values):
    labels, names = labels_of(values)
    assert [names[label] for label in labels] == values


def test_classes_are_matched_by_name():
    images = np.zeros((3, 4, 4), np.uint8)
    test = ArraySource(images, ["dog", "", "dog"], class_names=None)
    assert match_classes(test, ["cat", "dog"]).tolist() == [1, -1, 1]
    with pytest.raises(InputError, match="class dog is not among the training classes"):
        match_classes(test, ["cat", "cow"])
    numbered = ArraySource(images, [4, 0, 1])
    assert match_classes(numbered, ["a", "b"]).tolist() == [4, 0, 1]
