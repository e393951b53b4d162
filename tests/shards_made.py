"""Tar shards made of small images, for tests."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.streaming import write_tar


def png(value: int, side: int = 8) -> bytes:
    """An image whose pixels depend on ``value``."""
    pixels = np.random.default_rng(value).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def make_shards(folder: Path, shards: int = 4, images: int = 25, classes: int = 5, side: int = 8) -> Path:
    """Writes ``shards`` files train-0000.tar …; labels are sorted, so that each shard holds few classes."""
    folder.mkdir(parents=True, exist_ok=True)
    total = shards * images
    for shard in range(shards):
        members = []
        for number in range(shard * images, (shard + 1) * images):
            label = number * classes // total
            members += [(f"{number:05d}.png", png(number, side)), (f"{number:05d}.cls", str(label).encode())]
        write_tar(folder / f"train-{shard:04d}.tar", members)
    return folder
