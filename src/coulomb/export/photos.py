"""Reads photos in the format that an ONNX file takes, and computes their features with onnxruntime."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.kinds.image.picture import CorruptImage
from coulomb.kinds.image.pixels import eight_bits, to_channels
from coulomb.models.image_encoder import ImageEncoder
from coulomb.tables import Source

MOST = 64  # photos of one size per call of onnxruntime


def photo(source: Source, index: int, encoder: ImageEncoder) -> np.ndarray:
    """Returns an image as uint8 [H, W, 3], or as the bands of the encoder's run: all, uint8 or float32 [H, W, C]."""
    channels, bands = encoder.encoder.channels, encoder.bands
    if bands is None:
        return to_channels(eight_bits(source.image(index)), 3 if channels == 1 else channels)
    picture = source.bands(index)
    bands.require(picture, source.item_id(index))
    return picture if bands.eight_bits else picture.astype(np.float32)


def readable_photos(source: Source, indices: Any, encoder: ImageEncoder) -> Iterator[tuple[int, np.ndarray]]:
    """Yields index and photo of the readable images."""
    for index in indices:
        try:
            yield int(index), photo(source, int(index), encoder)
        except CorruptImage:
            continue


def drawn(source: Source, count: int, purpose: str) -> np.ndarray:
    """Returns the indices of at most ``count`` images, drawn without replacement, in order."""
    indices = np.arange(len(source))
    return np.sort(numpy_generator(0, purpose).permutation(indices)[:count])


def some_photos(source: Source, count: int, encoder: ImageEncoder) -> list[np.ndarray]:
    """Returns at most ``count`` photos; raises `InputError` if none can be read."""
    photos = [each for _, each in readable_photos(source, drawn(source, count, "export photos"), encoder)]
    if not photos:
        raise InputError(f"on={source.name!r}: none of {min(count, len(source))} images can be read; give other images")
    return photos


def session_features(session: Any, source: Source, indices: Any, encoder: ImageEncoder) -> tuple[Tensor, np.ndarray]:
    """Returns features [n, F] by an onnxruntime session ``images`` → ``features``, and the indices [n] of readable images."""
    features: list[np.ndarray] = []
    readable: list[int] = []
    waiting: list[np.ndarray] = []

    def compute() -> None:
        if waiting:
            features.append(session.run(["features"], {"images": np.stack(waiting)})[0])
            waiting.clear()

    for index, picture in readable_photos(source, indices, encoder):
        if waiting and (len(waiting) == MOST or waiting[0].shape != picture.shape):
            compute()
        waiting.append(picture)
        readable.append(index)
    compute()
    if not features:
        raise InputError(f"on={source.name!r}: none of its images can be read; give other images")
    return torch.from_numpy(np.concatenate(features)), np.array(readable)
