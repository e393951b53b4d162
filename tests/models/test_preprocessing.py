"""The photo that a published network sees: sizes, offsets, filters, channels."""

import numpy as np
import pytest
import torch
from PIL import Image

from coulomb.ground.errors import InputError
from coulomb.models import Preprocessing

RNG = np.random.default_rng(0)


def photo(height, width, channels=3):
    return RNG.integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("size", [(40, 40), (61, 40), (40, 67), (33, 90), (7, 5)])
@pytest.mark.parametrize("offset_down", [False, True])
@pytest.mark.parametrize("resample", ["bilinear", "bicubic", "nearest"])
def test_short_side_then_center_crop(size, offset_down, resample):
    picture, height, width = photo(*size), *size
    image = Preprocessing(16, 21, resample=resample, offset_down=offset_down)(picture)
    new = (21, int(21 * height / width)) if width <= height else (int(21 * width / height), 21)
    resized = np.asarray(Image.fromarray(picture).resize(new, Image.Resampling[resample.upper()])) / np.float32(255)
    left, top = ((n - 16) // 2 if offset_down else round((n - 16) / 2) for n in new)
    expected = resized[top : top + 16, left : left + 16].transpose(2, 0, 1)
    assert image.dtype == torch.float32 and image.is_contiguous()
    np.testing.assert_array_equal(image.numpy(), expected)


def test_squash_ignores_the_aspect_ratio():
    picture = photo(30, 50)
    image = Preprocessing(12, 12, squash=True, resample="lanczos")(picture)
    expected = np.asarray(Image.fromarray(picture).resize((12, 12), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    np.testing.assert_array_equal(image.numpy() * 255, expected)


def test_a_photo_of_the_right_size_is_not_resampled():
    picture = photo(16, 16)
    np.testing.assert_array_equal((Preprocessing(16, 16)(picture) * 255).numpy().round(), picture.transpose(2, 0, 1))


def test_gray_and_transparent_photos_are_those_of_their_rgb_version():
    gray, prepare = photo(20, 30, 1), Preprocessing(8, 9)
    repeated = prepare(np.repeat(gray, 3, axis=2))
    assert torch.equal(prepare(gray), repeated) and torch.equal(prepare(gray[..., 0]), repeated)
    assert torch.equal(prepare(Image.fromarray(gray[..., 0])), repeated)
    color = photo(20, 30)
    rgba = Image.fromarray(np.concatenate([color, photo(20, 30, 1)], axis=2))
    assert torch.equal(prepare(rgba), prepare(color)) and torch.equal(prepare(Image.fromarray(color)), prepare(color))
    one = Preprocessing(8, 9, mean=(0.5,), std=(0.5,))
    assert one(color).shape == (1, 8, 8) and torch.equal(one(gray), repeated[:1])


@pytest.mark.parametrize(
    ("native", "side", "resize"), [((224, 256), 128, 146), ((224, 256), 96, 110), ((384, 384), 64, 64)]
)
def test_another_size_keeps_the_ratio(native, side, resize):
    prepare = Preprocessing(*native, squash=True, resample="box").at(side)
    assert (prepare.side, prepare.resize, prepare.squash, prepare.resample) == (side, resize, True, "box")
    assert Preprocessing(*native).at(native[0]) == Preprocessing(*native)


def test_one_line_of_description():
    assert Preprocessing(224, 256).describe() == "bicubic, short side to 256 pixels, center crop of 224"
    assert Preprocessing(8, 8, squash=True, resample="bilinear").describe() == "bilinear, to 8×8 pixels"


@pytest.mark.parametrize(
    "options",
    [
        {"side": 9, "resize": 8},
        {"side": 0},
        {"resample": "sinc"},
        {"mean": (0.5,)},
        {"mean": (0.5,) * 2, "std": (1,) * 2},
    ],
)
def test_wrong_values(options):
    with pytest.raises(InputError, match="preprocessing: "):
        Preprocessing(**{"side": 8, "resize": 8} | options)


@pytest.mark.parametrize(
    "picture", [np.zeros((4, 4, 3)), np.zeros((4, 4, 4), np.uint8), np.zeros(4, np.uint8), Image.new("F", (4, 4))]
)
def test_wrong_pictures(picture):
    with pytest.raises(InputError, match="picture: "):
        Preprocessing(4, 4)(picture)
