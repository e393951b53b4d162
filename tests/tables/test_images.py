import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.kinds.image.decode import to_canvas
from coulomb.kinds.image.pixels import to_channels
from coulomb.tables import ArraySource, image_samples, open_source
from coulomb.tables.images import normalization
from coulomb.tables.workers import cores

REAL = Path(__file__).parents[3] / "shared" / "data" / "cifar10-jpeg-test.parquet"


@pytest.fixture
def folder(tmp_path):
    draw = np.random.default_rng(0)
    for number in range(23):
        size = draw.integers(5, 60, 2)
        Image.fromarray(draw.integers(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "7.png").write_bytes(b"torn")
    (tmp_path / "19.png").write_bytes((tmp_path / "19.png").read_bytes()[:90])
    return tmp_path


def same(left, right):
    assert torch.equal(left.stack.canvas, right.stack.canvas)
    assert torch.equal(left.stack.aspect, right.stack.aspect)
    assert torch.equal(left.sample, right.sample)
    assert left.failed == right.failed


def test_batch_has_canvas_aspect_sample_and_failures(folder):
    images = image_samples(open_source(folder), size=16)
    batch = images.__getitems__([3, 7, 0, 19])
    assert batch.stack.canvas.shape == (2, 3, 16, 16)
    assert batch.stack.canvas.dtype == torch.uint8
    assert batch.stack.canvas.is_contiguous()
    assert batch.sample.tolist() == [3, 0]
    assert [position for position, _ in batch.failed] == [7, 19]
    assert "not an image" in batch.failed[0][1]
    for row, position in enumerate([3, 0]):
        with Image.open(folder / f"{position}.png") as image:
            assert batch.stack.aspect[row] == torch.tensor(image.width / image.height)
            expected = np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR))
        assert np.array_equal(batch.stack.canvas[row].permute(1, 2, 0).numpy(), expected)


def test_workers_and_cache_do_not_change_the_result(folder):
    plain = image_samples(open_source(folder), size=16)
    order = np.random.default_rng(1).permutation(23)
    expected = list(plain.batches(order, 5))
    assert [len(batch.sample) + len(batch.failed) for batch in expected] == [5, 5, 5, 5, 3]
    for workers in range(min(2, cores()) + 1):
        images = image_samples(open_source(folder), size=16, workers=workers)
        for wanted, got in zip(expected, images.batches(torch.from_numpy(order), 5, workers), strict=True):
            same(wanted, got)
        assert images.failures == plain.failures
        before = torch.random.get_rng_state()
        assert images.load(progress=False)
        assert torch.equal(before, torch.random.get_rng_state())
        assert images.cached
        for wanted, got in zip(expected, images.batches(order, 5), strict=True):
            same(wanted, got)
    assert set(plain.failures) == {7, 19}
    assert plain.usable.tolist() == [i for i in range(23) if i not in (7, 19)]


def test_cache_is_bounded(folder):
    images = image_samples(open_source(folder), size=16, cache_bytes=23 * 3 * 16 * 16 - 1)
    assert not images.load(progress=False)
    assert not images.cached
    assert image_samples(open_source(folder), size=16, cache_bytes=23 * 3 * 16 * 16).load(progress=False)


def test_samples_are_picklable_and_may_repeat(folder):
    images = image_samples(open_source(folder), size=16)
    batch = pickle.loads(pickle.dumps(images)).__getitems__([4, 7, 4])
    assert batch.sample.tolist() == [4, 4] and torch.equal(batch.stack.canvas[0], batch.stack.canvas[1])
    images.load(progress=False)
    same(images.__getitems__([4, 7, 4]), batch)


def test_images_with_more_than_8_bits_become_float():
    deep = (np.arange(32, dtype=np.uint16) * 2000).reshape(2, 4, 4)
    images = image_samples(open_source(deep), size=4, channels=1)
    batch = images.__getitems__([0, 1])
    assert batch.stack.canvas.dtype == torch.float32
    assert np.array_equal(batch.stack.canvas[:, 0].numpy(), deep.astype(np.float32) / np.float32(65535))
    rounded = image_samples(open_source(deep), size=4, channels=1, dtype="uint8")
    rounded.load(progress=False)
    assert rounded.rounded == {0, 1}  # rounding is counted
    assert np.abs(rounded.__getitems__([0, 1]).stack.canvas[:, 0].numpy() - deep / 257).max() <= 0.5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_16_bit_image_among_others_has_the_pixels_of_its_8_bit_version(tmp_path, workers):
    gray = np.random.default_rng(0).integers(0, 256, (20, 30), dtype=np.uint8)
    Image.fromarray(gray).save(tmp_path / "a.png")
    Image.fromarray(gray.astype(np.uint16) * 257).save(tmp_path / "b.png")
    Image.fromarray(gray).save(tmp_path / "c.png")
    for cached in (True, False):
        images = image_samples(open_source(tmp_path), size=16, workers=workers, cache_bytes=2**20 if cached else 0)
        assert images.kind.dtype == "uint8" and images.load(progress=False) == cached
        for _ in range(2):
            (batch,) = images.batches(range(3), 3, workers)
            assert torch.equal(batch.stack.canvas[0], batch.stack.canvas[1])
        assert images.rounded == {1}  # once, however often it is read


