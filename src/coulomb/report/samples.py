"""``samples.npz`` of a run folder: the images of the page with their features."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coulomb.errors import InputError
from coulomb.reading import MIB, Arrays, open_arrays
from coulomb.report.cleaning import clean, reason

MOST = 10_000  # samples; a run writes 2,000
MOST_EXPANDED = 512 * MIB
NAMES = ("thumbnails", "features", "labels", "ids")


@dataclass(frozen=True)
class Samples:
    """Images with their features, aligned, held-out ones first: thumbnails uint8 [n, h, w, 3], features float32 [n, F]."""

    thumbnails: np.ndarray
    features: np.ndarray
    labels: np.ndarray  # int64 [n], −1: unknown
    ids: list[str]
    held_out: np.ndarray  # bool [n]; false: seen in training

    def __len__(self) -> int:
        return len(self.ids)


def read_samples(path: Path, problems: list[str]) -> Samples | None:
    """Held-out images, and training images where the file has some; what is missing or odd is told in ``problems``."""
    if not path.is_file():
        problems.append("samples.npz is not there (yet): no neighbours and no map.")
        return None
    try:
        with open_arrays(path, most=MOST_EXPANDED) as stored:
            held_out = _part(stored, "")
            seen = _part(stored, "training_") if "training_features" in stored else None
    except InputError as error:
        problems.append(f"samples.npz cannot be read: {reason(error, path)}")
        return None
    if not _fits(held_out):
        problems.append("samples.npz does not hold what a run writes there.")
        return None
    samples = held_out if seen is None or not _fits(seen) or not _alike(held_out, seen) else _joined(held_out, seen)
    n = len(samples)
    usable = np.isfinite(samples.features).all(1) & (np.abs(samples.features).max(1, initial=0) > 0)
    if not usable.all():
        problems.append(f"{n - usable.sum()} of {n} samples have features that are not finite or all zero; left out.")
    kept = np.flatnonzero(usable)
    if len(kept) == 0:
        problems.append("samples.npz holds no usable sample: no neighbours and no map.")
        return None
    return Samples(
        samples.thumbnails[kept],
        samples.features[kept],
        samples.labels[kept],
        [samples.ids[i] for i in kept],
        samples.held_out[kept],
    )


def _part(stored: Arrays, prefix: str) -> Samples:
    thumbnails, features, labels, ids = (stored[prefix + name] for name in NAMES)
    names = [clean(str(name)) for name in ids]
    held_out = np.full(len(names), not prefix)
    return Samples(thumbnails, features.astype(np.float32), labels.astype(np.int64), names, held_out)


def _fits(part: Samples) -> bool:
    pictures, n = part.thumbnails, len(part)
    shaped = pictures.ndim == 4 and pictures.shape[-1] == 3 and pictures.dtype == np.uint8 and part.features.ndim == 2
    return (
        shaped and n <= MOST and len(pictures) == len(part.features) == len(part.labels) == n and part.labels.ndim == 1
    )


def _alike(one: Samples, other: Samples) -> bool:
    return one.thumbnails.shape[1:] == other.thumbnails.shape[1:] and one.features.shape[1] == other.features.shape[1]


def _joined(one: Samples, other: Samples) -> Samples:
    return Samples(
        np.concatenate([one.thumbnails, other.thumbnails]),
        np.concatenate([one.features, other.features]),
        np.concatenate([one.labels, other.labels]),
        one.ids + other.ids,
        np.concatenate([one.held_out, other.held_out]),
    )
