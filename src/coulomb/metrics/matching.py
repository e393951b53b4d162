"""Retrieval across two columns: the rank of the best correct key of each query, with several correct keys per query."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.ground.errors import InputError
from coulomb.metrics.inputs import Features, check_vectors
from coulomb.metrics.rows import TILE, blocks, cosines
from coulomb.similarity.products import product

Correct = tuple[np.ndarray | Tensor, np.ndarray | Tensor]

KS = (1, 5, 10)
QUERIES = 4096  # queries per tile: 16 MiB of cosines in fp32 with 1,024 keys
SCORES = 2**22  # scores per block of `score_ranks`: 32 MiB in fp64
CROWDED = 16  # a tile with more than 1/16 of its pairs near a tie is computed again as one product in fp64
NONE = -1  # rank of a query without a correct key
DIRECTIONS = ("first_to_second", "second_to_first")


class DistinctPairs(NamedTuple):
    """The distinct cells of two columns; see `distinct_pairs`.

    Attributes:
        first_rows: the row of each distinct cell of the first column where it occurs first, int64 [n].
        second_rows: likewise of the second column, int64 [m].
        correct: (places in ``first_rows``, places in ``second_rows``) of the pairs, each once, int64 [P] and [P].
    """

    first_rows: np.ndarray
    second_rows: np.ndarray
    correct: tuple[np.ndarray, np.ndarray]


def distinct_pairs(ids_N2: np.ndarray | Tensor) -> DistinctPairs:
    """Returns the distinct cells of two columns and which of them are pairs.

    A picture with five captions fills five rows of a table, and is one query with five correct keys; a caption of two
    pictures is one query with two.

    Args:
        ids_N2: an id per cell, integers [N, 2]; equal cells of a column have equal ids. Rows are pairs.

    Raises:
        InputError: not integers [N, 2], N ≥ 1.

    Shape:
        ids_N2: [N, 2].

    >>> distinct_pairs(np.array([[7, 0], [7, 1]])).correct  # one picture, two captions
    (array([0, 0]), array([0, 1]))
    """
    ids = np.asarray(ids_N2)
    if ids.ndim != 2 or ids.shape[1] != 2 or not len(ids) or ids.dtype.kind not in "iu":
        raise InputError(f"ids={ids.dtype}{list(ids.shape)}: must be integers [N, 2], one id per cell, N ≥ 1.")
    first_rows, first = first_places(ids[:, 0])
    second_rows, second = first_places(ids[:, 1])
    pairs = np.unique(np.stack([first, second], axis=1), axis=0)
    return DistinctPairs(first_rows, second_rows, (pairs[:, 0], pairs[:, 1]))


def first_places(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the first row of each distinct id, in the order of rows, and the place of each row's id among them."""
    _, rows, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(rows)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return rows[order], place[inverse.reshape(-1)]


def match_ranks(queries_QF: Features, keys_KF: Features, correct: Correct) -> np.ndarray:
    """Returns the rank of the best correct key of each query by cosine, int64 [Q]: 1 is the best, −1 without a correct key.

        rank_i = 1 + #{j not correct for i: cos(q_i, k_j) ≥ max over correct k of cos(q_i, k)}

    Ties count against the query, unless the tied key is correct as well: constant embeddings give the last rank, not the
    first. Cosines that differ by less than the rounding error of fp64 are ties. Exact: products are computed in fp32, and
    every pair that might decide a rank, by a bound on their rounding error, again in fp64.

    O(Q·K·F) time; memory for the unit vectors and one tile of 4,096 × 1,024 cosines.

    Args:
        queries_QF: features of any floating type; a row of zeros has cosine 0 with every key.
        keys_KF: features of the same width.
        correct: (query index [P], key index [P]), the pairs that are correct, in any order; repeated pairs count once.

    Raises:
        InputError: shapes that do not match, features that are not finite, indices out of range.

    Shape:
        queries_QF: [Q, F].
        keys_KF: [K, F].
        correct: two arrays [P].
        output: [Q].

    >>> match_ranks(torch.eye(3), torch.eye(3), (np.array([0, 1]), np.array([0, 2])))  # query 2 has no correct key
    array([ 1,  3, -1])
    """
    queries, keys = _vectors(queries_QF, "queries_QF"), _vectors(keys_KF, "keys_KF")
    if queries.shape[1] != keys.shape[1]:
        raise InputError(
            f"queries_QF has {queries.shape[1]} dimensions and keys_KF {keys.shape[1]}: both must be embeddings in one space."
        )
    query, key = _checked_pairs(correct, len(queries), len(keys))
    search = _Ranking(queries, keys, query, key)
    ranks = np.full(len(queries), NONE, np.int64)
    asked = np.unique(query)
    for part in blocks(len(asked), QUERIES):
        ranks[asked[part]] = search.ranks(asked[part])
    return ranks


