"""Folders of TIFF files with bands, made on the spot."""

from pathlib import Path

import numpy as np

CLASSES = ("across", "down")
SEEN = 4  # the band that shows the class, counted from 0


def bands(draw: np.random.Generator, kind: int, channels: int = 6, side: int = 24) -> np.ndarray:
    """Returns uint16 [C, H, W]: noise and a square in each band; in band 5 also stripes, across or down."""
    values = draw.normal(2000, 300, (channels, side, side))
    for plane in values:
        top, left = draw.integers(0, side - 6, 2)
        plane[top : top + 6, left : left + 6] += 2000
    wave = (np.sin(np.arange(side) * 1.2 + draw.uniform(0, 6)) + 1) * 2500
    values[SEEN] += wave[:, None] if kind else wave[None]
    return np.clip(values, 0, 65535).astype(np.uint16)


def write_tiles(folder: Path, count: int, seed: int = 0, channels: int = 6) -> Path:
    """Writes ``count`` TIFF files of each class into a folder per class."""
    import tifffile

    draw = np.random.default_rng(seed)
    for kind, name in enumerate(CLASSES):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            values = bands(draw, kind, channels)
            path = folder / name / f"{number:03d}.tif"
            tifffile.imwrite(path, values, photometric="minisblack", planarconfig="separate")
    return folder
