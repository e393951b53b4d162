"""Two-dimensional maps of the features: PCA always, t-SNE where it takes seconds, UMAP where it is installed."""

import importlib.util
from dataclasses import dataclass

import numpy as np

from coulomb.randomness import derive_seed

NEIGHBOURS_FROM = 30  # fewer have no neighbourhoods to show
NEIGHBOURS_UP_TO = 2000  # about 10 s of t-SNE on one core


@dataclass(frozen=True)
class Layout:
    """Places [n, 2] in percent of a square, with what a reader must know."""

    key: str
    name: str
    caution: str
    places: np.ndarray


def layouts(features: np.ndarray, seed: int = 0, problems: list[str] | None = None) -> list[Layout]:
    """The maps worth showing, the one to begin with first. Distances are between directions: rows get unit length.

    A UMAP that is installed but fails becomes a sentence in ``problems``.
    """
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    left, singular, _ = np.linalg.svd(centred, full_matrices=False)
    total = float((singular**2).sum())
    if len(features) < 2 or total < 1e-10:
        return []
    scores = np.pad(left * singular, ((0, 0), (0, max(0, 2 - len(singular)))))
    share = float((singular[:2] ** 2).sum()) / total
    pca = Layout(
        "pca",
        "PCA",
        f"A shadow of the feature space along its two widest directions, which hold {share:.0%} of the variance; images that "
        "overlap here may be far apart in the others.",
        _fit(_upright(scores[:, :2])),
    )
    if not NEIGHBOURS_FROM <= len(features) <= NEIGHBOURS_UP_TO:
        return [pca]
    reduced = np.ascontiguousarray(scores[:, :50], dtype=np.float32)
    found = [_tsne(reduced, seed), pca]
    if importlib.util.find_spec("umap"):
        try:
            found.insert(1, _umap(reduced, seed))
        except Exception as error:  # an unfit NumPy for example; a picture more is not worth a report less
            if problems is not None:
                problems.append(f"UMAP is installed but fails ({type(error).__name__}: {error}): no map by it.")
    return [layout for layout in found if np.isfinite(layout.places).all()]


def _tsne(scores: np.ndarray, seed: int) -> Layout:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(scores) - 1) / 3)
    start = scores[:, :2] / max(float(scores[:, 0].std()), 1e-12) * 1e-4
    model = TSNE(perplexity=perplexity, init=start, max_iter=750, random_state=_state(seed, "tsne"))
    with threadpool_limits(1):  # its threads wait by spinning: beside other work, two are ten times slower than one
        placed = model.fit_transform(scores)
    return Layout(
        "tsne",
        "t-SNE",
        f"Made to keep near images near (perplexity {perplexity:.0f}). Who lies beside whom means something; the distance "
        "between groups, their size and their density do not.",
        _fit(placed),
    )


def _umap(scores: np.ndarray, seed: int) -> Layout:
    from umap import UMAP

    neighbours = min(15, len(scores) - 1)
    start = scores[:, :2] / max(float(np.abs(scores[:, :2]).max()), 1e-12) * 10
    model = UMAP(n_neighbors=neighbours, init=start, random_state=_state(seed, "umap"), n_jobs=1)
    placed = model.fit_transform(scores)
    return Layout(
        "umap",
        "UMAP",
        f"Made to keep near images near ({neighbours} neighbours) and groups apart. Who lies beside whom means something; "
        "distances between groups mean little, their size and density nothing.",
        _fit(np.asarray(placed, dtype=float)),
    )


def _state(seed: int, purpose: str) -> int:
    return derive_seed(seed, "report", purpose) % 2**32


def _upright(places: np.ndarray) -> np.ndarray:
    """The sign of a singular vector is arbitrary: the farthest point is put on the positive side."""
    farthest = places[np.abs(places).argmax(0), [0, 1]]
    return places * np.where(farthest < 0, -1.0, 1.0)


def _fit(places: np.ndarray) -> np.ndarray:
    """Into 4 … 96 percent of a square, both axes to one scale, y downwards."""
    low, high = places.min(0), places.max(0)
    spread = max(float((high - low).max()), 1e-12)
    fitted = 50 + 92 * (places - (low + high) / 2) / spread
    return np.round(np.column_stack([fitted[:, 0], 100 - fitted[:, 1]]), 2)