def score_ranks(
    scores: Callable[[slice], np.ndarray], queries: int, keys: int, correct: Correct, *, block: int | None = None
) -> np.ndarray:
    """`match_ranks` for scores of any kind, which are equal only if they are equal numbers.

    Args:
        scores: returns the scores of a block of queries with all keys, [b, K], for a slice of queries.
        queries: Q.
        keys: K.
        correct: as in `match_ranks`.
        block: queries per block; default: as many as have 2²² scores.

    Raises:
        InputError: indices out of range, scores of another shape, NaN.

    Shape:
        correct: two arrays [P].
        output: [Q].

    >>> table = np.array([[0.1, 0.9], [0.5, 0.4]])
    >>> score_ranks(lambda rows: table[rows], 2, 2, (np.arange(2), np.arange(2)))
    array([2, 2])
    """
    query, key = _checked_pairs(correct, queries, keys)
    starts = np.searchsorted(query, np.arange(queries + 1))
    ranks = np.full(queries, NONE, np.int64)
    for rows in blocks(queries, block or max(1, SCORES // max(keys, 1))):
        values = np.array(scores(rows), dtype=np.float64)
        if values.shape != (rows.stop - rows.start, keys) or np.isnan(values).any():
            raise InputError(
                f"scores={list(values.shape)}: must be numbers [{rows.stop - rows.start}, {keys}] for the queries "
                f"{rows.start} to {rows.stop - 1}."
            )
        pairs = slice(starts[rows.start], starts[rows.stop])
        row, column = query[pairs] - rows.start, key[pairs]
        best = np.full(len(values), -np.inf)
        np.maximum.at(best, row, values[row, column])
        wrong_at_least = values >= best[:, None]
        wrong_at_least[row, column] = False
        some = np.unique(row)
        ranks[some + rows.start] = 1 + wrong_at_least[some].sum(1)
    return ranks


def pair_retrieval(first: Features, second: Features, correct: Correct, ks: Sequence[int] = KS) -> dict[str, Any]:
    """R@k, MRR and median rank in both directions, as on COCO: a query is answered if any of its correct keys is found.

        R@k = share of queries with rank ≤ k · MRR = mean of 1/rank · rank: of the best correct key, see `match_ranks`

    Queries without a correct key are left out of the means and counted; they stay among the keys of the other direction.

    Args:
        first: embeddings [n, D] of the distinct cells of the first column, such as pictures.
        second: embeddings [m, D] of the distinct cells of the second column, such as captions.
        correct: (index into ``first`` [P], index into ``second`` [P]) of the pairs; see `distinct_pairs`.
        ks: the values of k in R@k.

    Returns:
        ``{"first_to_second": {"recall_at": {"1": …}, "mrr", "median_rank", "queries", "queries_left_out", "keys",
        "chance": {"recall_at", "mrr", "median_rank"}}, "second_to_first": {…}, "mean": {"recall_at", "mrr"}}``.
        ``chance`` is the expectation for keys in random order, given how many of them are correct for each query;
        ``mean`` averages both directions.

    Raises:
        InputError: a k below 1, no pair, shapes that do not match, features that are not finite, indices out of range.

    Shape:
        first: [n, D].
        second: [m, D].
        correct: two arrays [P].

    >>> pairs = np.arange(4), np.arange(4)
    >>> pair_retrieval(torch.eye(4), torch.eye(4), pairs, ks=(1,))["mean"]
    {'recall_at': {'1': 1.0}, 'mrr': 1.0}
    """
    there = match_ranks(first, second, correct)
    back = match_ranks(second, first, correct[::-1])
    return ranking_figures((there, back), correct, ks)


def ranking_figures(ranks: tuple[np.ndarray, np.ndarray], correct: Correct, ks: Sequence[int] = KS) -> dict[str, Any]:
    """The result of `pair_retrieval` from the ranks of the queries of both directions, [n] and [m]."""
    if not ks or min(ks) < 1:
        raise InputError(f"ks={tuple(ks)}: must be at least 1.")
    sizes = len(ranks[0]), len(ranks[1])
    pairs = _checked_pairs(correct, *sizes)
    if not len(pairs[0]):
        raise InputError("correct: has no pair, so that nothing can be retrieved.")
    result: dict[str, Any] = {}
    chance = chance_figures(pairs, sizes, ks)
    for side, direction in enumerate(DIRECTIONS):
        found = ranks[side][ranks[side] > 0]
        result[direction] = _of_ranks(found, ks) | {
            "queries": len(found),
            "queries_left_out": sizes[side] - len(found),
            "keys": sizes[1 - side],
            "chance": chance[direction],
        }
    return _with_mean(result)


def chance_figures(correct: Correct, sizes: tuple[int, int], ks: Sequence[int] = KS) -> dict[str, Any]:
    """The figures of `ranking_figures` that keys in random order are expected to give, for n and m cells."""
    pairs = _checked_pairs(correct, *sizes)
    result: dict[str, Any] = {}
    for side, direction in enumerate(DIRECTIONS):
        answers = np.bincount(pairs[side], minlength=sizes[side])
        result[direction] = _of_chance(answers[answers > 0], sizes[1 - side], ks)
    return _with_mean(result)


def chance_survival(answers: int, keys: int) -> np.ndarray:
    """Returns P(rank > r) for r = 0 … K, [K + 1]: the best of ``answers`` correct keys among ``keys`` in random order.

    P(rank > r) = Π_{i<r} (K − c − i)/(K − i) for c answers.
    """
    place = np.arange(keys)
    return np.concatenate([[1.0], np.cumprod(np.maximum(keys - answers - place, 0) / (keys - place))])


def _with_mean(result: dict[str, Any]) -> dict[str, Any]:
    there, back = (result[direction] for direction in DIRECTIONS)
    recalls = {k: (value + back["recall_at"][k]) / 2 for k, value in there["recall_at"].items()}
    return result | {"mean": {"recall_at": recalls, "mrr": (there["mrr"] + back["mrr"]) / 2}}


def _of_ranks(ranks: np.ndarray, ks: Sequence[int]) -> dict[str, Any]:
    return {
        "recall_at": {str(k): float((ranks <= k).mean()) for k in ks},
        "mrr": float((1 / ranks).mean()),
        "median_rank": float(np.median(ranks)),
    }


def _of_chance(answers: np.ndarray, keys: int, ks: Sequence[int]) -> dict[str, Any]:
    """The expected figures of queries with ``answers`` [n] correct keys each."""
    survival = np.zeros(keys + 1)
    for count, queries in zip(*np.unique(answers, return_counts=True), strict=True):
        survival += chance_survival(int(count), keys) * (queries / len(answers))
    return {
        "recall_at": {str(k): float(1 - survival[min(k, keys)]) for k in ks},
        "mrr": float((-np.diff(survival) / np.arange(1, keys + 1)).sum()),
        "median_rank": float(np.argmax(survival <= 0.5)),  # the smallest rank that half of the queries reach
    }


class _Ranking:
    """Counts, for some queries at a time, the wrong keys that are at least as similar as the best correct key.

    Attributes:
        best: the cosine of the best correct key in fp64 [Q], −inf without one.
    """

    def __init__(self, queries: Tensor, keys: Tensor, query: np.ndarray, key: np.ndarray) -> None:
        self.queries, self.keys = queries.numpy(), keys.numpy()
        self.unit = functional.normalize(queries.double(), dim=1).float()
        self.unit_keys = functional.normalize(keys.double(), dim=1).float()
        self.key, self.starts = key, np.searchsorted(query, np.arange(len(queries) + 1))
        self.best = np.full(len(queries), -np.inf)
        np.maximum.at(self.best, query, cosines(self.queries, query, self.keys, key))
        width = queries.shape[1]
        self.margin = (width + 8) * 2.0**-23  # D roundings of 2⁻²⁴ in fp32, with Σ|a||b| ≤ 1 for rows of length 1
        self.equal = (4 * width + 16) * 2.0**-53  # of two cosines in fp64

    def ranks(self, rows: np.ndarray) -> np.ndarray:
        """Returns the ranks of the queries ``rows`` [r], each of which has a correct key."""
        row = np.repeat(np.arange(len(rows)), self.starts[rows + 1] - self.starts[rows])
        column = np.concatenate([self.key[self.starts[each] : self.starts[each + 1]] for each in rows])
        order = np.argsort(column, kind="stable")
        row, column = row[order], column[order]
        ranks = np.ones(len(rows), np.int64)
        for tile in blocks(len(self.keys), TILE):
            inside = slice(*np.searchsorted(column, [tile.start, tile.stop]))
            ranks += self._wrong(rows, tile, row[inside], column[inside] - tile.start)
        return ranks

    def _wrong(self, rows: np.ndarray, tile: slice, row: np.ndarray, column: np.ndarray) -> np.ndarray:
        """Returns how many wrong keys of a tile count against each query [r]; (row, column) are the correct pairs."""
        products = product(self.unit[torch.from_numpy(rows)], self.unit_keys[tile])
        products[torch.from_numpy(row), torch.from_numpy(column)] = -torch.inf
        best, values = self.best[rows, None], products.numpy()
        counted = values >= (best - self.margin).astype(
            np.float32
        )  # NumPy counts booleans several times as fast as torch
        near = counted & (values <= (best + self.margin).astype(np.float32))
        least = best - self.equal
        if np.count_nonzero(near) * CROWDED > near.size:
            exact = _unit64(self.queries[rows]) @ _unit64(self.keys[tile]).T
            return np.count_nonzero(counted & ~(near & (exact < least)), axis=1)
        r, c = np.nonzero(near)
        wrong = cosines(self.queries, rows[r], self.keys, c + tile.start) < least[r, 0]
        return np.count_nonzero(counted, axis=1) - np.bincount(r[wrong], minlength=len(rows))


def _unit64(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(lengths > 0, lengths, 1))


def _vectors(x: Features, name: str) -> Tensor:
    """Returns checked features on the CPU in fp32 or fp64, as they were given."""
    return check_vectors(torch.as_tensor(x).cpu(), name, least=0).contiguous()


def _checked_pairs(correct: Correct, queries: int, keys: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the distinct correct pairs as int64, sorted by query and key; raises InputError for invalid ones."""
    if len(correct) != 2:
        raise InputError(f"correct: must be two arrays, of query and of key indices, got {len(correct)}.")
    query, key = (np.asarray(each) for each in correct)
    if query.ndim != 1 or query.shape != key.shape or any(each.dtype.kind not in "iu" for each in (query, key)):
        raise InputError(
            f"correct={query.dtype}{list(query.shape)}, {key.dtype}{list(key.shape)}: must be two integer arrays [P], the "
            "indices of queries and of their correct keys."
        )
    for name, index, size in (("query", query, queries), ("key", key, keys)):
        if len(index) and not 0 <= index.min() <= index.max() < size:
            raise InputError(
                f"correct: {name} indices from {index.min()} to {index.max()} are out of range; there are {size}."
            )
    flat = np.unique(query.astype(np.int64) * max(keys, 1) + key.astype(np.int64))
    return flat // max(keys, 1), flat % max(keys, 1)
