import io
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.kinds.image.picture import CorruptImage
from coulomb.tables import open_source
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


REAL = Path(__file__).parents[3] / "shared" / "data" / "cifar10-jpeg-test.parquet"


def shard(path, values, *, paths=None, names=("cat", "dog"), column="image", group=2, **more):
    rows = [
        {"bytes": None if value is None else png(value), "path": None if paths is None else paths[row]}
        for row, value in enumerate(values)
    ]
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = pa.table({column: pa.array(rows, struct), **more})
    if names is not None:
        features = {"label": {"_type": "ClassLabel", "names": list(names)}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group)
    return path


def values(source):
    return [int(source.image(index)[0, 0, 0]) for index in range(len(source))]


def test_images_labels_and_class_names(tmp_path):
    path = shard(tmp_path / "a.parquet", [5, 6, 7], paths=["x/1", "x/2", "../3"], label=[1, 0, -1])
    source = open_source(path)
    assert values(source) == [5, 6, 7]
    assert source.labels.tolist() == [1, 0, -1]
    assert source.class_names == ["cat", "dog"]
    assert [source.item_id(i) for i in range(3)] == ["x/1", "x/2", "../3"]  # ids only; these paths are never opened


def test_shards_in_natural_order(tmp_path):
    for number in (10, 9, 1):
        shard(tmp_path / f"train-{number}.parquet", [number, number + 100, 0], label=[0, 1, 1])
    source = open_source(tmp_path)
    assert values(source) == [1, 101, 0, 9, 109, 0, 10, 110, 0]
    assert source.labels.tolist() == [0, 1, 1] * 3
    assert source.item_id(5) == "train-9.parquet#2"
    assert values(open_source(f"{tmp_path}/train-1*.parquet")) == [1, 101, 0, 10, 110, 0]


def test_shards_of_two_parts_are_not_mixed(tmp_path):
    shard(tmp_path / "train-0.parquet", [1, 2], label=[0, 1])
    shard(tmp_path / "test-0.parquet", [3], label=[0])
    with pytest.raises(InputError, match=r"several parts of a data set \(test, train\); give one"):
        open_source(tmp_path)
    assert values(open_source(f"{tmp_path}/test-*.parquet")) == [3]


def test_shards_must_have_the_same_columns(tmp_path):
    shard(tmp_path / "a.parquet", [1], label=[0])
    shard(tmp_path / "b.parquet", [1])
    with pytest.raises(InputError, match="columns differ"):
        open_source(tmp_path)


def test_several_label_columns_are_refused(tmp_path):
    path = shard(tmp_path / "a.parquet", [1, 2], names=None, fine=["a", "b"], coarse=[0, 0])
    assert open_source(path).labels is None
    assert open_source(path, labels="fine").class_names == ["a", "b"]
    features = {name: {"_type": "ClassLabel", "names": ["u", "v"]} for name in ("fine", "coarse")}
    table = pq.read_table(path).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path)
    with pytest.raises(InputError, match="several label columns.*labels="):
        open_source(path)


@pytest.mark.parametrize("metadata", ["no json", "[]", '{"info": 3}', '{"info": {"features": {"label": 1}}}'])
def test_malformed_metadata_is_ignored(tmp_path, metadata):
    path = shard(tmp_path / "a.parquet", [1, 2], label=[0, 1])
    pq.write_table(pq.read_table(path).replace_schema_metadata({"huggingface": metadata}), path)
    source = open_source(path)
    assert source.labels.tolist() == [0, 1]
    assert source.class_names is None


def test_label_outside_the_class_names(tmp_path):
    path = shard(tmp_path / "a.parquet", [1, 2], label=[0, 2])
    with pytest.raises(InputError, match="label 2 of image 1 is outside the range 0…1 of the 2 class names"):
        open_source(path)


def test_missing_bytes_are_corrupt_and_paths_are_not_opened(tmp_path):
    Image.new("L", (4, 4)).save(tmp_path / "real.png")
    source = open_source(
        shard(tmp_path / "a.parquet", [None, 3], paths=[str(tmp_path / "real.png"), "b"], label=[0, 1])
    )
    with pytest.raises(CorruptImage, match="no bytes"):
        source.image(0)


def test_plain_binary_column(tmp_path):
    pq.write_table(pa.table({"jpg": [png(3), png(4)]}), tmp_path / "a.parquet")
    assert values(open_source(tmp_path / "a.parquet")) == [3, 4]


def test_no_rows(tmp_path):
    with pytest.raises(InputError, match="no rows"):
        open_source(shard(tmp_path / "a.parquet", [], label=pa.array([], pa.int64())))


def test_buffer_is_bounded_and_not_pickled(tmp_path):
    source = open_source(shard(tmp_path / "a.parquet", range(20), label=[0] * 20))
    assert values(source) == list(range(20))
    assert len(source._buffer) == 10
    assert len(pickle.dumps(source)) < 5000 + len(pickle.dumps(source._ids))
    source.release()
    assert not source._buffer
    source.buffer_bytes = 300
    assert values(source) == list(range(20))
    assert len(source._buffer) < 4
    copy = pickle.loads(pickle.dumps(source))
    assert copy._buffer is not None and not copy._buffer
    assert values(copy) == list(range(20))


def test_a_table_that_is_gone_is_not_a_row_of_corrupt_images(tmp_path):
    rows = pa.table({"image": [{"bytes": png(value), "path": None} for value in (1, 2)]})
    pq.write_table(rows, tmp_path / "x.parquet")
    source = open_source(tmp_path / "x.parquet")
    source.release()
    (tmp_path / "x.parquet").rename(tmp_path / "elsewhere")
    with pytest.raises(DataUnavailableError, match="x.parquet: cannot be read"):
        source.image(0)


def test_damaged_row_group_is_corrupt_not_a_crash(tmp_path):
    path = tmp_path / "a.parquet"
    noise = np.random.default_rng(0)
    table = pa.table({"image": [noise.bytes(5000) for _ in range(4)], "label": [0, 1, 0, 1]})
    pq.write_table(table, path, row_group_size=2, compression="gzip", use_dictionary=False)
    raw = bytearray(path.read_bytes())
    raw[2000:9000] = b"\xff" * 7000  # inside the first column chunk
    path.write_bytes(raw)
    source = open_source(path)
    with pytest.raises(CorruptImage, match=r"a.parquet#0: its row group cannot be read"):
        source.image(0)


@pytest.mark.skipif(not REAL.exists(), reason="the real CIFAR-10 Parquet files are not at ../shared/data")
def test_real_cifar():
    source = open_source(REAL)
    assert len(source) == 10_000
    assert source.class_names[:2] == ["airplane", "automobile"]
    assert np.bincount(source.labels).tolist() == [1000] * 10
    image = source.image(7_777)
    assert image.shape == (32, 32, 3)
    row = pq.read_table(REAL)["image"][7_777].as_py()
    assert np.array_equal(image, np.asarray(Image.open(io.BytesIO(row["bytes"]))))
    assert source.item_id(7_777) == row["path"]
