from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from coulomb.ground.errors import DataUnavailableError
from coulomb.tables import ArraySource, check, open_source
from coulomb.tables.check_groups import group_finding, group_like


def table(columns, labels=None, images=40):
    pixels = np.random.default_rng(0).integers(0, 256, (images, 8, 8), dtype=np.uint8)
    return ArraySource(pixels, labels, columns=lambda: {name: list(values) for name, values in columns.items()})


def suggested(columns, labels=None, copies=(), images=40):
    return [entry["option"] for entry in group_like(table(columns, labels, images), list(copies))]


def files(root, names):
    for number, name in enumerate(names):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, dtype=np.uint8)).save(path)
    return open_source(root)


def test_a_column_that_cannot_be_read_now_is_not_left_out():
    def lost():
        raise DataUnavailableError("the server is gone")

    pixels = np.zeros((40, 8, 8), dtype=np.uint8)
    read = iter([{"house": list(np.arange(40) // 4)}])
    with pytest.raises(DataUnavailableError, match="the server is gone"):
        group_like(ArraySource(pixels, columns=lambda: next(read, None) or lost()), [])


@pytest.mark.parametrize("name", ["house", "patient_id", "VideoID", "subjectNumber", "group", "user", "scenes", "id"])
def test_a_column_with_a_usual_name_and_repeated_values_is_suggested(name):
    assert suggested({name: np.arange(40) // 4}) == [name]


@pytest.mark.parametrize(
    ("name", "values", "labels"),
    [
        ("breed", np.arange(40) // 4, None),  # not a usual name
        ("label_id", np.arange(40) // 4, None),  # a class
        ("house", np.arange(40), None),  # all different
        ("house", np.arange(40) // 10, None),  # too few
        ("house", np.maximum(np.arange(40) - 30, 0), None),  # most images in one
        ("house", np.maximum(np.arange(40) - 9, 0), None),  # three quarters are alone
        ("house", np.arange(40) // 4, np.arange(40) // 4),  # as many as classes
        ("animal", np.arange(40) // 4, np.arange(40) // 8),  # possibly the kinds within classes
    ],
)
def test_columns_that_are_not_suggested(name, values, labels):
    assert suggested({name: values}, labels) == []


def test_large_groups_need_a_name_that_is_surely_a_group():
    values = np.arange(400) // 40
    assert suggested({"patient": values, "object": values}, images=400) == ["patient"]


def test_copies_show_a_group_without_a_usual_name():
    values = np.arange(40) // 4
    inside, across = [0, 1], [0, 20]
    assert suggested({"batch": values}, copies=[inside, [8, 9], across]) == ["batch"]
    assert suggested({"batch": values}, copies=[inside, across]) == []
    first = group_like(table({"house": np.arange(40) % 10, "batch": values}), [inside])[0]  # the one that keeps copies
    assert (first["option"], first["copies"]) == ("batch", 1.0)
    assert "exact copies are in the same group" in group_finding([first])


def test_file_names_with_shared_stems(tmp_path):
    names = [f"{['bath', 'kitchen'][number % 2]}/house{number // 4}_{number}.png" for number in range(40)]
    suggestions = group_like(files(tmp_path, names), [])
    assert [entry["option"] for entry in suggestions] == ["name"]
    assert "file names share 10 stems, with 4 images each" in group_finding(suggestions)
    assert "--group name keeps every name stem on one side" in group_finding(suggestions)


def test_names_of_classes_and_numbers_are_not_stems(tmp_path):
    classes = [f"{kind}/{kind}_{number}.png" for kind in "abcdefg" for number in range(6)]
    assert group_like(files(tmp_path / "classes", classes), []) == []
    assert group_like(files(tmp_path / "numbers", [f"{number:03}.png" for number in range(40)]), []) == []


def test_folders_below_the_classes(tmp_path):
    names = [f"{['bath', 'kitchen'][number % 2]}/house{number // 4}/{number}.png" for number in range(40)]
    assert [entry["option"] for entry in group_like(files(tmp_path, names), [])] == ["folder"]


def test_check_recommends_the_group_once_and_not_as_a_label():
    source = table({"house": np.arange(40) // 4, "kind": np.arange(40) % 4})
    result = check(source, progress=False)
    assert [entry["option"] for entry in result["groups"]] == ["house"]
    assert [entry["name"] for entry in result["other_columns"]] == ["kind"]
    assert sum("--group house keeps every house on one side" in finding for finding in result["findings"]) == 1
    assert check(source, progress=False, suggest_groups=False)["groups"] == []


def test_built_in_digits_have_no_groups():
    assert group_like(open_source("digits"), []) == []


SHARED = Path(__file__).parents[3] / "shared" / "data"


@pytest.mark.parametrize(
    ("name", "options"), [("rooms", ["house", "name"]), ("cifar10-jpeg-test", []), ("photos1000", [])]
)
def test_groups_of_real_images(name, options):
    path = SHARED / f"{name}.parquet"
    if not path.exists():
        pytest.skip(f"needs {name}.parquet in ../shared/data")
    assert [entry["option"] for entry in group_like(open_source(path), [])] == options
