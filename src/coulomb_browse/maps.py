"""Positions of all images in two dimensions, computed once and kept in a file."""

import hashlib
import io
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coulomb.evaluation.feature_map import MAX_TSNE, feature_maps
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.reading import open_arrays, parse_json
from coulomb_browse.jobs import Say

if TYPE_CHECKING:
    from coulomb.index import Index

log = logging.getLogger("coulomb")

NEAREST, SHARPNESS = 5, 0.05  # an image is placed between its most similar landmarks
JITTER = 0.35  # percent of the map, so that images at the same landmark remain visible
EQUAL = 1e-4  # largest difference of features of equal images, after rounding
ROWS = 4096  # images at once
SCALE = 65535 / 100  # positions are sent as uint16


def index_fingerprint(index: "Index") -> str:
    """Returns a hash of the ids and of a sample of 1,000 features: an index that was updated has another."""
    digest = hashlib.sha256()
    for name in index.ids:
        digest.update(str(name).encode("utf-8", "backslashreplace") + b"\0")
    step = max(1, len(index) // 1000)
    digest.update(np.ascontiguousarray(index.features[::step]).tobytes())
    return digest.hexdigest()


def image_maps(index: "Index", path: Path, say: Say) -> dict[str, Any]:
    """Returns ``{"maps": [{"key", "name", "caution"}]}``; their positions are in the file ``path``, see `positions`.

    Up to 2,000 images: UMAP if umap-learn is installed, t-SNE from 30 images, and PCA. For more images, a seeded draw of 2,000
    landmarks is mapped so, and the others are placed at the mean of their 5 most similar landmarks, weighted by
    exp(cosine/.05); PCA projects all of them. Memory is linear in the number of images.
    """
    fingerprint = index_fingerprint(index)
    known = _read(path, fingerprint)
    if known is not None:
        return known
    n = len(index)
    drawn = np.sort(numpy_generator(0, "browse", "landmarks").permutation(n)[:MAX_TSNE])
    landmarks = np.asarray(index.features[drawn], np.float32)
    say(None, f"maps {len(drawn):,} {index.kind}s".replace(",", " "))
    problems: list[str] = []
    differ = float(np.ptp(landmarks, axis=0).max()) > EQUAL
    layouts = feature_maps(landmarks, problems=problems, of=f"{index.kind}s") if differ else []
    for problem in problems:
        log.warning("%s", problem)
    order = {"umap": 0, "tsne": 1, "pca": 2}
    layouts.sort(key=lambda layout: order.get(layout.key, 3))
    arrays, maps = {}, []
    for number, layout in enumerate(layouts):
        caution = layout.caution
        if n == len(drawn):
            places = layout.places
        elif layout.key == "pca":
            places = _projected(index, landmarks, say)
        else:
            places = _at_landmarks(index, drawn, landmarks, layout.places, say, (number, len(layouts)))
            caution += (
                f" Computed from {len(drawn)} random {index.kind}s; the others are placed next to the most similar of "
                "these."
            )
        arrays[layout.key] = np.clip(np.round(places * SCALE), 0, 65535).astype(np.uint16)
        maps.append({"key": layout.key, "name": layout.name, "caution": caution})
    if not layouts:  # a single image, or all the same
        arrays["pca"] = np.full((n, 2), round(50 * SCALE), np.uint16)
        maps.append(
            {
                "key": "pca",
                "name": "PCA",
                "caution": f"All {index.kind}s have the same features: there is nothing to map.",
            }
        )
    answer = {"maps": maps, "problems": problems}
    _write(path, arrays, answer | {"fingerprint": fingerprint})
    return answer


def positions(path: Path, key: str) -> bytes:
    """Returns the positions of a map as little-endian uint16 [N, 2], 0 … 65535 from left to right and top to bottom.

    Raises:
        ValueError: the file has no such map.
    """
    with open_arrays(path, remedy="reload the map") as arrays:
        return np.ascontiguousarray(arrays[key].astype("<u2")).tobytes()


def _at_landmarks(
    index: "Index", drawn: np.ndarray, landmarks: np.ndarray, of_landmarks: np.ndarray, say: Say, part: tuple[int, int]
) -> np.ndarray:
    """Places every image at the weighted mean of its most similar landmarks; landmarks stay where they are."""
    n, number, parts = len(index), *part
    places = np.empty((n, 2))
    for start in range(0, n, ROWS):
        rows = np.asarray(index.features[start : start + ROWS], np.float32)
        cosines = rows @ landmarks.T
        nearest = np.argpartition(-cosines, NEAREST - 1, axis=1)[:, :NEAREST]
        top = np.take_along_axis(cosines, nearest, axis=1)
        weights = np.exp((top - top.max(1, keepdims=True)) / SHARPNESS)
        weights /= weights.sum(1, keepdims=True)
        places[start : start + ROWS] = (of_landmarks[nearest] * weights[..., None]).sum(1)
        say((number + (start + len(rows)) / n) / parts, f"places {index.kind} {start + len(rows)} of {n}")
    places += numpy_generator(0, "browse", "jitter").normal(scale=JITTER, size=places.shape)
    places[drawn] = of_landmarks
    return np.clip(places, 0, 100)


def _projected(index: "Index", landmarks: np.ndarray, say: Say) -> np.ndarray:
    """Projects all images on the two principal components of the landmarks, scaled into the square."""
    mean = landmarks.mean(0)
    axes = np.linalg.svd(landmarks - mean, full_matrices=False)[2][:2]
    n = len(index)
    places = np.zeros((n, 2))
    for start in range(0, n, ROWS):
        rows = np.asarray(index.features[start : start + ROWS], np.float32)
        places[start : start + len(rows), : len(axes)] = (rows - mean) @ axes.T
        say(None, f"projects {index.kind} {start + len(rows)} of {n}")
    low, high = places.min(0), places.max(0)
    return 50 + 92 * (places - (low + high) / 2) / max(float((high - low).max()), 1e-12) * [1, -1]


def _write(path: Path, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> None:
    file = io.BytesIO()
    np.savez(file, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)  # type: ignore[arg-type]
    write_atomically(path, file.getvalue())


def _read(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """Returns the answer that the file has for this index; None if there is no such file, or it is of another index."""
    if not path.exists():
        return None
    try:
        with open_arrays(path) as arrays:
            about = parse_json(arrays["about"].tobytes())
            if about.pop("fingerprint") == fingerprint and all(one["key"] in arrays for one in about["maps"]):
                return about
    except (InputError, ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s: is computed again (%s)", path, error)
    return None
