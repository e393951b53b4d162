"""Two-dimensional maps of the features: PCA always, t-SNE where it takes seconds."""

from dataclasses import dataclass

import numpy as np

from coulomb.randomness import derive_seed

TSNE_FROM, TSNE_UP_TO = (
    30,
    1500,
)  # about 6 s for 1,500 images on two cores; fewer than 30 have no neighbourhoods to show


@dataclass(frozen=True)
class Layout:
    """Places [n, 2] in percent of a square, with what a reader must know."""

    key: str
    name: str
    caution: str
    places: np.ndarray


def layouts(features: np.ndarray, seed: int = 0) -> list[Layout]:
    """The maps worth showing, the one to begin with first. Distances are between directions: rows get unit length."""
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
    if not TSNE_FROM <= len(features) <= TSNE_UP_TO:
        return [pca]
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(features) - 1) / 3)
    start = scores[:, :2] / max(float(scores[:, 0].std()), 1e-12) * 1e-4
    model = TSNE(perplexity=perplexity, init=start.astype(np.float32), max_iter=750, random_state=_state(seed))
    with threadpool_limits(1):  # its threads wait by spinning: beside other work, two are ten times slower than one
        placed = model.fit_transform(np.ascontiguousarray(scores[:, :50], dtype=np.float32))
    tsne = Layout(
        "tsne",
        "t-SNE",
        f"Made to keep near images near (perplexity {perplexity:.0f}). Who lies beside whom means something; the distance "
        "between groups, their size and their density do not.",
        _fit(placed),
    )
    return [tsne, pca] if np.isfinite(placed).all() else [pca]


def _state(seed: int) -> int:
    return derive_seed(seed, "report", "tsne") % 2**32


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
