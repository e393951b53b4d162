"""Each image is read once, and those of a server ahead."""

import io

import numpy as np
import pytest
from PIL import Image

from coulomb.index.photos import ReadOnce, Recorded
from coulomb.tables import Images, open_source
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


@pytest.mark.parametrize(
    ("size", "format", "options", "itself"),
    [
        ((40, 30), "JPEG", {}, True),
        ((40, 30), "JPEG", {"exif": b"Exif\0\0" + Image.Exif().tobytes()[6:]}, False),  # it may have to be turned
        ((40, 30), "PNG", {}, False),
        ((33, 30), "JPEG", {}, True),
        ((70, 30), "JPEG", {}, False),  # more than twice as large
    ],
)
def test_a_small_jpeg_is_its_own_thumbnail(tmp_path, size, format, options, itself):
    file = tmp_path / "photo"
    pixels = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    Image.fromarray(pixels).save(file.with_suffix("." + format.lower()), format, **options)
    source = open_source(tmp_path)
    once = ReadOnce(source, None)
    once.read(0)
    once.image(0)
    width, height, thumbnail = once.describe_last(0, 32)
    content = file.with_suffix("." + format.lower()).read_bytes()
    assert (width, height) == size and (thumbnail == content) == itself
    if not itself:
        assert max(Image.open(io.BytesIO(thumbnail)).size) <= 32
