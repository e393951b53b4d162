"""Random parameters of a view, and operations on the samples that drew them."""

from collections.abc import Callable

import torch
from torch import Tensor

from coulomb.kinds.kind import Share

CROP_TRIES = 10

# There is one row per sample, so that its parameters do not depend on the size or the chunks of the batch. All columns
# are always drawn, so that switching off an operation does not change the others.
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
    "gray_on": 1,
    "blur_on": 1,
    "blur": 1,
    "solarize_on": 1,
    "noise_on": 1,
    "noise": 1,
    "cutout_on": 1,
    "cutout": 3,  # side, x, y
    "elastic_on": 1,
}


class Uniforms:
    """Samples of U[0, 1) for the parameters of one view of a batch: ``self[purpose]`` is [B, columns].

    All are drawn by one call on the CPU, so that a seed gives the same parameters on any device. ``"elastic"`` has 2·grid²
    columns. Noise, which is too large for the table, is drawn from ``generator`` later.

    With ``share``, numbers for the whole batch are drawn, and the rows of the share are used: an image then has the same
    parameters for any division of the batch.
    """

    def __init__(self, batch: int, elastic_grid: int, generator: torch.Generator, share: Share | None = None) -> None:
        widths = {**COLUMNS, "elastic": 2 * elastic_grid**2}
        drawn = batch if share is None else share.total
        table = torch.rand(drawn, sum(widths.values()), generator=generator, dtype=torch.float32)
        self.whole = dict(zip(widths, table.split(list(widths.values()), dim=1), strict=True))
        table = table if share is None else table[share.rows]
        self.rows = slice(None) if share is None else share.rows
        self.batch = batch
        self.generator = generator
        self._columns = dict(zip(widths, table.split(list(widths.values()), dim=1), strict=True))

    def __getitem__(self, purpose: str) -> Tensor:
        return self._columns[purpose]

    def chance(self, purpose: str, probability: float) -> Tensor:
        """Returns bool [B]: True with this probability."""
        return self._columns[f"{purpose}_on"][:, 0] < probability


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Maps U[0, 1) to U[low, high)."""
    return low + (high - low) * uniform


def where_on(images: Tensor, on_B: Tensor, rows: slice, change: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Applies an operation to the samples that are on, in place, and returns ``images``.

    Args:
        images: [b, …], rows ``rows`` of the batch.
        on_B: bool [B] on the CPU: which samples of the batch are on.
        rows: rows of the batch.
        change: maps the chosen images and their positions in the batch (on the CPU, to index parameters) to new images.
    """
    chosen = on_B[rows].nonzero()[:, 0]
    if len(chosen) == 0:
        return images
    positions = chosen + rows.start
    if len(chosen) == len(images):
        return change(images, positions)
    chosen = chosen.to(images.device)
    images[chosen] = change(images[chosen], positions)
    return images
