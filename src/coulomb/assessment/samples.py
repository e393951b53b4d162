"""Held-out images with their features, kept for the report."""

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from coulomb.data.views import ViewMaker
from coulomb.models.saving import write_atomically
from coulomb.runs.prepare import Part, Prepared

SAMPLES = 1_500  # held-out images shown in the report
TRAINING = 500  # training images beside them on its map


def save_samples(
    path: Path, extract: Callable[[Part], tuple[Tensor, np.ndarray]], prepared: Prepared, views: ViewMaker, seed: int
) -> None:
    """Write thumbnails, features, labels and ids of held-out images, drawn by ``seed``; and of training images, under names
    that begin with ``training_``."""
    kept = _columns(prepared.unseen.sample(SAMPLES, seed, "samples"), extract, views)
    if prepared.unseen is not prepared.train:
        seen = _columns(prepared.train.sample(TRAINING, seed, "training samples"), extract, views)
        kept |= {f"training_{name}": column for name, column in seen.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **kept)  # type: ignore[arg-type]  # its stubs take any name for an option of its own
    write_atomically(path, buffer.getvalue())


def _columns(
    part: Part, extract: Callable[[Part], tuple[Tensor, np.ndarray]], views: ViewMaker
) -> dict[str, np.ndarray]:
    features, kept = extract(part)
    thumbnails = [thumbnail(views.plain(batch["image"], batch["aspect"])) for batch in part.images.batches(kept, 256)]
    labels = np.full(len(kept), -1) if part.labels is None else part.labels[kept]
    return {
        "thumbnails": np.concatenate(thumbnails),
        "features": features.numpy().astype(np.float16),
        "labels": labels.astype(np.int64),
        "ids": np.array([part.images.source.item_id(int(index)) for index in kept], dtype=np.str_),
    }


def thumbnail(plain: Tensor, largest: int = 48) -> np.ndarray:
    """Images [B, C, S, S] in [0, 1] → uint8 [B, s, s, 3], s at most ``largest``; the first three channels, or grey."""
    if plain.shape[-1] > largest:
        plain = nn.functional.interpolate(plain, size=largest, mode="bilinear", antialias=True, align_corners=False)
    colour = plain[:, :3] if plain.shape[1] >= 3 else plain[:, :1].expand(-1, 3, -1, -1)
    return (colour.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
