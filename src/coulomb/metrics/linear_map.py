"""The best linear map between two sets of features of the same rows, in closed form: what towers need no training for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import Features
from coulomb.metrics.matching import distinct_pairs, match_ranks
from coulomb.metrics.rows import blocks, check_rows

STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)  # relative to the mean variance of a dimension
WAYS = ("first to second", "second to first", "canonical correlations")
HELD_OUT = 0.2
MOST_ROWS = 100_000  # training rows; more are dropped by a seeded draw, which the protocol records
MOST_TO_CHOOSE = 2_000  # held-out rows that choose the way and the strength
LEAST = 10  # training rows, below which nothing can be held out


@dataclass(frozen=True)
class LinearMap:
    """Two linear maps into one space; made by `fit_linear_map`.

    Attributes:
        way: one of ``WAYS``.
        strength: of the ridge, relative to the mean variance of a dimension.
        means: of the unit features of both training sets, [F] and [G].
        maps: from centered unit features into the space, [F, D] and [G, D]; None for the identity.
        scores: way → strength → mean MRR of both directions on held-out training rows; empty if there were too few.
        rows: training rows of the final fit.
        left_out: training rows beyond 100,000.

    >>> fit_linear_map(np.eye(4), np.eye(4)).way
    'canonical correlations'
    """

    way: str
    strength: float
    means: tuple[np.ndarray, np.ndarray]
    maps: tuple[np.ndarray | None, np.ndarray | None]
    scores: dict[str, dict[str, float]]
    rows: int
    left_out: int

    def embed(self, first: Features, second: Features) -> tuple[np.ndarray, np.ndarray]:
        """Returns the embeddings float64 [n, D] and [m, D] of features [n, F] and [m, G] of the two encoders."""
        sides = []
        for features, mean, weight in zip((first, second), self.means, self.maps, strict=True):
            centered = unit_features(features) - mean
            sides.append(centered if weight is None else centered @ weight)
        return sides[0], sides[1]

    def protocol(self) -> dict[str, Any]:
        """Returns how the map was fitted, for JSON."""
        return {
            "way": self.way,
            "strength": self.strength,
            "features": "unit length, centered by the training rows",
            "chosen_on": f"{HELD_OUT:.0%} of the training rows" if self.scores else "nothing: too few training rows",
            "held_out_mrr": self.scores,
            "train": self.rows,
            "train_left_out": self.left_out,
        }


class _Side(NamedTuple):
    """The principal axes of centered features: orthonormal ``axes`` [F, r] and the sums of squares along them [r]."""

    mean: np.ndarray
    axes: np.ndarray
    squares: np.ndarray


def fit_linear_map(first: Features, second: Features, ids_N2: np.ndarray | None = None, *, seed: int = 0) -> LinearMap:
    """Fits the linear map between the features of two encoders under which pairs are retrieved best.

    With X [N, F] and Y [N, G], unit features centered by their means, λ = strength · ‖X‖²/F for X, likewise for Y:

        first to second          x → x·(XᵀX + λI)⁻¹XᵀY, y → y                         (ridge regression)
        second to first          x → x, y → y·(YᵀY + λI)⁻¹YᵀX
        canonical correlations   (XᵀX + λI)^−½ XᵀY (YᵀY + λI)^−½ = U·S·Vᵀ;
                                 x → x·(XᵀX + λI)^−½·U·S, y → y·(YᵀY + λI)^−½·V·S      (Gong et al., 2014)

    The way and the strength are chosen by the mean MRR of both directions on a held-out fifth of the TRAINING rows, then
    the map is fitted again to all of them. In fp64 along principal axes, so that F > N and constant features are no special
    cases. With fewer than 10 rows, canonical correlations with strength 1.

    Args:
        first: features [N, F] of the training rows by the first encoder.
        second: features [N, G] of the same rows by the second.
        ids_N2: ids of the cells, see `distinct_pairs`; rows that share a cell of the column with fewer distinct cells are
            held out together, and equal cells count as correct. Default: all cells differ.
        seed: seed of the draws.

    Raises:
        InputError: fewer than 2 rows, shapes that do not match, features that are not finite.

    Shape:
        first: [N, F].
        second: [N, G].
        ids_N2: [N, 2].

    >>> draw = np.random.default_rng(0)
    >>> x = draw.normal(size=(100, 5))
    >>> fit_linear_map(x, x @ draw.normal(size=(5, 7))).rows
    100
    """
    x, y = np.asarray(first), np.asarray(second)
    check_rows(x, "first")
    check_rows(y, "second")
    ids = np.tile(np.arange(len(x))[:, None], 2) if ids_N2 is None else np.asarray(ids_N2)
    if len(x) != len(y) or ids.shape != (len(x), 2) or len(x) < 2:
        raise InputError(
            f"first {list(x.shape)}, second {list(y.shape)}, ids {list(ids.shape)}: must have the same N ≥ 2 rows."
        )
    order = numpy_generator(seed, "linear map").permutation(len(x))[:MOST_ROWS]
    chosen, scores = _choose(x, y, ids, order)
    sides, cross = _moments(x, y, order)
    way, strength = chosen
    return LinearMap(
        way, strength, (sides[0].mean, sides[1].mean), _solve(sides, cross, way, strength), scores, len(order),
        len(x) - len(order),
    )  # fmt: skip


def unit_features(features: Features, rows: slice | np.ndarray = slice(None)) -> np.ndarray:
    """Returns rows of features as float64 of length 1; a row of zeros stays zero."""
    x = np.asarray(features)[rows].astype(np.float64)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return np.asarray(x / np.where(lengths > 0, lengths, 1))


def _choose(
    x: np.ndarray, y: np.ndarray, ids: np.ndarray, order: np.ndarray
) -> tuple[tuple[str, float], dict[str, dict[str, float]]]:
    """Returns the best (way, strength), and the scores of all; of equal scores, the stronger ridge."""
    default = WAYS[2], 1.0
    if len(order) < LEAST:
        return default, {}
    fewer = int(len(np.unique(ids[order, 1])) < len(np.unique(ids[order, 0])))
    groups, members = np.unique(ids[order, fewer], return_inverse=True)
    # Groups in the order in which the draw meets them: a fifth of the rows, whole groups.
    first_met = np.full(len(groups), len(order))
    np.minimum.at(first_met, members, np.arange(len(order)))
    held = first_met[members] < np.sort(first_met)[max(1, round(len(groups) * HELD_OUT))] if len(groups) > 1 else None
    if held is None or held.all():
        return default, {}
    test, train = order[held][:MOST_TO_CHOOSE], order[~held]
    if len(train) < 2:
        return default, {}
    pairs = distinct_pairs(ids[test])
    sides, cross = _moments(x, y, train)
    left = unit_features(x, test[pairs.first_rows]) - sides[0].mean
    right = unit_features(y, test[pairs.second_rows]) - sides[1].mean
    scores: dict[str, dict[str, float]] = {}
    along = left @ sides[0].axes, right @ sides[1].axes  # once for all strengths
    for way in WAYS:
        for strength in STRENGTHS:
            factors = _factors(sides, cross, way, strength)
            a, b = (
                rows if factor is None else inside @ factor
                for rows, inside, factor in zip((left, right), along, factors, strict=True)
            )
            ranks = match_ranks(a, b, pairs.correct), match_ranks(b, a, pairs.correct[::-1])
            scores.setdefault(way, {})[f"{strength:g}"] = float(np.mean([(1 / each).mean() for each in ranks]))
    candidates = [(way, strength) for way in WAYS for strength in STRENGTHS]
    best = max(candidates, key=lambda one: (round(scores[one[0]][f"{one[1]:g}"], 6), one[1]))
    return best, {way: {strength: round(score, 4) for strength, score in row.items()} for way, row in scores.items()}


def _moments(x: np.ndarray, y: np.ndarray, rows: np.ndarray) -> tuple[tuple[_Side, _Side], np.ndarray]:
    """Returns the principal axes of both sides and the cross product XᵀY [F, G] of the centered unit features of ``rows``."""
    rows = np.sort(rows)
    means = []
    for features in (x, y):
        total = sum(unit_features(features, rows[part]).sum(0) for part in blocks(len(rows)))
        means.append(np.asarray(total / len(rows)))
    cross = np.zeros((x.shape[1], y.shape[1]))
    for a, b in zip(_centered(x, means[0], rows), _centered(y, means[1], rows), strict=True):
        cross += a.T @ b
    return (_side(x, means[0], rows), _side(y, means[1], rows)), cross


def _centered(x: np.ndarray, mean: np.ndarray, rows: np.ndarray) -> Iterator[np.ndarray]:
    for part in blocks(len(rows)):
        yield unit_features(x, rows[part]) - mean


def _side(x: np.ndarray, mean: np.ndarray, rows: np.ndarray) -> _Side:
    if len(rows) < x.shape[1]:
        _, singular, axes = np.linalg.svd(np.concatenate(list(_centered(x, mean, rows))), full_matrices=False)
        return _Side(mean, axes.T, singular**2)
    gram = np.zeros((x.shape[1], x.shape[1]))
    for part in _centered(x, mean, rows):
        gram += part.T @ part
    squares, axes = np.linalg.eigh(gram)
    return _Side(mean, axes, np.maximum(squares, 0))


def _solve(
    sides: tuple[_Side, _Side], cross: np.ndarray, way: str, strength: float
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns the maps of both sides; see `fit_linear_map`."""
    factors = _factors(sides, cross, way, strength)
    first, second = (
        None if factor is None else side.axes @ factor for side, factor in zip(sides, factors, strict=True)
    )
    return first, second


def _factors(
    sides: tuple[_Side, _Side], cross: np.ndarray, way: str, strength: float
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Returns the maps of both sides from the coordinates along their principal axes, [r, D]; None for the identity."""
    first, second = sides
    if way == WAYS[0]:
        return _inverse(first, strength, 1)[:, None] * (first.axes.T @ cross), None
    if way == WAYS[1]:
        return None, _inverse(second, strength, 1)[:, None] * (second.axes.T @ cross.T)
    left, right = _inverse(first, strength, 0.5)[:, None], _inverse(second, strength, 0.5)[:, None]
    u, s, vt = np.linalg.svd(left * (first.axes.T @ cross @ second.axes) * right.T, full_matrices=False)
    return left * u * s, right * vt.T * s


def _inverse(side: _Side, strength: float, power: float) -> np.ndarray:
    """Returns (σ² + λ)^−power along the axes [r]; 0 for constant features."""
    scale = side.squares.sum() / len(side.mean)
    if scale <= 0:
        return np.zeros(len(side.squares))
    return np.asarray((side.squares + strength * scale) ** -power)
