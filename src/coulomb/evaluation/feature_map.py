"""Two-dimensional maps of features."""

import importlib.util
from dataclasses import dataclass

import numpy as np

from coulomb.ground.randomness import derive_seed

MIN_TSNE = 30  # samples; fewer have no neighborhoods to show
MAX_TSNE = 2000  # about 10 s of t-SNE on one core


@dataclass(frozen=True)
class Layout:
    """Positions [n, 2] in percent of a square, and a caution for the reader."""

    key: str
    name: str
    caution: str
    places: np.ndarray


def feature_maps(
    features: np.ndarray, seed: int = 0, problems: list[str] | None = None, of: str = "images"
) -> list[Layout]:
    """Computes maps of the features' directions: PCA, t-SNE if it takes seconds, UMAP if it is installed.

    The first one is shown first. ``problems`` receives a sentence if UMAP is installed but fails. ``of``: what the
    cautions call the rows.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    centered = unit - unit.mean(0)
    left, singular, _ = np.linalg.svd(centered, full_matrices=False)
    total = float((singular**2).sum())
    if len(features) < 2 or total < 1e-10:
        return []
    scores = np.pad(left * singular, ((0, 0), (0, max(0, 2 - len(singular)))))
    share = float((singular[:2] ** 2).sum()) / total
    pca = Layout(
        "pca",
        "PCA",
        f"The projection on the two principal components, which explain {share:.0%} of the variance; {of} that overlap "
        "here may be far apart in other dimensions.",
        _fit(_fix_signs(scores[:, :2])),
    )
    if not MIN_TSNE <= len(features) <= MAX_TSNE:
        return [pca]
    reduced = np.ascontiguousarray(scores[:, :50], dtype=np.float32)
    layouts = [_tsne(reduced, seed, of), pca]
    if importlib.util.find_spec("umap"):
        try:
            layouts.insert(1, _umap(reduced, seed, of))
        except Exception as error:  # for example an incompatible NumPy: the report does not depend on it
            if problems is not None:
                problems.append(f"UMAP is installed but fails ({type(error).__name__}: {error}): its map is left out.")
    return [layout for layout in layouts if np.isfinite(layout.places).all()]


def _tsne(scores: np.ndarray, seed: int, of: str) -> Layout:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(scores) - 1) / 3)
    start = scores[:, :2] / max(float(scores[:, 0].std()), 1e-12) * 1e-4
    model = TSNE(perplexity=perplexity, init=start, max_iter=750, random_state=random_state(seed, "tsne"))
    with threadpool_limits(1):  # its threads wait actively: on a busy machine two are ten times slower than one
        places = model.fit_transform(scores)
    return Layout(
        "tsne",
        "t-SNE",
        f"Keeps similar {of} close together (perplexity {perplexity:.0f}). Neighbors are meaningful; distances between "
        "groups, their sizes and densities are not.",
        _fit(places),
    )


def _umap(scores: np.ndarray, seed: int, of: str) -> Layout:
    from umap import UMAP

    neighbors = min(15, len(scores) - 1)
    start = scores[:, :2] / max(float(np.abs(scores[:, :2]).max()), 1e-12) * 10
    model = UMAP(n_neighbors=neighbors, init=start, random_state=random_state(seed, "umap"), n_jobs=1)
    places = model.fit_transform(scores)
    return Layout(
        "umap",
        "UMAP",
        f"Keeps similar {of} close together ({neighbors} neighbors) and groups apart. Neighbors are meaningful; "
        "distances between groups mean little, their sizes and densities nothing.",
        _fit(np.asarray(places, dtype=float)),
    )


def random_state(seed: int, purpose: str) -> int:
    """Returns a seed for scikit-learn and UMAP."""
    return derive_seed(seed, "report", purpose) % 2**32


def _fix_signs(places: np.ndarray) -> np.ndarray:
    """Puts the farthest point on the positive side: the sign of a singular vector is arbitrary."""
    farthest = places[np.abs(places).argmax(0), [0, 1]]
    return places * np.where(farthest < 0, -1.0, 1.0)


def _fit(places: np.ndarray) -> np.ndarray:
    """Scales both axes alike into 4 … 96 percent of a square, y downwards."""
    low, high = places.min(0), places.max(0)
    spread = max(float((high - low).max()), 1e-12)
    fitted = 50 + 92 * (places - (low + high) / 2) / spread
    return np.round(np.column_stack([fitted[:, 0], 100 - fitted[:, 1]]), 2)
