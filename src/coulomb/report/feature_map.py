"""Two-dimensional maps of the features and the colours of their marks."""

import importlib.util
from dataclasses import dataclass

import numpy as np

from coulomb.pages.numbers import percent
from coulomb.randomness import derive_seed
from coulomb.report.collect import Run, Samples

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


COLOURS, SHAPES = 7, 3  # the palette of page.css and the symbols of macros.html: 21 groups can be told apart
CLUSTERS = 10  # where there are no classes to say how many


@dataclass(frozen=True)
class Mark:
    """How a group looks on the map: colour number, shape number, and how many samples it has; label −1: all others."""

    label: int
    name: str
    colour: int
    shape: int
    count: int


@dataclass(frozen=True)
class Colouring:
    """``marks`` in the legend's order; ``of_sample``: index into marks for each sample, −1: none."""

    key: str
    name: str
    marks: list[Mark]
    of_sample: list[int]
    note: str = ""


def colourings(run: Run, samples: Samples, neighbours: np.ndarray, seed: int) -> list[Colouring]:
    """Those that the samples allow, the one to begin with first."""
    found = [
        _by_class(run, samples.labels),
        _by_cluster(run, samples, seed),
        _by_agreement(samples, neighbours),
        _by_split(samples),
    ]
    return [colouring for colouring in found if colouring is not None]


def _by_class(run: Run, labels: np.ndarray) -> Colouring | None:
    if not (labels >= 0).any():
        return None
    marks = marks_of(labels, {int(label): run.class_name(int(label)) for label in np.unique(labels[labels >= 0])})
    return Colouring("class", "class", marks, _index(marks, labels))


def _by_cluster(run: Run, samples: Samples, seed: int) -> Colouring | None:
    """k-means of the directions, as many clusters as there are classes, numbered by size and named by their majority."""
    unit = samples.features / np.linalg.norm(samples.features, axis=1, keepdims=True)
    known = len(np.unique(samples.labels[samples.labels >= 0]))
    k = min(known if known > 1 else CLUSTERS, COLOURS * SHAPES, len(unit) // 3)
    if k < 2 or len(np.unique(unit.round(5), axis=0)) < k:
        return None
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1):
        state = derive_seed(seed, "report", "clusters") % 2**32
        raw = KMeans(k, n_init=3, random_state=state).fit_predict(unit)
    order = np.argsort(-np.bincount(raw, minlength=k), kind="stable")
    clusters = np.argsort(order)[raw]
    names = {c: f"{c + 1}{_majority(run, samples.labels[clusters == c])}" for c in range(k)}
    marks = marks_of(clusters, names)
    note = f"k-means with {k} clusters on these samples; numbered by size" + (
        ", and named by the class that most of a cluster has." if known else "."
    )
    return Colouring("cluster", "cluster", marks, _index(marks, clusters), note)


def _majority(run: Run, labels: np.ndarray) -> str:
    found, counts = np.unique(labels[labels >= 0], return_counts=True)
    if len(found) == 0:
        return ""
    most = int(counts.argmax())
    return f": mostly {run.class_name(int(found[most]))} ({percent(counts[most] / len(labels), 0)})"


def _by_agreement(samples: Samples, neighbours: np.ndarray) -> Colouring | None:
    """Whether at least half of an image's neighbours with a label are of its class."""
    around, known = samples.labels[neighbours], samples.labels[neighbours] >= 0
    judged = (samples.labels >= 0) & known.any(1)
    if not judged.any():
        return None
    same = ((around == samples.labels[:, None]) & known).sum(1) * 2 >= known.sum(1)
    groups = np.where(judged, np.where(same, 0, 1), -1)
    marks = [
        Mark(0, "own class", 0, 0, int((groups == 0).sum())),
        Mark(1, "another class", 3, 2, int((groups == 1).sum())),
    ]
    note = f"Of which class at least half of an image’s {neighbours.shape[1]} nearest neighbours are."
    return Colouring("neighbours", "neighbours", marks, _index(marks, groups), note)


def _by_split(samples: Samples) -> Colouring | None:
    if samples.held_out.all():
        return None
    groups = np.where(samples.held_out, 0, 1)
    marks = [
        Mark(0, "held out", 0, 0, int(samples.held_out.sum())),
        Mark(1, "seen in training", 1, 1, int((~samples.held_out).sum())),
    ]
    note = "A sample of the training images; neighbours are looked for among held-out images only."
    return Colouring("split", "split", marks, _index(marks, groups), note)


def marks_of(groups: np.ndarray, names: dict[int, str]) -> list[Mark]:
    """A mark for each group (≥ 0) of samples; where there are too many, the largest, and one for all others."""
    found, counts = np.unique(groups[groups >= 0], return_counts=True)
    room = COLOURS * SHAPES
    if len(found) > room:
        kept = np.sort(np.argsort(-counts, kind="stable")[: room - 1])
        rest = int(counts.sum() - counts[kept].sum())
        shown = [(int(found[i]), int(counts[i])) for i in kept]
    else:
        shown, rest = list(zip(found.tolist(), counts.tolist(), strict=True)), 0
    marks = [Mark(label, names[label], i % COLOURS, i // COLOURS, n) for i, (label, n) in enumerate(shown)]
    return [*marks, Mark(-1, f"{len(found) - len(shown)} other classes", COLOURS, 0, rest)] if rest else marks


def _index(marks: list[Mark], groups: np.ndarray) -> list[int]:
    where = {mark.label: i for i, mark in enumerate(marks) if mark.label >= 0}
    other = len(marks) - 1 if marks[-1].label < 0 else -1
    return [where.get(group, other if group >= 0 else -1) for group in groups.tolist()]
