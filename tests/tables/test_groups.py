import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.model_selection import StratifiedGroupKFold

from coulomb.ground.errors import InputError
from coulomb.tables import ArraySource, DatasetSource, open_source
from coulomb.tables.groups import Groups, find_groups, grouped_sentence, grouped_split, name_stem, require_apart


def groups_of(ids, option="house"):
    return Groups(option, option, np.asarray(ids, dtype=np.int64), [str(number) for number in range(max(ids) + 1)])


@pytest.fixture
def tree(tmp_path):
    """Two classes; the photos of houses 1 to 3 lie in folders of both classes."""
    for number in range(12):
        path = tmp_path / ["bath", "kitchen"][number % 2] / f"h{number % 3}" / f"house{number % 3}_{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((8, 8), number, dtype=np.uint8)).save(path)
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "bath" / "0012.png")
    return tmp_path


@pytest.mark.parametrize(
    ("path", "stem"),
    [
        ("a/house12_kitchen.jpg", "house12"),
        ("house12-3.JPG", "house12"),
        ("house 12 (3).png", "house 12"),
        ("frame0031.png", "frame"),
        ("p1_s2_0001.png", "p1_s2"),
        ("IMG_20240102_101112.jpg", "IMG_20240102"),
        ("0031.png", None),
        ("_7.png", None),
        ("kitchen.png", "kitchen"),
    ],
)
def test_name_stem(path, stem):
    assert name_stem(path) == stem


def test_groups_by_folder_and_name(tree):
    source = open_source(tree)
    paths = [source.item_id(index) for index in range(len(source))]
    by_name = find_groups(source, "name")
    assert (by_name.noun, by_name.names[:3], by_name.alone) == ("name stem", ["house0", "house1", "house2"], 1)
    for path, group in zip(paths, by_name.ids.tolist(), strict=True):
        assert group == (3 if path == "bath/0012.png" else int(path.rpartition("house")[2][0]))
    by_folder = find_groups(source, "folder")  # across classes
    assert by_folder.names == ["bath", "h0", "h1", "h2"] and by_folder.sizes.tolist() == [1, 4, 4, 4]
    second = find_groups(source, "folder:2")
    assert second.names[:3] == ["h0", "h1", "h2"] and (second.alone, second.sizes.tolist()) == (1, [4, 4, 4, 1])
    assert find_groups(source, "folder:1").names == ["bath", "kitchen"]


def test_groups_by_column(tmp_path):
    for number in range(8):
        Image.fromarray(np.full((8, 8), number, dtype=np.uint8)).save(tmp_path / f"{number}.png")
    rows = [f"{number}.png,{number % 2},{['7', '', 'x', 'x', '7', '-1', 'x', '7'][number]}" for number in range(8)]
    (tmp_path / "list.csv").write_text("\n".join(["path,label,name", *rows]))
    groups = find_groups(open_source(tmp_path / "list.csv"), "name")  # the column, not the file name
    assert groups.names == ["7", "x", "image 1", "image 5"] and groups.alone == 2
    assert groups.ids.tolist() == [0, 2, 1, 1, 0, 3, 1, 0]


@pytest.mark.parametrize("kind", ["int64", "float64", "timestamp[s]", "string"])
def test_groups_by_columns_of_parquet(kind, tmp_path):
    content = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(content, "PNG")
    houses = pa.array([1, 2, None, 1, 2, 2]).cast(pa.int64()).cast(kind)
    pq.write_table(
        pa.table({"image": [content.getvalue()] * 6, "label": [0, 1] * 3, "house": houses, "lists": [[1]] * 6}),
        tmp_path / "data.parquet",
    )
    source = open_source(tmp_path / "data.parquet")
    assert find_groups(source, "house").ids.tolist() == [0, 1, 2, 0, 1, 1]
    assert find_groups(source, "house").alone == 1
    with pytest.raises(InputError, match="group='hose': .*use one of house; did you mean 'house'"):
        find_groups(source, "hose")
    with pytest.raises(InputError, match="group='folder': the images of .* have no file names; use a column: house"):
        find_groups(source, "folder")


