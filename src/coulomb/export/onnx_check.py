"""Compares an ONNX file with the encoder that it was exported from, on photos of many sizes."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.kinds.image.bands import Bands
from coulomb.models.image_encoder import ImageEncoder

BATCHES = (1, 2, 3, 64, 257)
DISTINCT = 8  # different photos per batch, which PyTorch encodes; a larger batch repeats them
LEAST_COSINE = 0.99999


def check_model(session: Any, encoder: ImageEncoder, unit: bool, photos: list[np.ndarray]) -> dict[str, Any]:
    """Returns the smallest cosine between features by onnxruntime and by `ImageEncoder.encode`, which must be ≥ .99999.

    Batches of 1, 2, 3, 64 and 257 generated photos of odd sizes, larger and smaller than the input; then real ``photos``, one
    by one. Lengths must agree, too: within .1% of the lengths by ``encode``, or of 1 for features of unit length.

    Args:
        session: session of the file.
        encoder: the encoder that was exported.
        unit: whether its features have unit length.
        photos: uint8 [H, W, 3].

    Raises:
        InputError: a cosine or a length differs by more; the message has the figure.
    """
    side, channels = encoder.encoder.image_size, encoder.encoder.channels
    shapes = [
        (2 * side + 1, 3 * side // 2),
        (side + 1, side),
        (side, side),
        (side // 2 + 1, 3 * side - 1),
        (side - 1, side + 5),
    ]
    bands = encoder.bands
    if bands is not None:
        channels = bands.count
    groups = [
        (
            batch,
            [generated_bands(generated_photo(*shape, channels, seed), bands) for seed in range(min(batch, DISTINCT))],
        )
        for batch, shape in zip(BATCHES, shapes, strict=True)
    ]
    pairs = []
    for batch, images in [*groups, *((1, [photo]) for photo in photos)]:
        expected = encoder.encode(list(images))
        stacked = np.stack([images[row % len(images)] for row in range(batch)])
        pairs.append((session.run(["features"], {"images": stacked})[0], expected[torch.arange(batch) % len(images)]))
    return require_same(encoder.encoder.name, pairs, unit) | {"batches": list(BATCHES), "photos": len(photos)}


def require_same(
    name: str, pairs: Iterable[tuple[np.ndarray, Tensor]], unit: bool, what: str = "ONNX model"
) -> dict[str, float]:
    """Returns the smallest cosine of features by onnxruntime and by PyTorch, and the largest relative difference of lengths.

    Args:
        name: of the encoder.
        pairs: features [B, F] of an ONNX model, and those that it must return.
        unit: whether the features of the model have unit length.
        what: was exported.

    Raises:
        InputError: a cosine is below .99999, or a length differs by more than .1%; the message has the figure.
    """
    cosines, lengths = [], []
    for found, expected in pairs:
        features = torch.from_numpy(found)
        if features.shape != expected.shape:
            raise InputError(f"the {what} returns features {list(features.shape)} instead of {list(expected.shape)}")
        cosines.append(float(functional.cosine_similarity(features.double(), expected.double()).min()))
        expected_lengths = torch.ones(len(expected)) if unit else expected.norm(dim=1)
        lengths.append(float((features.norm(dim=1) / expected_lengths.clamp_min(1e-12) - 1).abs().max()))
    worst = {"cosine": min(cosines), "length": max(lengths)}
    if not (worst["cosine"] >= LEAST_COSINE and worst["length"] <= 1e-3):
        raise InputError(
            f"{name}: the features of its {what} differ from PyTorch's (smallest cosine "
            f"{worst['cosine']:.7f}, required {LEAST_COSINE}; largest difference of length {worst['length']:.2%}, "
            "allowed .1%); nothing was written"
        )
    return worst


def generated_bands(photo: np.ndarray, bands: Bands | None) -> np.ndarray:
    """Returns a generated photo; for bands of more than 8 bits, with values around their ranges, and some missing."""
    if bands is None or bands.eight_bits:
        return photo
    low, high = np.full(bands.count, 0.0), np.full(bands.count, 1.0)
    index = [band - 1 for band in bands.chosen]
    low[index], high[index] = bands.low, bands.high
    values = (low + (high - low) * (photo / 200 - 0.1)).astype(np.float32)
    values[:2, :3] = np.nan
    return values


def generated_photo(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Returns uint8 [H, W, 3] (or C for other numbers of channels than 1): smooth noise of several scales and sharp edges."""
    draw = np.random.default_rng((seed, height, width))
    colors = 3 if channels == 1 else channels
    y, x = np.mgrid[:height, :width] / max(height, width)
    photo = np.zeros((height, width, colors))
    for octave in range(6):
        angle, phase, color = draw.uniform(0, 7), draw.uniform(0, 7), draw.uniform(-1, 1, colors)
        wave = np.sin(2**octave * 3 * (x * np.cos(angle) + y * np.sin(angle)) + phase)
        photo += wave[..., None] * color / (octave + 1)
    for _ in range(4):
        top, left = draw.uniform(0, 1, 2)
        inside = (np.abs(y - top) < draw.uniform(0.05, 0.3)) & (np.abs(x - left) < draw.uniform(0.05, 0.3))
        photo[inside] += draw.uniform(-1, 1, colors)
    photo += draw.normal(0, 0.1, photo.shape)
    return np.clip(128 + 70 * photo, 0, 255).astype(np.uint8)
