import json

import numpy as np
import pytest

from coulomb.tables.shards.remote import Stamp
from coulomb.tables.shards.table import find_table, load_table, make_table, table_files
from coulomb.tables.shards.tar import Listing

LISTING = Listing(["a.png", "ü.png"], [512, 2048], [10, 20], {"cls": ["1", None], "age": [3, 3.5]})
STAMP = Stamp(4096, "v1")


def never():
    raise AssertionError("the saved table should have been used")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "cache"))


def same(table):
    assert table.names.tobytes().decode() == "a.png\0ü.png\0" and table.offsets.tolist() == [512, 2048]
    assert [table.columns["age"].values[c] for c in table.columns["age"].codes] == [3, 3.5]
    assert table.columns["cls"].codes.tolist() == [0, -1]
    return True


def test_a_table_is_made_once_and_belongs_to_one_version(tmp_path):
    shard = str(tmp_path / "s.tar")
    assert same(find_table(shard, STAMP, lambda: make_table(LISTING)))
    assert (tmp_path / ".coulomb" / "s.tar.npz").is_file()
    assert same(find_table(shard, STAMP, never))
    other = Listing(["b.png"], [512], [1], damage="it ends")
    for stamp in (Stamp(4097, "v1"), Stamp(4096, "v2")):
        assert find_table(shard, stamp, lambda: make_table(other)).damage == "it ends"
    assert load_table(table_files(shard)[0], STAMP) is None


def test_beside_a_folder_that_cannot_be_written_the_table_is_in_the_cache(tmp_path):
    (tmp_path / ".coulomb").write_text("a file of this name stands for a folder that cannot be written")
    shard = str(tmp_path / "s.tar")
    same(find_table(shard, STAMP, lambda: make_table(LISTING)))
    assert same(find_table(shard, STAMP, never)) and table_files(shard)[1].is_file()
    assert len(table_files("https://host/s.tar")) == 1


def test_a_table_damaged_at_any_byte_is_made_again_or_right(tmp_path):
    shard = str(tmp_path / "s.tar")
    find_table(shard, STAMP, lambda: make_table(LISTING))
    path = table_files(shard)[0]
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0x5A]) + content[place + 1 :])
        table = load_table(path, STAMP)
        assert table is None or ((table.offsets >= 0) & (table.offsets + table.sizes <= 4096)).all()
        path.write_bytes(content[:place])
        assert load_table(path, STAMP) is None


@pytest.mark.parametrize(
    "offsets, sizes", [([-1, 5], [1, 1]), ([0, 4000], [1, 97]), ([9, 5], [1, 1]), ([0, 1], [2**62, 2**62])]
)
def test_a_table_that_leads_outside_the_shard_is_refused(tmp_path, offsets, sizes):
    shard = str(tmp_path / "s.tar")
    find_table(shard, STAMP, lambda: make_table(Listing(["a", "b"], offsets, sizes)))
    assert load_table(table_files(shard)[0], STAMP) is None


def test_nothing_unfinished_stays_beside_the_shards(tmp_path):
    find_table(str(tmp_path / "s.tar"), STAMP, lambda: make_table(LISTING))
    assert [each.name for each in (tmp_path / ".coulomb").iterdir()] == ["s.tar.npz"]
    assert np.load(tmp_path / ".coulomb" / "s.tar.npz", allow_pickle=False)["numbers"].shape == (4, 2)


@pytest.mark.parametrize(
    "entry", [{"columns": {"cls": [[1]], "age": [1]}}, {"skipped": {"x": "y"}}, {"damage": 3}, {"columns": []}]
)
def test_a_table_with_other_entries_is_refused(tmp_path, entry):
    shard = str(tmp_path / "s.tar")
    find_table(shard, STAMP, lambda: make_table(LISTING))
    path = table_files(shard)[0]
    arrays = dict(np.load(path, allow_pickle=False))
    meta = json.loads(arrays["meta"].tobytes()) | entry
    np.savez(path, **arrays | {"meta": np.frombuffer(json.dumps(meta).encode(), np.uint8)})
    assert load_table(path, STAMP) is None
