"""Images as a column: square canvases, and images that are prepared at their original resolution."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image as Pil

from coulomb.ground.errors import InputError
from coulomb.kinds.image import Image, OriginalImage
from coulomb.kinds.image.pixels import eight_bits
from coulomb.tables import ArraySource, Samples, open_source
from coulomb.tables.images import images_per_batch
from coulomb.tables.sources.objects import ImageListSource


def corner(picture):
    """The 4 pixels in the corner, and the size of the picture as a fifth value."""
    assert picture.dtype == np.uint8 and picture.ndim == 3
    values = torch.from_numpy(picture[:2, :2].astype(np.float32)).permute(2, 0, 1) / 255
    return torch.cat([values, torch.full((1, 2, 2), picture.shape[0] / 1000)])


def read(source, channels=3, batch_size=4, workers=0, indices=None):
    originals = Samples(source, {"image": OriginalImage(channels, corner)})
    indices = range(len(source)) if indices is None else indices
    batches = list(originals.batches(indices, batch_size, workers))
    return originals, batches


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    root = tmp_path_factory.mktemp("originals")
    draw = np.random.default_rng(0)
    for number in range(9):
        pixels = draw.integers(0, 256, (400 + number, 300, 3), dtype=np.uint8)
        Pil.fromarray(pixels).save(root / f"{number}.jpg", quality=80)
    (root / "4.jpg").write_bytes(b"torn")
    return root


def test_jpeg_files_are_decoded_at_full_size(files):
    """Decoding them at a half, as canvases do, would give other pixels."""
    _, batches = read(open_source(files))
    found = torch.cat([batch.stack.canvas for batch in batches])
    paths = [path for path in sorted(files.iterdir()) if path.name != "4.jpg"]
    wanted = [corner(np.array(Pil.open(path))) for path in paths]
    assert torch.equal(found, torch.stack(wanted))


@pytest.mark.parametrize("workers", [0, 2])
def test_order_failures_and_batches(files, workers):
    originals, batches = read(open_source(files), workers=workers, indices=[7, 4, 1, 0, 8])
    assert [batch.sample.tolist() for batch in batches] == [[7, 1, 0], [8]]
    assert batches[0].failed == [(4, originals.failures[4])] and set(originals.failures) == {4}
    assert "not an image" in originals.failures[4]


def test_a_batch_without_any_readable_image(tmp_path):
    (tmp_path / "a.png").write_bytes(b"torn")
    _, batches = read(ImageListSource([tmp_path / "a.png"]))
    assert len(batches[0].sample) == 0 and len(batches[0].failed) == 1


def test_gray_color_and_other_channels():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 9, 9, 3), dtype=np.uint8)
    _, (batch,) = read(ArraySource(pixels[..., :1]))
    assert torch.equal(batch.stack.canvas[:, 0], batch.stack.canvas[:, 2])
    luma = np.array(Pil.fromarray(pixels[0]).convert("L"))[:2, :2]
    _, (batch,) = read(ArraySource(pixels), channels=1)
    assert torch.equal(batch.stack.canvas[0, 0], torch.from_numpy(luma) / 255)
    with pytest.raises(InputError, match=r"^0: the image has 5 channels instead of 3"):
        read(ArraySource(np.zeros((2, 9, 9, 5), np.uint8)))


def test_deep_images_are_rounded_to_eight_bits_and_counted():
    pixels = np.random.default_rng(0).integers(0, 256, (3, 9, 9, 1), dtype=np.uint8)
    wanted = read(ArraySource(pixels))[1][0].stack.canvas
    for deep in (pixels.astype(np.uint16) * 257, pixels.astype(np.float32) / 255):
        originals, (batch,) = read(ArraySource(deep))
        assert torch.equal(batch.stack.canvas, wanted) and originals.rounded == set(batch.rounded) == {0, 1, 2}
    assert read(ArraySource(pixels))[0].rounded == set()


def test_eight_bits_rounds_to_the_nearest():
    assert eight_bits(np.array([0, 128, 129, 65535], np.uint16)).tolist() == [0, 0, 1, 255]
    assert eight_bits(np.array([0, 0.5 / 256, 0.503, 1], np.float32)).tolist() == [0, 0, 128, 255]


@pytest.mark.parametrize(("channels", "size", "count"), [(3, 224, 27), (3, 32, 1365), (1, 4000, 1)])
def test_batches_take_16_megabytes(channels, size, count):
    assert images_per_batch(channels, size) == count


def test_memory_is_that_of_one_photo():
    """Only the prepared image of each photo is kept."""
    import tracemalloc

    class Large(ArraySource):
        def __len__(self):
            return 6

        def image(self, index):
            return np.full((1000, 1000, 3), index, np.uint8)

    source = Large(np.zeros((6, 4, 4, 3), np.uint8))
    tracemalloc.start()
    read(source, batch_size=6)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 3 * 3_000_000


def test_a_preview_is_a_small_jpeg_of_the_image(files):
    source = open_source(files)
    whole = OriginalImage(3, lambda picture: torch.from_numpy(picture).permute(2, 0, 1))
    for kind in (Image(16), Image(16, dtype="float32"), Image(16, channels=1), whole):
        shown = kind.preview(kind.read(source, 0).value)
        start = '<img alt="" src="data:image/jpeg;base64,'
        assert shown.startswith(start) and shown.endswith('">')
        with Pil.open(io.BytesIO(base64.b64decode(shown[len(start) : -2]))) as image:
            assert max(image.size) <= 96


@pytest.mark.parametrize("options", [{"size": 0}, {"channels": 0}, {"dtype": "int8"}])
def test_options_are_checked(options):
    with pytest.raises(InputError, match=f"{next(iter(options))}="):
        Image(**options)
