import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coulomb.ground.errors import InputError
from coulomb.kinds.image import Image
from coulomb.kinds.text import Text
from coulomb.tables import Samples
from coulomb.tables.columns import open_columns
from coulomb.tables.shards import remote
from range_server import range_server
from shards_made import make_shards, png

NAMES = "train-{0..1}.parquet"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "FIRST_PAUSE", 0.001)


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
        kinds = {"image": Image(8, 3), "caption": Text(lambda text: list(text.encode()))}
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
