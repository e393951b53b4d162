"""The preparation in the ONNX graph equals Pillow's, bit for bit, for photos of any size."""

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch

from coulomb.export.preparation import FILTERS, preparation
from coulomb.ground.errors import InputError
from coulomb.kinds.image.canvas import Canvas
from coulomb.kinds.image.views import plain_view
from coulomb.models.encode import _canvases
from coulomb.models.preprocessing import Preprocessing
from coulomb.tables.sources import open_images

SIZES = [(40, 40), (97, 61), (33, 200), (7, 9), (41, 40), (213, 160), (160, 213)]


def encoder(size, channels=3, preprocessing=None):
    return SimpleNamespace(image_size=size, channels=channels, preprocessing=preprocessing, name="network")


def prepared(network, canvas, photo):
    session = onnxruntime.InferenceSession(preparation(network, canvas).SerializeToString())
    return session.run(None, {"images": photo[None]})[0][0]


def noise(height, width, channels=3, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)


@pytest.mark.parametrize("resample", FILTERS)
@pytest.mark.parametrize("how", [{}, {"squash": True}, {"offset_down": True}], ids=str)
def test_preprocessing_of_published_weights_is_that_of_pillow(resample, how):
    chosen = Preprocessing(side=33, resize=40, resample=resample, **how)
    for size in SIZES:
        expected = chosen(photo := noise(*size)).numpy()
        np.testing.assert_array_equal(prepared(encoder(33, preprocessing=chosen), None, photo), expected)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("side", "canvas"), [(32, 48), (28, 28), (96, 128)])
def test_preparation_of_a_run_is_that_of_its_evaluation(side, canvas, channels):
    network, stored = encoder(side, channels), Canvas(canvas, "uint8")
    for size in [*SIZES, (side, side), (canvas, canvas)]:
        source = open_images([noise(*size)])
        ((images, members),), _ = _canvases(network, source, stored, [0], 0)
        batch = next(images.batches(members, 1))
        expected = plain_view(batch.stack, side)[0].numpy()
        np.testing.assert_allclose(prepared(network, stored, noise(*size)), expected, atol=2e-5)


def test_batches_are_prepared_like_single_photos():
    chosen = Preprocessing(side=16, resize=20)
    session = onnxruntime.InferenceSession(preparation(encoder(16, preprocessing=chosen), None).SerializeToString())
    photos = np.stack([noise(31, 27, seed=seed) for seed in range(5)])
    expected = torch.stack([chosen(photo) for photo in photos]).numpy()
    np.testing.assert_array_equal(session.run(None, {"images": photos})[0], expected)


def test_gray_encoders_take_color():
    chosen = Preprocessing(side=16, resize=16, mean=(0.5,), std=(0.5,))
    photo = noise(30, 20)
    from coulomb.kinds.image.pixels import to_channels

    expected = chosen(to_channels(photo, 1)).numpy()
    np.testing.assert_array_equal(prepared(encoder(16, 1, chosen), None, photo), expected)


def test_encoders_of_other_channels_take_arrays_of_as_many():
    network, stored = encoder(16, 4), Canvas(24, "uint8")
    assert prepared(network, stored, noise(20, 30, 4)).shape == (4, 16, 16)


@pytest.mark.parametrize("resample", ["nearest", "box"])
def test_filters_without_a_counterpart_are_refused(resample):
    chosen = Preprocessing(side=16, resize=16, resample=resample)
    with pytest.raises(InputError, match=f"resample='{resample}' has no ONNX counterpart"):
        preparation(encoder(16, preprocessing=chosen), None)


def test_an_encoder_without_its_run_is_refused():
    with pytest.raises(InputError, match="data.json is missing"):
        preparation(encoder(16), None)