def test_only_gray_and_color_are_converted():
    gray = np.arange(16, dtype=np.uint8).reshape(4, 4, 1)
    assert np.array_equal(to_channels(gray, 3), np.repeat(gray, 3, axis=2))
    color = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    assert np.array_equal(to_channels(color, 1)[..., 0], np.asarray(Image.fromarray(color).convert("L")))
    unit = (color / 255).astype(np.float32)
    assert np.abs(to_channels(unit, 1) * 255 - to_channels(color, 1)).max() <= 0.51
    for channels in (1, 2, 3):
        with pytest.raises(InputError, match=f"4 channels instead of {channels}; set channels=4"):
            to_channels(np.zeros((4, 4, 4), np.uint8), channels)
    with pytest.raises(InputError, match="^0: the image has 13 channels"):
        image_samples(open_source(np.zeros((2, 13, 32, 32), np.uint8))).__getitems__([0])


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_canvas_holds_the_whole_image(channels):
    picture = np.zeros((40, 80, channels), np.uint8)
    picture[:20, :40] = 200
    for kind in ("uint8", "float32"):
        canvas, _ = to_canvas(picture if kind == "uint8" else (picture / 255).astype(np.float32), 8, channels, kind)
        assert canvas.shape == (8, 8, channels)
        assert canvas.dtype.name == kind
        top = 200 if kind == "uint8" else 200 / 255
        assert canvas[:3, :3] == pytest.approx(top)
        assert canvas[5:].max() == canvas[:, 5:].max() == 0
        assert canvas.mean() == pytest.approx(top / 4, abs=top / 100)


def test_downsizing_is_antialiased():
    stripes = np.zeros((64, 64, 1), np.uint8)
    stripes[:, ::2] = 255
    canvas, _ = to_canvas(stripes, 8, 1, "uint8")
    assert abs(canvas.astype(int) - 127).max() <= 12  # nearest-neighbor sampling would give 0 or 255


def test_wrong_array_of_a_source_is_an_error():
    class Odd(ArraySource):
        def picture(self, index, at_least=None):
            return np.zeros((4, 4)), 1.0

    with pytest.raises(InputError, match=r"1: a source returned float64 \[4, 4\]"):
        image_samples(Odd(np.zeros((2, 4, 4), np.uint8)), dtype="uint8").__getitems__([1])


def test_normalization_against_numpy(folder):
    array = np.random.default_rng(0).integers(0, 256, (300, 3, 6, 6), dtype=np.uint8)
    images = image_samples(open_source(array), size=6)
    mean, deviation = normalization(images)
    assert mean.numpy() == pytest.approx((array / 255).mean((0, 2, 3)), abs=1e-6)
    assert deviation.numpy() == pytest.approx((array / 255).std((0, 2, 3)), abs=1e-6)
    of_some, _ = normalization(images, [3, 4])
    assert of_some.numpy() == pytest.approx((array[3:5] / 255).mean((0, 2, 3)), abs=1e-6)
    first, again, other = (normalization(images, most=50, seed=seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert normalization(image_samples(open_source(folder), size=8))[1].min() > 0
    flat = normalization(image_samples(open_source(np.zeros((3, 4, 4), np.uint8)), size=4, channels=1))[1]
    assert flat.item() == pytest.approx(1 / 255)


def test_nothing_readable(tmp_path):
    (tmp_path / "a.png").write_bytes(b"torn")
    with pytest.raises(InputError, match="none of 1 images can be decoded"):
        normalization(image_samples(open_source(tmp_path)))


def test_more_workers_than_cores_are_not_started():
    assert image_samples(open_source("digits"), workers=10_000).workers == cores()


@pytest.mark.slow
@pytest.mark.skipif(not REAL.exists(), reason="the real CIFAR-10 Parquet files are not at ../shared/data")
def test_real_cifar_is_the_same_with_workers():
    one, two = (image_samples(open_source(REAL), workers=n) for n in (0, min(2, cores())))
    assert one.load(progress=False) and two.load(progress=False)
    order = list(range(0, 10_000, 5))
    same(one.__getitems__(order), two.__getitems__(order))
    assert not one.table._buffer  # encoded bytes are freed once the images are decoded


@pytest.mark.skipif(cores() < 2, reason="one core: no worker processes are started")
def test_worker_error_is_one_line():
    images = image_samples(open_source(np.zeros((2000, 13, 32, 32), np.uint8)), workers=2)
    with pytest.raises(InputError, match="^0000: the image has 13 channels") as caught:
        images.load(progress=False)
    assert "\n" not in str(caught.value)