def test_groups_of_arrays(tmp_path):
    images = np.zeros((6, 8, 8), np.uint8)
    np.savez(tmp_path / "data.npz", images=images, labels=np.arange(6) % 2, patient=np.arange(6) // 2)
    assert find_groups(open_source(tmp_path / "data.npz"), "patient").ids.tolist() == [0, 0, 1, 1, 2, 2]
    for source in (ArraySource(images), DatasetSource([(image, 0) for image in images])):
        with pytest.raises(
            InputError, match="group='name': the images of .* have no file names; give a folder, or a table"
        ):
            find_groups(source, "name")
        with pytest.raises(InputError, match="group='patient': .* has no such column"):
            find_groups(source, "patient")


CASES = st.integers(0, 5).flatmap(
    lambda seed: st.tuples(
        st.just(seed),
        st.integers(8, 120),
        st.integers(2, 30),
        st.integers(1, 6),
        st.sampled_from([0.1, 0.2, 0.35, 0.5]),
    )
)


@given(CASES, st.booleans(), st.booleans())
def test_a_grouped_split_divides_no_group(case, labeled, nested):
    seed, images, count, classes, fraction = case
    draw = np.random.default_rng(seed)
    ids = np.unique(draw.integers(0, count, images), return_inverse=True)[1]
    labels = ids % classes if nested else draw.integers(-1, classes, images)
    labels = labels if labeled else None
    groups = groups_of(ids)
    try:
        train, test = grouped_split(labels, groups, fraction, seed)
    except InputError as error:
        assert "group='house'" in str(error)
        return
    assert np.array_equal(np.sort(np.concatenate([train, test])), np.arange(images))
    assert (np.diff(train) > 0).all() and (np.diff(test) > 0).all()
    assert train.dtype == test.dtype == np.int64
    assert not set(ids[train]) & set(ids[test])
    known = np.zeros(images, dtype=int) if labels is None else labels
    tested = np.isin(np.arange(images), test) & (known >= 0)
    assert tested.sum() >= fraction / 2 * (known >= 0).sum() > 0
    for label in np.unique(known[known >= 0]):
        assert (known[train] == label).any()  # at least one group stays in training
        members = ids[known == label]
        if fraction * len(members) >= 1 and len(np.unique(members)) > 1 and labels is not None and nested:
            assert (known[test] == label).any()
    only_unlabeled = np.setdiff1d(ids, ids[known >= 0])
    assert not set(only_unlabeled) & set(ids[test])


def test_a_grouped_split_is_exact_where_groups_allow_it():
    ids, labels = np.repeat(np.arange(50), 4), np.tile(np.arange(4), 50)
    train, test = grouped_split(labels, groups_of(ids), 0.2, 0)
    assert np.bincount(labels[test]).tolist() == [10] * 4 and len(train) == 160
    again, other = (grouped_split(labels, groups_of(ids), 0.2, seed)[1] for seed in (0, 1))
    assert np.array_equal(test, again) and not np.array_equal(test, other)


def test_a_grouped_split_is_better_balanced_than_that_of_scikit_learn():
    ours, theirs = [], []
    for seed in range(5):
        draw = np.random.default_rng(seed)
        ids = np.unique(draw.choice(40, 2000, p=draw.dirichlet(np.ones(40))), return_inverse=True)[1]
        kinds = draw.dirichlet(np.ones(5), size=ids.max() + 1)
        labels = np.array([draw.choice(5, p=kinds[group]) for group in ids])
        folds = StratifiedGroupKFold(5, shuffle=True, random_state=seed).split(labels, labels, ids)
        for test, errors in ((grouped_split(labels, groups_of(ids), 0.2, seed)[1], ours), (next(folds)[1], theirs)):
            errors.append(np.abs(np.bincount(labels[test], minlength=5) / np.bincount(labels) - 0.2).mean())
    assert np.mean(ours) < 0.75 * np.mean(theirs)


def test_large_groups_are_held_out_only_if_small_ones_do_not_suffice():
    ids = np.concatenate([np.zeros(40, int), np.arange(1, 61)])
    for seed in range(5):
        test = grouped_split(None, groups_of(ids), 0.2, seed)[1]
        assert len(test) == 20 and 0 not in ids[test]
    halves = np.repeat([0, 1], 20)
    assert len(grouped_split(None, groups_of(halves), 0.2, 0)[1]) == 20  # the only way


def test_each_class_is_tested_if_groups_have_one_class_each():
    labels, ids = np.repeat([0, 1, 2], 20), np.repeat(np.arange(6), 10)
    train, test = grouped_split(labels, groups_of(ids), 0.2, 0)
    assert set(labels[train]) == set(labels[test]) == {0, 1, 2}


@pytest.mark.parametrize(
    ("ids", "labels", "message"),
    [
        ([0] * 9, None, "all 9 images are in one group, '0'"),
        (list(range(9)), None, "no two of the 9 images share a house"),
        ([0] * 95 + [1] * 5, None, "only 5 of 100 labeled images.*'0' alone has 95% of the images"),
        ([0] * 9 + [1] * 9, [0] * 9 + [1] * 9, "only 0 of 18.*most classes have one house only"),
    ],
)
def test_groups_that_cannot_be_split(ids, labels, message):
    with pytest.raises(InputError, match=f"group='house': {message}"):
        grouped_split(None if labels is None else np.array(labels), groups_of(ids), 0.2, 0)
    with pytest.raises(InputError, match="test_fraction="):
        grouped_split(None, groups_of([0, 0, 1]), 1.0, 0)


def test_the_sentence_of_a_grouped_split():
    ids = np.repeat(np.arange(10), 4)
    labels = np.where(np.arange(40) % 4 == 3, -1, np.arange(40) % 2)
    groups = groups_of(ids)
    train, test = grouped_split(labels, groups, 0.2, 3)
    sentence = grouped_sentence(labels, groups, train, test, 3)
    assert (
        "8 of 40 images held out (20%, seed 3, stratified by class), 2 of 10 groups; no house is in both." in sentence
    )
    assert "Of 10 images without a label, 2 are held out with their group." in sentence
    alone = Groups("house", "house", ids, [str(number) for number in range(10)], alone=1)
    assert "1 image without a house is a group of its own." in grouped_sentence(None, alone, train, test, 3)
    single = np.where(np.arange(40) == train[0], 1, 0)
    assert "1 class has no test image" in grouped_sentence(single, groups, train, test, 3)


def test_groups_of_the_data_and_of_the_test_set_are_compared_by_name():
    first, second = groups_of([0, 0, 1]), Groups("house", "house", np.array([0, 1]), ["1", "image 1"], alone=1)
    with pytest.raises(InputError, match=r"group='house': 1 groups are in both the data and the test set \(1\)"):
        require_apart(first, second)
    require_apart(first, Groups("house", "house", np.array([0, 1]), ["7", "image 1"], alone=1))
