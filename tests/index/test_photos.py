"""Each image is read once, and those of a server ahead."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from coulomb.index.photos import PhotoKind, ReadOnce
from coulomb.kinds.image import Image as ImageKind
from coulomb.tables import ArraySource, Samples, open_source
from range_server import range_server
from shards_made import make_shards


def recorded(source, known=frozenset()):
    once = ReadOnce(source, None)
    made = Samples(once, {"image": PhotoKind(ImageKind(8), known, 16)})
    return [batch.stack for batch in made.batches(list(range(len(source))), 5)]


def test_images_of_remote_shards_are_read_ahead_by_blocks(tmp_path, monkeypatch):
    monkeypatch.setenv("COULOMB_CACHE", str(tmp_path / "cache"))
    shards = make_shards(tmp_path / "shards", shards=3, images=10)
    with range_server(shards) as server:
        source = open_source(f"{server.address}/train-{{0000..0002}}.tar")
        before = len(server.requests)
        photos = [stack.photos for stack in recorded(source)]
        assert len(server.requests) - before == 3  # one block per shard, not one request for each of 30 images
    local = recorded(open_source(f"{shards}/train-{{0000..0002}}.tar"))
    assert photos == [stack.photos for stack in local]


def test_known_images_are_not_decoded():
    source = ArraySource(np.random.default_rng(0).integers(0, 256, (4, 9, 9, 3), np.uint8))
    (everything,) = recorded(source)
    assert list(everything.photos) == [0, 1, 2, 3] and not everything.known and len(everything.images) == 4
    (some,) = recorded(source, frozenset({bytes.fromhex(everything.photos[2][0].sha256)}))
    assert list(some.photos) == [0, 1, 3] and list(some.known) == [2]
    assert torch.equal(some.images.canvas, everything.images.canvas[[0, 1, 3]])


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
