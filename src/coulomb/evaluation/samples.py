"""Sampled images of a run for its report: thumbnails and features, their nearest neighbors, maps and clusters."""

import io
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coulomb.evaluation.feature_map import feature_maps, random_state
from coulomb.ground.files import write_atomically
from coulomb.ground.randomness import numpy_generator
from coulomb.kinds.image.views import ViewMaker
from coulomb.metrics.rank import effective_rank
from coulomb.training.plan.plan import Part, Prepared

log = logging.getLogger("coulomb")

HELD_OUT, TRAINING = 1_500, 500  # images
NEIGHBORS = 8  # shown per image
QUERIES = 12  # images that the report shows with their neighbors
DEFAULT_CLUSTERS = 10  # without classes
MOST_CLUSTERS = 21  # that can be told apart on a map

Extract = Callable[[Part], tuple[Tensor, np.ndarray]]


def save_samples(path: Path, extract: Extract, prepared: Prepared, views: ViewMaker, seed: int) -> dict[str, Any]:
    """Writes ``samples.npz`` and returns what ``evaluation.json`` says of it, see `describe_samples`.

    The file holds ``thumbnails``, ``features``, ``labels`` and ``ids`` of held-out images, and of training images the same
    with the prefix ``training_``; further, for all of these images in this order, the arrays of `describe_samples`.

    Args:
        path: the file.
        extract: part of the data → features [n, F] and the indices of its readable images.
        prepared: the data.
        views: prepares the thumbnails.
        seed: seed of the draw of the images.
    """
    parts = [_columns(prepared.unseen.sample(HELD_OUT, seed, "samples"), extract, views)]
    if prepared.unseen is not prepared.train:
        parts.append(_columns(prepared.train.sample(TRAINING, seed, "training samples"), extract, views))
    features, labels = (np.concatenate([part[name] for part in parts]) for name in ("features", "labels"))
    arrays, description = describe_samples(features, labels, len(parts[0]["labels"]), seed)
    columns = parts[0] | {f"training_{name}": column for part in parts[1:] for name, column in part.items()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **columns, **arrays)  # type: ignore[arg-type]  # its stubs take names for options
    write_atomically(path, buffer.getvalue())
    return description


