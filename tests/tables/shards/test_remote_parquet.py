import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coulomb.ground.errors import DataUnavailableError, InputError
from coulomb.tables import image_samples, open_source
from coulomb.tables.shards import remote
from coulomb.tables.shards.blocks import Blocks
from coulomb.training.order import RunLoader, RunOrder
from range_server import range_server
from shards_made import png

pytestmark = pytest.mark.usefixtures("cache")

NAMES = "train-{0..2}.parquet"


@pytest.fixture
def tables(tmp_path):
    folder = tmp_path / "tables"
    folder.mkdir()
    for shard in range(3):
        rows = range(shard * 20, shard * 20 + 20)
        images = [{"bytes": png(row), "path": f"{row}.png"} for row in rows]
        columns = {"image": images, "label": [row % 3 for row in rows], "house": [f"h{row // 5}" for row in rows]}
        pq.write_table(pa.table(columns), folder / f"train-{shard}.parquet", row_group_size=5)
    return folder


@pytest.fixture
def server(tables):
    with range_server(tables) as started:
        yield started


def test_remote_tables_equal_local_ones(tables, server):
    local, far = open_source(f"{tables}/{NAMES}"), open_source(f"{server.address}/{NAMES}")
    assert far.remote and len(far) == 60 and far.kind == local.kind == "parquet" and far.name == local.name == "train"
    assert [far.content(i) for i in range(60)] == [local.content(i) for i in range(60)] == [png(i) for i in range(60)]
    assert (far.labels == local.labels).all() and far.other_columns() == local.other_columns()
    assert [far.item_id(i) for i in range(60)] == [f"{i}.png" for i in range(60)]
    copy = pickle.loads(pickle.dumps(far))
    assert copy.content(59) == png(59) and len(set(copy.stamps())) == 3 and copy.stored_bytes() > 0


def test_of_a_row_group_only_the_images_are_read_once(tables, server):
    far = open_source(f"{server.address}/{NAMES}")
    server.requests.clear()
    order = RunOrder(np.arange(60), 6, 2, 0, blocks=far.blocks)
    list(RunLoader(image_samples(far, 8, dtype="uint8"), order, 0))
    blocks = set(
        zip((f"train-{s}.parquet" for s in far.blocks.shard), far.blocks.start.tolist(), far.blocks.end.tolist())
    )
    assert sorted(server.requests) == sorted(blocks) and len(blocks) == 12


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_equal_those_of_local_tables(tables, server, workers):
    def batches(text):
        source = open_source(text)
        b = source.blocks
        source.blocks = Blocks(b.of, b.shard, b.start, b.end, 2000)
        order = RunOrder(np.arange(60), 7, 2, 0, start=2, blocks=source.blocks)
        return [
            (b.sample.tolist(), b.stack.canvas.tolist()) for b in RunLoader(image_samples(source, 8), order, workers)
        ]

    assert batches(f"{server.address}/{NAMES}") == batches(f"{tables}/{NAMES}") == batches(f"{tables}/*.parquet")


def test_failures_are_retried_or_named(tables, server):
    far = open_source(f"{server.address}/{NAMES}")
    server.fails = [500, "cut", 503]
    assert far.content(3) == png(3)
    server.broken["train-1.parquet"] = 500
    with pytest.raises(InputError, match=r"train-1.parquet: cannot be read after 8 attempts"):
        far.content(25)


@pytest.mark.parametrize("how", ["changed", 500])
def test_an_error_of_reading_is_not_called_a_damaged_file(server, monkeypatch, how):
    monkeypatch.setattr(remote, "ATTEMPTS", 2)

    class Later(dict):
        def get(self, name, default=None):
            return how if len(server.requests) >= 3 else default

    if how == "changed":
        server.versions = Later()
    else:
        server.broken = Later()
    with pytest.raises(DataUnavailableError, match=r"train-\d.parquet: (changed|cannot be read after 2)") as raised:
        open_source(f"{server.address}/{NAMES}")
    assert "not a readable" not in str(raised.value)


def test_other_files_are_refused(tables, server):
    (tables / "train-1.parquet").write_bytes(b"PAR1" + bytes(100) + b"PAR1")
    with pytest.raises(InputError, match=r"train-1.parquet: not a readable Parquet file"):
        open_source(f"{server.address}/{NAMES}")
    with pytest.raises(InputError, match=r"train-9.parquet: no such file"):
        open_source(f"{server.address}/train-9.parquet")
