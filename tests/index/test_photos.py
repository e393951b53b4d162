"""Each image is read once, and those of a server ahead."""

from coulomb.data import Images, open_source
from coulomb.index.photos import ReadOnce, Recorded
from range_server import range_server
from shards_made import make_shards


def recorded(source):
    once = ReadOnce(source, None)
    made = Recorded(Images(once, 8, dtype="uint8"), once, frozenset(), 16)
    return [batch["photos"] for batch in made.batches(list(range(len(source))), 5)]


def test_images_of_remote_shards_are_read_ahead_by_blocks(tmp_path, monkeypatch):
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "cache"))
    shards = make_shards(tmp_path / "shards", shards=3, images=10)
    with range_server(shards) as server:
        source = open_source(f"{server.address}/train-{{0000..0002}}.tar")
        before = len(server.requests)
        photos = recorded(source)
        assert len(server.requests) - before == 3  # one block per shard, not one request for each of 30 images
    assert photos == recorded(open_source(f"{shards}/train-{{0000..0002}}.tar"))
