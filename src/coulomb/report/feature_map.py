"""Two-dimensional maps of the features, and the colors of their marks."""

import importlib.util
from dataclasses import dataclass

import numpy as np

from coulomb.ground.randomness import derive_seed
from coulomb.report.collect import RunData, Samples
from coulomb.report.pages.numbers import percent

MIN_TSNE = 30  # samples; fewer have no neighborhoods to show
MAX_TSNE = 2000  # about 10 s of t-SNE on one core
COLORS, SHAPES = 7, 3  # colors of page.css and symbols of report_macros.html: 21 groups can be told apart
DEFAULT_CLUSTERS = 10  # without classes


@dataclass(frozen=True)
class Layout:
    """Positions [n, 2] in percent of a square, and a caution for the reader."""

    key: str
    name: str
    caution: str
    places: np.ndarray


def feature_maps(features: np.ndarray, seed: int = 0, problems: list[str] | None = None) -> list[Layout]:
    """Computes maps of the features' directions: PCA, t-SNE if it takes seconds, UMAP if it is installed.

    The first one is shown first. ``problems`` receives a sentence if UMAP is installed but fails.
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
        f"The projection on the two principal components, which explain {share:.0%} of the variance; images that overlap "
        "here may be far apart in other dimensions.",
        _fit(_fix_signs(scores[:, :2])),
    )
    if not MIN_TSNE <= len(features) <= MAX_TSNE:
        return [pca]
    reduced = np.ascontiguousarray(scores[:, :50], dtype=np.float32)
    layouts = [_tsne(reduced, seed), pca]
    if importlib.util.find_spec("umap"):
        try:
            layouts.insert(1, _umap(reduced, seed))
        except Exception as error:  # for example an incompatible NumPy: the report does not depend on it
            if problems is not None:
                problems.append(f"UMAP is installed but fails ({type(error).__name__}: {error}): its map is left out.")
    return [layout for layout in layouts if np.isfinite(layout.places).all()]


def _tsne(scores: np.ndarray, seed: int) -> Layout:
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    perplexity = min(30.0, (len(scores) - 1) / 3)
    start = scores[:, :2] / max(float(scores[:, 0].std()), 1e-12) * 1e-4
    model = TSNE(perplexity=perplexity, init=start, max_iter=750, random_state=_random_state(seed, "tsne"))
    with threadpool_limits(1):  # its threads wait actively: on a busy machine two are ten times slower than one
        places = model.fit_transform(scores)
    return Layout(
        "tsne",
        "t-SNE",
        f"Keeps similar images close together (perplexity {perplexity:.0f}). Neighbors are meaningful; distances between "
        "groups, their sizes and densities are not.",
        _fit(places),
    )


def _umap(scores: np.ndarray, seed: int) -> Layout:
    from umap import UMAP

    neighbors = min(15, len(scores) - 1)
    start = scores[:, :2] / max(float(np.abs(scores[:, :2]).max()), 1e-12) * 10
    model = UMAP(n_neighbors=neighbors, init=start, random_state=_random_state(seed, "umap"), n_jobs=1)
    places = model.fit_transform(scores)
    return Layout(
        "umap",
        "UMAP",
        f"Keeps similar images close together ({neighbors} neighbors) and groups apart. Neighbors are meaningful; "
        "distances between groups mean little, their sizes and densities nothing.",
        _fit(np.asarray(places, dtype=float)),
    )


def _random_state(seed: int, purpose: str) -> int:
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


@dataclass(frozen=True)
class Mark:
    """A group on the map: its name, color number, shape number and size. Label −1 stands for all other groups."""

    label: int
    name: str
    color: int
    shape: int
    count: int


@dataclass(frozen=True)
class Coloring:
    """``marks`` in the order of the legend; ``of_sample``: an index into ``marks`` per sample, −1 for none."""

    key: str
    marks: list[Mark]
    of_sample: list[int]
    note: str = ""


def map_colorings(run: RunData, samples: Samples, neighbors: np.ndarray, seed: int) -> list[Coloring]:
    """Returns the colorings that the samples allow: by class, cluster, agreement of neighbors, and split."""
    colorings = [
        _by_class(run, samples.labels),
        _by_cluster(run, samples, seed),
        _by_agreement(samples, neighbors),
        _by_split(samples),
    ]
    return [coloring for coloring in colorings if coloring is not None]


def _by_class(run: RunData, labels: np.ndarray) -> Coloring | None:
    if not (labels >= 0).any():
        return None
    names = {int(label): run.class_name(int(label)) for label in np.unique(labels[labels >= 0])}
    return _coloring("class", group_marks(labels, names), labels)


def _by_cluster(run: RunData, samples: Samples, seed: int) -> Coloring | None:
    """k-means of the directions with as many clusters as classes, numbered by size and named by their majority class."""
    unit = samples.features / np.linalg.norm(samples.features, axis=1, keepdims=True)
    n_classes = len(np.unique(samples.labels[samples.labels >= 0]))
    k = min(n_classes if n_classes > 1 else DEFAULT_CLUSTERS, COLORS * SHAPES, len(unit) // 3)
    if k < 2 or len(np.unique(unit.round(5), axis=0)) < k:
        return None
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        raw = KMeans(k, n_init=3, random_state=_random_state(seed, "clusters")).fit_predict(unit)
    order = np.argsort(-np.bincount(raw, minlength=k), kind="stable")
    clusters = np.argsort(order)[raw]
    names = {c: f"{c + 1}{_majority(run, samples.labels[clusters == c])}" for c in range(k)}
    note = f"k-means with {k} clusters of these samples; numbered by size"
    return _coloring(
        "cluster",
        group_marks(clusters, names),
        clusters,
        note + (" and named by majority class." if n_classes else "."),
    )


def _majority(run: RunData, labels: np.ndarray) -> str:
    classes, counts = np.unique(labels[labels >= 0], return_counts=True)
    if len(classes) == 0:
        return ""
    most = int(counts.argmax())
    return f": mostly {run.class_name(int(classes[most]))} ({percent(counts[most] / len(labels), 0)})"


def _by_agreement(samples: Samples, neighbors: np.ndarray) -> Coloring | None:
    """Whether at least half of an image's labeled neighbors have its class."""
    around, known = samples.labels[neighbors], samples.labels[neighbors] >= 0
    comparable = (samples.labels >= 0) & known.any(1)
    if not comparable.any():
        return None
    agree = ((around == samples.labels[:, None]) & known).sum(1) * 2 >= known.sum(1)
    groups = np.where(comparable, np.where(agree, 0, 1), -1)
    marks = [
        Mark(0, "same class", 0, 0, int((groups == 0).sum())),
        Mark(1, "another class", 3, 2, int((groups == 1).sum())),
    ]
    note = f"The class of at least half of an image’s {neighbors.shape[1]} nearest neighbors."
    return _coloring("neighbors", marks, groups, note)


