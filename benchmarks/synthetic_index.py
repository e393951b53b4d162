"""Writes an index of any size in the format of `coulomb.index`, with random features and drawn thumbnails."""

import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from coulomb.index.contents import checksums
from coulomb.index.folder import FORMAT, IndexFolder
from coulomb.index.table import schema

PICTURES = 240  # different thumbnails
GROUPS = ("beach", "forest", "kitchen", "street", "train", "winter")


def write_index(
    folder: Path,
    images: int,
    *,
    width: int = 64,
    ids: Sequence[str] | None = None,
    labels: Sequence[str | None] | None = None,
    near: int = 0,
    seed: int = 0,
    root: str | None = None,
    encoder: dict[str, Any] | None = None,
    clusters: int = 60,
) -> Path:
    """Writes an index of ``images`` in 6 groups, and returns its folder.

    Args:
        folder: to write.
        images: number of images.
        width: features per image.
        ids, labels: of the images; default: from their groups.
        near: every image with a number divisible by it almost repeats the image before; 0: none.
        seed: of the features.
        root: folder of the images, which need not exist.
        encoder: entry of the encoder in ``index.json``; a search by a picture needs a real one, and ``width`` as its features.
        clusters: clusters on the sphere; cluster n belongs to group n modulo 6.
    """
    rng = np.random.default_rng(seed)
    generation = folder / "generation-000001"
    generation.mkdir(parents=True)
    centers = rng.normal(size=(clusters, width)).astype(np.float32)
    cluster = rng.integers(clusters, size=images)
    features = np.lib.format.open_memmap(
        generation / "features.npy", mode="w+", dtype=np.float16, shape=(images, width)
    )
    for start in range(0, images, 8192):
        rows = centers[cluster[start : start + 8192]]
        rows = rows + 0.8 * rng.normal(size=rows.shape).astype(np.float32)
        if near:
            again = np.arange(near, len(rows), near)
            rows[again] = rows[again - 1] + 0.05 * rng.normal(size=(len(again), width))
        features[start : start + len(rows)] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    features.flush()
    pictures = [thumbnail(number) for number in range(PICTURES)]
    groups = [GROUPS[number % 6] for number in cluster]
    ids = [f"{group}/{at:06d}.jpg" for at, group in enumerate(groups)] if ids is None else ids
    labels = groups if labels is None else labels
    shown = [pictures[(number * 4 + at % 4) % PICTURES] for at, number in enumerate(cluster)]
    (generation / "thumbnails.jpgs").write_bytes(b"".join(shown))
    np.save(generation / "thumbnails.npy", np.cumsum([0, *map(len, shown)]).astype(np.int64))
    columns = {
        "id": ids,
        "path": ids if root else [None] * images,
        "label": labels,
        "bytes": [100_000 + (at * 7919) % 90_000 for at in range(images)],
        "sha256": [f"{at:064x}" for at in range(images)],
        "mtime": [None] * images,
        "width": [640 if at % 3 else 1280 for at in range(images)],
        "height": [480 if at % 3 else 960 for at in range(images)],
    }
    kinds = schema()
    pq.write_table(
        pa.table([pa.array(columns[f.name], f.type) for f in kinds], schema=kinds), generation / "images.parquet"
    )
    info = {
        "format": FORMAT,
        "coulomb": "0",
        "generation": 1,
        "images": images,
        "features": width,
        "precision": "float16",
        "thumbnail": 192,
        "encoder": encoder or {"name": "lite0", "fingerprint": "0", "image_size": 96, "canvas": None},
        "failed": {},
        "last_update": {},
        "data": {"name": "synthetic", "root": root},
    }
    where = IndexFolder(folder)
    where.write_info(info | {"files": checksums(where.generation(1))})
    return folder


@functools.cache
def thumbnail(number: int, side: tuple[int, int] = (160, 120)) -> bytes:
    """Returns a JPEG of a gradient and a disk."""
    rng = np.random.default_rng(number // 4)
    y, x = np.mgrid[0 : side[1], 0 : side[0]]
    first, second, third = rng.integers(40, 220, size=(3, 3))
    share = (x / side[0] * 0.6 + y / side[1] * 0.4)[..., None]
    picture = first * (1 - share) + second * share
    cx, cy, r = rng.integers(30, side[0] - 30), rng.integers(30, side[1] - 30), 14 + 6 * (number % 4)
    picture[(x - cx) ** 2 + (y - cy) ** 2 < r * r] = third
    file = io.BytesIO()
    Image.fromarray(picture.astype(np.uint8)).save(file, "JPEG", quality=80)
    return file.getvalue()
