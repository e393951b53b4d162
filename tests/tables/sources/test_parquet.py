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
from coulomb.kinds.image import Image as ImageKind
from coulomb.kinds.image.picture import CorruptImage
from coulomb.kinds.text import Text
from coulomb.tables import Samples, open_source
from coulomb.tables.columns import open_columns
from range_server import range_server
from shards_made import make_shards, png

pytestmark = pytest.mark.usefixtures("cache")


def square(value):
    out = io.BytesIO()
    Image.new("L", (4, 4), value).save(out, "PNG")
    return out.getvalue()


REAL = Path(__file__).parents[4] / "shared" / "data" / "cifar10-jpeg-test.parquet"


def shard(path, values, *, paths=None, names=("cat", "dog"), column="image", group=2, **more):
    rows = [
        {"bytes": None if value is None else square(value), "path": None if paths is None else paths[row]}
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
    pq.write_table(pa.table({"jpg": [square(3), square(4)]}), tmp_path / "a.parquet")
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
    rows = pa.table({"image": [{"bytes": square(value), "path": None} for value in (1, 2)]})
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


NAMES = "train-{0..1}.parquet"


@pytest.fixture
def tables(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    for shard in range(2):
        rows = range(shard * 10, shard * 10 + 10)
        images = [{"bytes": png(row), "path": f"{row}.png"} for row in rows]
        columns = {"image": images, "caption": [[f"text {row}", f"{row} words"] for row in rows], "house": list(rows)}
        pq.write_table(pa.table(columns), folder / f"train-{shard}.parquet", row_group_size=5)
    return folder


def test_shards_on_a_server_are_the_table_of_local_ones(tables):
    local = open_columns(f"{tables}/{NAMES}", "image,caption")
    with range_server(tables) as server:
        far = open_columns(f"{server.address}/{NAMES}", "image,caption")
        assert far.remote and len(far) == len(local) == 40
        assert list(far.columns["caption"]) == list(local.columns["caption"])
        assert [far.item_id(row) for row in (0, 1, 39)] == ["0.png#0", "0.png#1", "19.png#1"]
        assert far.cell_ids("image").tolist() == local.cell_ids("image").tolist()
        assert "told apart by their place" in " ".join(far.notes) and "by their place" not in " ".join(local.notes)
        assert far.other_columns() == local.other_columns() == {"house": [row // 2 for row in range(40)]}
        kinds = {"image": ImageKind(8, 3), "caption": Text(lambda text: list(text.encode()))}
        rows = [39, 0, 17, 16]
        there, here = (next(Samples(table, kinds).batches(rows, 4)) for table in (far, local))
        assert (there.columns["image"].canvas == here.columns["image"].canvas).all()
        assert there.columns["caption"].ids.tolist() == here.columns["caption"].ids.tolist()


def test_tar_shards_on_a_server(tmp_path):
    folder = make_shards(tmp_path / "tar", shards=2, images=4)
    with range_server(folder) as server:
        far = open_columns(f"{server.address}/train-{{0000..0001}}.tar", "image,cls:text")
        assert far.remote and len(far) == 8 and far.columns["image"].content(7) == png(7)
        with pytest.raises(InputError, match=r"files on a server are .tar or .parquet, not csv"):
            open_columns(f"{server.address}/train.csv", "image,caption")


def test_columns_of_nested_names_and_repeated_names(tmp_path):
    table = pa.table([pa.array(["x"]), pa.array(["y"])], names=["a", "a"])
    pq.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(InputError, match="'a' occurs more than once"):
        open_columns(tmp_path / "twice.parquet", "a")
    pq.write_table(
        pa.table({"a.b": ["x y", "z"], "img.en": [{"bytes": png(1)}, {"bytes": png(2)}]}), tmp_path / "dots.parquet"
    )
    table = open_columns(tmp_path / "dots.parquet", "a.b,img.en")
    assert list(table.columns["a.b"]) == ["x y", "z"] and table.columns["img.en"].image(1).shape == (8, 8, 3)


def test_a_file_that_is_no_parquet(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        open_columns(tmp_path / "x.parquet", "a")