def describe_samples(
    features: np.ndarray, labels: np.ndarray, held_out: int, seed: int, of: str = "images"
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Finds neighbors, maps and clusters of sampled images.

    Args:
        features: [n, F], finite and not zero.
        labels: [n], −1 if unknown.
        held_out: how many of the first images are held out. Only these are neighbors.
        seed: seed of the maps, the clusters and the draw of the queries.
        of: what the cautions of the maps call the rows.

    Returns:
        Arrays: ``neighbors`` [n, k], positions by decreasing cosine; ``clusters`` [n], numbered by decreasing size; and
        ``map_KEY`` [n, 2] for each map, in percent of a square.

        A dict for JSON: the numbers ``images`` and ``held_out``; ``effective_rank`` of the held-out features; ``queries``,
        positions of images to show with their neighbors, evenly from all classes; ``agreement``, the share of neighbors
        with the image's class, None without labels; and ``maps``, {``key``, ``name``, ``caution``} of each map, the best
        first. With fewer than two held-out images there are only the numbers.
    """
    n = len(features)
    description: dict[str, Any] = {"images": n, "held_out": held_out}
    if held_out < 2:
        return {}, description
    features = features.astype(np.float32)
    neighbors = nearest_neighbors(features, NEIGHBORS, among=np.arange(n) < held_out)
    arrays = {"neighbors": neighbors.astype(np.int32)}
    if (clusters := find_clusters(features, labels, seed)) is not None:
        arrays["clusters"] = clusters.astype(np.int16)
    problems: list[str] = []
    layouts = feature_maps(features, seed, problems, of)
    for problem in problems:
        log.warning("%s", problem)
    arrays |= {f"map_{layout.key}": layout.places.astype(np.float32) for layout in layouts}
    return arrays, description | {
        "effective_rank": effective_rank(torch.from_numpy(features[:held_out])),
        "queries": draw_queries(labels[:held_out], QUERIES, seed),
        "agreement": neighbor_agreement(neighbors[:held_out], labels),
        "maps": [{"key": layout.key, "name": layout.name, "caution": layout.caution} for layout in layouts],
    }


def nearest_neighbors(features: np.ndarray, k: int, among: np.ndarray | None = None) -> np.ndarray:
    """Returns indices [n, min(k, n−1)] of the other rows with the largest cosine, nearest first; ties by index.

    ``among``, bool [n], restricts the neighbors.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    candidates = len(features) - 1
    if among is not None:
        similarity[:, ~among] = -np.inf
        candidates = int(among.sum()) - 1
    return np.argsort(-similarity, axis=1, kind="stable")[:, : min(k, candidates)]


def find_clusters(features: np.ndarray, labels: np.ndarray, seed: int) -> np.ndarray | None:
    """Returns the k-means cluster [n] of each direction, numbered by size, with as many clusters as classes.

    None for too few images or distinct directions.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    classes = len(np.unique(labels[labels >= 0]))
    k = min(classes if classes > 1 else DEFAULT_CLUSTERS, MOST_CLUSTERS, len(unit) // 3)
    if k < 2 or len(np.unique(unit.round(5), axis=0)) < k:
        return None
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        raw = KMeans(k, n_init=3, random_state=random_state(seed, "clusters")).fit_predict(unit)
    order = np.argsort(-np.bincount(raw, minlength=k), kind="stable")
    return np.argsort(order)[raw]


def draw_queries(labels: np.ndarray, n: int, seed: int) -> list[int]:
    """Returns ``n`` random indices, spread evenly over the classes; images without a label come last."""
    order = numpy_generator(seed, "report", "queries").permutation(len(labels))
    drawn_before: dict[int, int] = {}
    ranked = []
    for i in order.tolist():
        label = int(labels[i])
        drawn_before[label] = drawn_before.get(label, -1) + 1
        ranked.append((label < 0, drawn_before[label], i))
    if (labels >= 0).any():
        ranked.sort(key=lambda entry: entry[:2])
    return sorted((i for *_, i in ranked[:n]), key=lambda i: (int(labels[i]) < 0, int(labels[i])))


def neighbor_agreement(neighbors: np.ndarray, labels: np.ndarray) -> float | None:
    """Returns the share of the neighbors [m, k] of the first m images that have the image's class; None without labels."""
    classes, around = labels[: len(neighbors), None], labels[neighbors]
    known = (classes >= 0) & (around >= 0)
    return float(((classes == around) & known).sum() / known.sum()) if known.any() else None


def _columns(part: Part, extract: Extract, views: ViewMaker) -> dict[str, np.ndarray]:
    extracted, indices = extract(part)
    with np.errstate(over="ignore"):  # such images are left out
        features = extracted.numpy().astype(np.float16)
    usable = np.isfinite(features).all(1) & (np.abs(features).max(1, initial=0) > 0)
    if not usable.all():
        log.warning(
            "%d of %d sampled images have features that are zero, NaN or infinite; the report leaves them out",
            len(usable) - usable.sum(),
            len(usable),
        )
    features, indices = features[usable], indices[usable]
    batches = part.images.batches(indices, 256)
    labels = np.full(len(indices), -1) if part.labels is None else part.labels[indices]
    pictures = [thumbnails(views.plain(batch.stack)) for batch in batches]
    return {
        "thumbnails": np.concatenate(pictures) if pictures else np.zeros((0, 1, 1, 3), np.uint8),
        "features": features,
        "labels": labels.astype(np.int64),
        "ids": np.array([part.images.table.item_id(int(index)) for index in indices], dtype=np.str_),
    }


def thumbnails(plain: Tensor, largest: int = 48) -> np.ndarray:
    """Images [B, C, S, S] in [0, 1] → uint8 [B, s, s, 3], s at most ``largest``; the first three channels, or gray."""
    if plain.shape[-1] > largest:
        plain = nn.functional.interpolate(plain, size=largest, mode="bilinear", antialias=True, align_corners=False)
    color = plain[:, :3] if plain.shape[1] >= 3 else plain[:, :1].expand(-1, 3, -1, -1)
    return (color.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()
