import io
import pickle

import pytest
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import open_source
from coulomb.tables.columns import open_columns
from coulomb.tables.sources import hub
from coulomb.tables.sources.hub import HubSource, open_hub

datasets = pytest.importorskip("datasets")


def png(value):
    out = io.BytesIO()
    Image.new("L", (4, 4), value).save(out, "PNG")
    return out.getvalue()


def made(values, **columns):
    rows = {"image": [{"bytes": png(value), "path": None} for value in values], **columns}
    features = {"image": datasets.Image()}
    for name, column in columns.items():
        names = sorted({str(value) for value in column})
        features[name] = datasets.ClassLabel(names=names) if name != "plain" else datasets.Value("int64")
    return datasets.Dataset.from_dict(rows, features=datasets.Features(features))


def test_dataset_object():
    source = open_source(made([3, 4, 5], label=["b", "a", "b"]))
    assert [int(source.image(i)[0, 0, 0]) for i in range(3)] == [3, 4, 5]
    assert source.labels.tolist() == [1, 0, 1]
    assert source.class_names == ["a", "b"]
    assert open_source(made([3], plain=[7])).labels is None
    assert open_source(made([3], plain=[7]), labels="plain").labels.tolist() == [7]
    with pytest.raises(InputError, match="several label columns.*labels="):
        open_source(made([3], fine=["a"], coarse=["b"]))


def test_splits(monkeypatch):
    both = datasets.DatasetDict(train=made([1, 2], label=["a", "b"]), test=made([3], label=["a"]))
    requests = []

    def load(name, **options):
        requests.append((name, options))
        return both

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert len(open_source("someone/pictures")) == 2
    test = open_source("hub:pictures:test")
    assert len(test) == 1
    assert test.name == "pictures:test"
    assert requests == [("someone/pictures", {}), ("pictures", {})]  # in particular, no trust_remote_code
    with pytest.raises(InputError, match="choose a split.*train, test"):
        open_source("someone/pictures:dev")
    with pytest.raises(InputError, match="choose one split"):
        open_source(both)


def test_no_network_is_one_line(monkeypatch):
    def load(name, **options):
        raise ConnectionError("Couldn't reach 'someone/pictures' on the Hub\n(LocalEntryNotFoundError)")

    monkeypatch.setattr(datasets, "load_dataset", load)
    with pytest.raises(
        InputError, match="no such file or folder here, and not available.*check the spelling"
    ) as caught:
        open_hub("someone/pictures")
    assert "\n" not in str(caught.value)


def test_without_network_only_the_cache_is_used(monkeypatch):
    monkeypatch.setattr(hub.socket, "getaddrinfo", lambda *address: (_ for _ in ()).throw(OSError("no such name")))
    monkeypatch.setattr(hub, "getproxies", dict)
    seen = []

    def load(name):
        seen.append(datasets.config.HF_HUB_OFFLINE)
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", load)
    before = datasets.config.HF_HUB_OFFLINE
    with pytest.raises(InputError, match="not available"):
        open_hub("someone/pictures")
    assert seen == [True]
    assert before == datasets.config.HF_HUB_OFFLINE  # restored


def test_paths_stay_in_the_download_folder(tmp_path, monkeypatch):
    downloads, outside = tmp_path / "downloads", tmp_path / "outside.png"
    downloads.mkdir()
    for path in (outside, downloads / "in.png"):
        path.write_bytes(png(9))
    (downloads / "link.png").symlink_to(outside)
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", downloads)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", downloads)
    rows = {"image": [{"bytes": None, "path": str(p)} for p in (downloads / "in.png", outside, downloads / "link.png")]}
    dataset = datasets.Dataset.from_dict(rows, features=datasets.Features({"image": datasets.Image(decode=False)}))
    source = HubSource(dataset, name="x")
    assert int(source.image(0)[0, 0, 0]) == 9
    for index in (1, 2):
        with pytest.raises(CorruptImage, match="leads outside the hub's download folder"):
            source.image(index)


def test_no_image_column():
    with pytest.raises(InputError, match="no image column among text"):
        open_source(datasets.Dataset.from_dict({"text": ["a"]}))


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