def _by_split(samples: Samples) -> Coloring | None:
    if samples.held_out.all():
        return None
    marks = [
        Mark(0, "held out", 0, 0, int(samples.held_out.sum())),
        Mark(1, "training images", 1, 1, int((~samples.held_out).sum())),
    ]
    note = "A sample of the training images; neighbors are held-out images only."
    return _coloring("split", marks, np.where(samples.held_out, 0, 1), note)


def group_marks(groups: np.ndarray, names: dict[int, str]) -> list[Mark]:
    """Returns a mark per group (≥ 0); if there are too many, the largest ones and one for all others."""
    labels, counts = np.unique(groups[groups >= 0], return_counts=True)
    most = COLORS * SHAPES
    if len(labels) > most:
        kept = np.sort(np.argsort(-counts, kind="stable")[: most - 1])
        rest = int(counts.sum() - counts[kept].sum())
        shown = [(int(labels[i]), int(counts[i])) for i in kept]
    else:
        shown, rest = list(zip(labels.tolist(), counts.tolist(), strict=True)), 0
    marks = [Mark(label, names[label], i % COLORS, i // COLORS, n) for i, (label, n) in enumerate(shown)]
    return [*marks, Mark(-1, f"{len(labels) - len(shown)} other classes", COLORS, 0, rest)] if rest else marks


def _coloring(key: str, marks: list[Mark], groups: np.ndarray, note: str = "") -> Coloring:
    index = {mark.label: i for i, mark in enumerate(marks) if mark.label >= 0}
    other = len(marks) - 1 if marks[-1].label < 0 else -1
    of_sample = [index.get(group, other if group >= 0 else -1) for group in groups.tolist()]
    return Coloring(key, marks, of_sample, note)
