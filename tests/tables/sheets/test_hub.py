import io
import pickle

import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.tables.columns import open_columns

datasets = pytest.importorskip("datasets")


def png(value):
    out = io.BytesIO()
    Image.new("L", (4, 4), value).save(out, "PNG")
    return out.getvalue()


@pytest.fixture
def dataset():
    features = {
        "photo": datasets.Image(),
        "caption": datasets.Value("string"),
        "answers": datasets.Sequence(datasets.Value("string")),
        "label": datasets.ClassLabel(names=["cat", "dog"]),
    }
    rows = {
        "photo": [{"bytes": png(value), "path": None} for value in (1, 2, 1)] + [None],
        "caption": ["a", "b", "c", "d"],
        "answers": [["x", "y"], ["z"], [], ["w"]],
        "label": [0, 1, 1, 0],
    }
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def test_a_dataset(dataset):
    table = pickle.loads(pickle.dumps(open_columns(dataset, "photo,caption")))
    assert len(table) == 3 and table.kinds == {"photo": "image", "caption": "text"}
    assert [int(table.columns["photo"].image(row)[0, 0, 0]) for row in range(3)] == [1, 2, 1]
    assert (
        table.cell_ids("photo").tolist() == [0, 1, 0] and "photo: missing or empty in 1 row (row 3)" in table.notes[0]
    )
    assert table.labels.tolist() == [0, 1, 1] and table.class_names == ["cat", "dog"]
    assert list(open_columns(dataset, "answers,caption").columns["caption"]) == ["a", "a", "b", "d"]


def test_rows_that_were_chosen_in_another_order(dataset):
    table = open_columns(dataset.select([3, 1, 0]), "photo,caption")
    assert list(table.columns["caption"]) == ["b", "a"]
    assert [int(table.columns["photo"].image(row)[0, 0, 0]) for row in range(2)] == [2, 1]


def test_names_of_classes_are_texts(dataset):
    assert list(open_columns(dataset, "photo,label:text").columns["label"]) == ["cat", "dog", "dog"]
    with pytest.raises(InputError, match="'label'.*class numbers.*--labels"):
        open_columns(dataset, "photo,label")


def test_splits_must_be_chosen(dataset, monkeypatch):
    both = datasets.DatasetDict(train=dataset, test=dataset.select([0]))
    with pytest.raises(InputError, match="choose one split"):
        open_columns(both, "photo,caption")
    monkeypatch.setattr(datasets, "load_dataset", lambda name, **options: both)
    assert len(open_columns("someone/pictures:test", "photo,caption")) == 1
    assert open_columns("hub:pictures", "caption").describe()["name"] == "pictures:train"
