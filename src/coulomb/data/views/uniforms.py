"""Random parameters of a view, and operations on the samples that drew them."""

from collections.abc import Callable

import torch
from torch import Tensor

CROP_TRIES = 10

# One row a sample, so a sample's parameters depend on its place in the batch and not on the batch's size or chunks;
# every column is always drawn, so switching an operation off leaves the others as they were.
COLUMNS = {
    "crop_area": CROP_TRIES,
    "crop_ratio": CROP_TRIES,
    "crop_place": 2,
    "flip": 2,
    "affine_on": 1,
    "affine": 6,  # rotate, shear x, shear y, zoom, translate x, translate y
    "jitter_on": 1,
    "jitter": 4,  # brightness, contrast, saturation, hue
    "jitter_order": 4,
    "grey_on": 1,
    "blur_on": 1,
    "blur": 1,
    "solarise_on": 1,
    "noise_on": 1,
    "noise": 1,
    "cutout_on": 1,
    "cutout": 3,  # side, x, y
    "elastic_on": 1,
}


class Uniforms:
    """U[0, 1) draws, ``self[purpose]`` of shape [B, columns] on the CPU; ``"elastic"`` has 2·grid² columns.

    Drawn by one call on the CPU: the same seed gives the same parameters on any device. ``generator`` is kept for the
    one thing too large for a table, noise.
    """

    def __init__(self, batch: int, elastic_grid: int, generator: torch.Generator) -> None:
        widths = {**COLUMNS, "elastic": 2 * elastic_grid**2}
        table = torch.rand(batch, sum(widths.values()), generator=generator, dtype=torch.float32)
        self.batch = batch
        self.generator = generator
        self._columns = dict(zip(widths, table.split(list(widths.values()), dim=1), strict=True))

    def __getitem__(self, purpose: str) -> Tensor:
        return self._columns[purpose]

    def chance(self, purpose: str, probability: float) -> Tensor:
        """Bool [B]: who drew yes."""
        return self._columns[f"{purpose}_on"][:, 0] < probability


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """U[0, 1) stretched to U[low, high)."""
    return low + (high - low) * uniform


def where_on(images: Tensor, on_B: Tensor, rows: slice, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Replace, in ``images`` [b, …] (rows ``rows`` of the batch), those that are on by ``change(part, which)``.

    ``on_B`` is bool [B] on the CPU; ``which`` are the chosen samples' places in the batch, on the CPU, to index
    parameters with. Changes ``images`` in place and returns it.
    """
    chosen = on_B[rows].nonzero()[:, 0]
    if len(chosen) == 0:
        return images
    which = chosen + rows.start
    if len(chosen) == len(images):
        return change(images, which)
    places = chosen.to(images.device)
    images[places] = change(images[places], which)
    return images
