"""Evaluation of a run on two columns: retrieval in both directions, compared with untouched towers, BM25 and chance."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from coulomb.evaluation.comparison import START, compare_by_cluster, mean_intervals
from coulomb.evaluation.feature_map import feature_maps
from coulomb.evaluation.pair_verdict import BM25, CHANCE, LINEAR_MAP, UNTRAINED, pair_verdict
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.bm25 import bm25_ranks
from coulomb.metrics.geometry import alignment, modality_gap, uniformity
from coulomb.metrics.inputs import Features, Labeled, Labels, labeled_split
from coulomb.metrics.knn import default_neighbors, knn_predict
from coulomb.metrics.linear_map import LinearMap, fit_linear_map, unit_features
from coulomb.metrics.matching import (
    DIRECTIONS,
    KS,
    DistinctPairs,
    chance_figures,
    chance_survival,
    distinct_pairs,
    match_ranks,
    ranking_figures,
)
from coulomb.metrics.nearest import nearest_by_cosine
from coulomb.metrics.rank import effective_rank

MOST_ROWS = 20_000  # held-out pairs that are measured; more are dropped by a seeded draw of whole clusters
GEOMETRY = 2_000  # pairs for the geometry of both towers
MAPPED = 500  # cells of each tower on the map
SHOWN = 8  # worst misses per direction, and as many queries at random
CURVE = 40  # points of a curve of R@k
FOUND = 3  # nearest keys that are shown per query

Ranks = tuple[np.ndarray, np.ndarray]


class Embedded(NamedTuple):
    """Features of the same rows by the towers of the first and the second column, [N, F] and [N, G].

    >>> Embedded(torch.eye(4), torch.eye(4)).first.shape
    torch.Size([4, 4])
    """

    first: Features
    second: Features


@dataclass(frozen=True)
class PairInputs:
    """What `assess_pairs` measures. All arrays of held-out rows have the same N rows; a row is a pair.

    A picture with five captions fills five rows, with five times the same embedding and the same id.

    Args:
        columns: the names of both columns.
        ids: an id per held-out cell, int64 [N, 2]; equal cells of a column have equal ids.
        trained: embeddings by the trained towers in the shared space, [N, D] and [N, D].
        untouched: features of the held-out rows by the towers as they were before training, [N, F] and [N, G]: before any
            adapter. None if they cannot be computed; then only BM25 and chance are baselines.
        untouched_train: likewise of the training rows, [M, F] and [M, G], for the linear map. Required with ``untouched``.
        train_ids: ids of the training cells, int64 [M, 2].
        weights: names the weights that the towers started from, such as "lite0 and MiniLM"; empty if they were random.
        shared: the untouched towers have a common space already: both towers of CLIP, or one tower for two columns of texts.
        texts: the strings of a column that is text, [N], None for others; BM25 needs both.
        labels: classes of the held-out rows, int64 [N], −1 if unknown; with ``train_labels`` and ``trained_train``, each
            tower alone is measured by kNN.
        train_labels: classes of the training rows, int64 [M].
        trained_train: embeddings of the training rows by the trained towers.
        rows: the number of each held-out row in the table, int64 [N]; default: 0 … N − 1.
        options: the run's options as in ``config.yaml``, for the next steps of the verdict.
        seed: seed of all draws.

    >>> same = Embedded(torch.eye(20), torch.eye(20))
    >>> inputs = PairInputs(("image", "caption"), np.arange(20)[:, None].repeat(2, 1), same)
    """

    columns: tuple[str, str]
    ids: np.ndarray
    trained: Embedded
    untouched: Embedded | None = None
    untouched_train: Embedded | None = None
    train_ids: np.ndarray | None = None
    weights: str = ""
    shared: bool = False
    texts: tuple[Sequence[str] | None, Sequence[str] | None] = (None, None)
    labels: Labels | None = None
    train_labels: Labels | None = None
    trained_train: Embedded | None = None
    rows: np.ndarray | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        count = len(self.ids)
        held_out = {"trained": self.trained, "untouched": self.untouched, "texts": self.texts}
        single = {"labels": self.labels, "rows": self.rows}
        for name, value in [(name, each) for name, pair in held_out.items() for each in pair or ()] + [*single.items()]:
            if value is not None and len(value) != count:
                raise InputError(
                    f"{name} has {len(value)} rows and ids {count}: they must be of the same held-out rows."
                )
        if self.untouched is not None and (self.untouched_train is None or self.train_ids is None):
            raise InputError(
                "untouched: give untouched_train and train_ids as well, from which the linear map is fitted."
            )


@dataclass(frozen=True)
class PairAssessment:
    """The result of `assess_pairs`.

    Attributes:
        evaluation: the content of ``evaluation.json``.
        samples: arrays for ``samples.npz``, without pickled objects; see `assess_pairs`.
        shown: for each column, the places among the held-out rows whose previews the report needs, int64, sorted: all cells
            that ``samples`` shows or maps.

    >>> same = Embedded(torch.eye(20), torch.eye(20))
    >>> inputs = PairInputs(("image", "caption"), np.arange(20)[:, None].repeat(2, 1), same)
    >>> sorted(assess_pairs(inputs).evaluation)[:2]
    ['chance', 'columns']
    """

    evaluation: dict[str, Any]
    samples: dict[str, np.ndarray]
    shown: tuple[np.ndarray, np.ndarray]


def assess_pairs(inputs: PairInputs) -> PairAssessment:
    """Measures the trained towers and their baselines on the same held-out pairs. Reads and writes no files.

    Queries and keys are the distinct cells: a picture with five captions is one query with five correct keys, as on COCO.

    ``evaluation`` holds for each contestant the figures of `coulomb.metrics.pair_retrieval` with ``intervals``
    (measurement → [low, high], 95%, resampled by cluster): ``trained``; ``starting_point``, the untouched towers as they are
    if they share a space; ``linear_map``, or ``untrained`` without weights: the untouched towers with the best linear map
    between them, fitted on the training rows; ``bm25`` if both columns are texts; ``chance``, without intervals. Further
    ``comparison``, the paired comparison of the trained towers with each, ``verdict`` (`pair_verdict`), ``towers``
    (column → ``knn`` of the trained and the untouched tower, where there are labels), ``geometry``, ``maps`` and
    ``protocol``.

    ``samples`` holds, with ``d`` for both directions (0: first → second, 1: back):

    - ``rows_0`` and ``rows_1``, the row in the table of each distinct cell; ``place_0`` and ``place_1``, its place among the
      held-out rows;
    - ``ranks_CONTESTANT_d``, the rank of each query; ``curve_k_d`` and ``curve_chance_d``, the expected R@k of keys in random
      order for some k from 1 to all keys;
    - the queries to show, numbered as distinct cells: ``query_d`` [s], ``worst_d`` bool [s], ``answer_d`` [s], ``found_d``
      [s, 3], ``right_d`` bool [s, 3], ``cosine_d`` [s, 4] of the answer, then of the keys that were found;
    - ``mapped_0`` and ``mapped_1``, the distinct cells on the maps, and ``map_KEY`` [n + m, 2], their places, first column
      first.

    >>> same = Embedded(torch.eye(20), torch.eye(20))
    >>> found = assess_pairs(PairInputs(("image", "caption"), np.arange(20)[:, None].repeat(2, 1), same))
    >>> found.evaluation["trained"]["mean"]["mrr"]
    1.0
    """
    drawn = draw_clusters(inputs.ids, MOST_ROWS, inputs.seed)
    pairs = distinct_pairs(inputs.ids[drawn])
    cells = drawn[pairs.first_rows], drawn[pairs.second_rows]
    embedded = contestants(inputs, cells)
    ranks: dict[str, Ranks] = {name: both_ranks(each, pairs.correct) for name, each in embedded.spaces.items()}
    if inputs.texts[0] is not None and inputs.texts[1] is not None:
        first, second = ([column[int(row)] for row in rows] for column, rows in zip(inputs.texts, cells, strict=True))  # type: ignore[index]
        ranks[BM25] = (
            bm25_ranks(first, second, pairs.correct),
            bm25_ranks(second, first, pairs.correct[::-1]),
        )
    clusters = query_clusters(pairs)
    values = {name: measurements(each) for name, each in ranks.items()} | {CHANCE: chance_measurements(pairs)}
    by_measurement = {name: clusters[direction_of(name)] for name in values["trained"]}
    result: dict[str, Any] = {"columns": list(inputs.columns)}
    for name, each in ranks.items():
        intervals = mean_intervals(values[name], by_measurement, inputs.seed)
        result[name] = ranking_figures(each, pairs.correct) | {
            "intervals": {key: list(bounds) for key, bounds in intervals.items()}
        }
    result[CHANCE] = chance_figures(pairs.correct, (len(cells[0]), len(cells[1])))
    overall = [name for name in values["trained"] if name.endswith("_mrr")]
    result["comparison"] = [
        compare_by_cluster(name, values["trained"], each, by_measurement, overall, inputs.seed)
        for name, each in values.items()
        if name != "trained"
    ]
    trained = Embedded(*embedded.spaces["trained"])
    result["geometry"] = geometry_figures(trained, pairs, inputs.seed)
    result["verdict"] = pair_verdict(
        result["comparison"], inputs.weights, inputs.options, min(result["geometry"]["effective_rank"].values())
    )
    result["towers"] = tower_figures(inputs, cells)
    samples, result["maps"] = samples_of(trained, pairs, ranks, inputs.seed)
    rows = np.arange(len(inputs.ids)) if inputs.rows is None else np.asarray(inputs.rows)
    for side in (0, 1):
        samples |= {f"rows_{side}": rows[cells[side]], f"place_{side}": cells[side]}
        samples |= chance_curve(pairs, side)
    result["protocol"] = {
        "pairs": len(drawn),
        "pairs_left_out": len(inputs.ids) - len(drawn),
        "distinct_cells": [len(each) for each in cells],
        "queries": "distinct cells; any correct key counts",
        "similarity": "cosine; ties count against the query",
        "clusters": len(np.unique(clusters[DIRECTIONS[0]])),
        "linear_map": None if embedded.map is None else embedded.map.protocol(),
        "weights": inputs.weights or None,
        "seed": inputs.seed,
    }
    return PairAssessment(result, samples, shown_cells(samples, cells))


class Spaces(NamedTuple):
    """Contestants with embeddings of the distinct cells of both columns, and the linear map if one was fitted."""

    spaces: dict[str, tuple[Any, Any]]
    map: LinearMap | None


def contestants(inputs: PairInputs, cells: tuple[np.ndarray, np.ndarray]) -> Spaces:
    """Returns the embeddings of the held-out ``cells`` (row of each distinct cell) by each contestant that has some."""
    spaces: dict[str, tuple[Any, Any]] = {"trained": _rows(inputs.trained, cells)}
    if inputs.untouched is None or inputs.untouched_train is None:
        return Spaces(spaces, None)
    untouched = _rows(inputs.untouched, cells)
    if inputs.shared:
        spaces[START] = untouched
    known = inputs.untouched_train
    fitted = fit_linear_map(known.first, known.second, inputs.train_ids, seed=inputs.seed)
    spaces[LINEAR_MAP if inputs.weights else UNTRAINED] = fitted.embed(*untouched)
    return Spaces(spaces, fitted)


def both_ranks(space: tuple[Any, Any], correct: tuple[np.ndarray, np.ndarray]) -> Ranks:
    """Returns the ranks of the queries of both directions, see `match_ranks`."""
    first, second = space
    return match_ranks(first, second, correct), match_ranks(second, first, correct[::-1])


def draw_clusters(ids: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Returns the rows, sorted, of a seeded draw of whole clusters with together at most about ``most`` rows.

    A cluster is a cell of the column with fewer distinct cells, with all its rows.
    """
    distinct = distinct_pairs(ids)  # checks the ids
    column = int(len(distinct.second_rows) < len(distinct.first_rows))
    _, cluster, sizes = np.unique(ids[:, column], return_inverse=True, return_counts=True)
    order = numpy_generator(seed, "pairs of the evaluation").permutation(len(sizes))
    kept = order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]
    return np.flatnonzero(np.isin(cluster, kept))


def query_clusters(pairs: DistinctPairs) -> dict[str, np.ndarray]:
    """Returns the cluster of each query by direction, int64, numbered alike in both directions.

    Clusters are the cells of the column with fewer distinct cells, pictures with five captions each, for example. A cell of
    the other column belongs to the first cell that it is paired with.
    """
    sizes = len(pairs.first_rows), len(pairs.second_rows)
    fewer = int(sizes[1] < sizes[0])
    own = np.arange(sizes[fewer])
    first_met = np.full(sizes[1 - fewer], sizes[fewer])
    np.minimum.at(first_met, pairs.correct[1 - fewer], pairs.correct[fewer])
    return {DIRECTIONS[fewer]: own, DIRECTIONS[1 - fewer]: first_met}


def direction_of(measurement: str) -> str:
    """Returns the direction of a measurement such as "first_to_second_mrr"."""
    return next(direction for direction in DIRECTIONS if measurement.startswith(direction))


def measurements(ranks: Ranks) -> dict[str, np.ndarray]:
    """Returns measurement → the value of each query: whether it is in the first k, and its reciprocal rank."""
    found: dict[str, np.ndarray] = {}
    for direction, each in zip(DIRECTIONS, ranks, strict=True):
        found |= {f"{direction}_recall_at_{k}": each <= k for k in KS} | {f"{direction}_mrr": 1 / each}
    return found


def chance_measurements(pairs: DistinctPairs) -> dict[str, np.ndarray]:
    """Returns the `measurements` that keys in random order are expected to give each query."""
    sizes = len(pairs.first_rows), len(pairs.second_rows)
    found: dict[str, np.ndarray] = {}
    for side, direction in enumerate(DIRECTIONS):
        answers, keys = np.bincount(pairs.correct[side], minlength=sizes[side]), sizes[1 - side]
        counts, which = np.unique(answers, return_inverse=True)
        survivals = [chance_survival(int(count), keys) for count in counts]
        reciprocal = np.array([(-np.diff(each) / np.arange(1, keys + 1)).sum() for each in survivals])
        found |= {f"{direction}_recall_at_{k}": np.array([1 - s[min(k, keys)] for s in survivals])[which] for k in KS}
        found[f"{direction}_mrr"] = reciprocal[which]
    return found


def chance_curve(pairs: DistinctPairs, side: int) -> dict[str, np.ndarray]:
    """Returns the expected R@k of keys in random order at about 40 values of k, evenly spread on a logarithmic axis."""
    sizes = len(pairs.first_rows), len(pairs.second_rows)
    keys = sizes[1 - side]
    answers, queries = np.unique(np.bincount(pairs.correct[side], minlength=sizes[side]), return_counts=True)
    survival = sum(chance_survival(int(c), keys) * n for c, n in zip(answers, queries, strict=True)) / queries.sum()
    k = np.unique(np.geomspace(1, keys, CURVE).round().astype(np.int64))
    return {f"curve_k_{side}": k, f"curve_chance_{side}": 1 - survival[k]}


def geometry_figures(trained: Embedded, pairs: DistinctPairs, seed: int) -> dict[str, Any]:
    """Returns alignment of pairs, uniformity and effective rank of each tower, and the modality gap; at most 2,000 pairs."""
    drawn = np.sort(numpy_generator(seed, "geometry of pairs").permutation(len(pairs.correct[0]))[:GEOMETRY])
    first, second = (
        torch.from_numpy(unit_features(x, index[drawn])) for x, index in zip(trained, pairs.correct, strict=True)
    )
    alone = [torch.from_numpy(unit_features(x, slice(0, GEOMETRY))) for x in trained]
    names = ("first", "second")
    return {
        "alignment": alignment(first, second),
        "uniformity": {name: uniformity(x) if len(x) > 1 else None for name, x in zip(names, alone, strict=True)},
        "effective_rank": {name: effective_rank(x) for name, x in zip(names, alone, strict=True)},
        **modality_gap(*alone),
    }


def tower_figures(inputs: PairInputs, cells: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """Returns column → ``knn``, the accuracy of kNN by the trained and the untouched tower; empty without labels."""
    if inputs.labels is None or inputs.train_labels is None or inputs.train_ids is None:
        return {}
    labels, train_labels = np.asarray(inputs.labels), np.asarray(inputs.train_labels)
    found: dict[str, Any] = {}
    sources = {
        "trained": (inputs.trained_train, inputs.trained),
        "untouched": (inputs.untouched_train, inputs.untouched),
    }
    for side, column in enumerate(inputs.columns):
        train = np.sort(np.unique(inputs.train_ids[:, side], return_index=True)[1])
        if not (labels[cells[side]] >= 0).any() or not (train_labels[train] >= 0).any():
            continue
        for name, (known, unseen) in sources.items():
            if known is None or unseen is None:
                continue
            sides = labeled_split(
                np.asarray(known[side])[train], train_labels[train], np.asarray(unseen[side])[cells[side]],
                labels[cells[side]],
            )  # fmt: skip
            found.setdefault(column, {}).setdefault("knn", {})[name] = _knn(*sides)
    return found


def _knn(train: Labeled, test: Labeled) -> dict[str, Any]:
    k = min(default_neighbors(len(train.y)), len(train.y))
    right = knn_predict(train, test, k, 0.1) == test.y
    return {"accuracy": float(right.double().mean()), "k": k, "train": len(train.y), "test": len(test.y)}


def samples_of(
    trained: Embedded, pairs: DistinctPairs, ranks: Mapping[str, Ranks], seed: int
) -> tuple[dict[str, np.ndarray], list[dict[str, str]]]:
    """Returns the arrays of `assess_pairs` except rows and places, and the names of the maps."""
    samples = {f"ranks_{name}_{side}": each for name, both in ranks.items() for side, each in enumerate(both)}
    for side, direction in enumerate(DIRECTIONS):
        rank = ranks["trained"][side]
        worst = np.argsort(-rank, kind="stable")[:SHOWN]
        worst = worst[rank[worst] > 1]
        order = numpy_generator(seed, "pairs of the report", direction).permutation(len(rank))
        others = order[~np.isin(order, worst)][:SHOWN]
        query = np.concatenate([worst, others])
        queries, keys = (unit_features(trained[each]) for each in (side, 1 - side))
        answer = _best_answers(query, queries, keys, pairs.correct[side], pairs.correct[1 - side])
        wanted, searched = torch.from_numpy(queries[query]).float(), torch.from_numpy(keys).float()
        nearest = list(nearest_by_cosine(wanted, searched, FOUND))
        found = torch.cat([columns for _, _, columns in nearest]).numpy()
        cosine = torch.cat([cosines for _, cosines, _ in nearest]).numpy()
        right = set(zip(pairs.correct[side].tolist(), pairs.correct[1 - side].tolist(), strict=True))
        asked = np.repeat(query, found.shape[1])
        hits = [each in right for each in zip(asked.tolist(), found.reshape(-1).tolist(), strict=True)]
        samples |= {
            f"right_{side}": np.array(hits, bool).reshape(found.shape),
            f"query_{side}": query,
            f"answer_{side}": answer,
            f"found_{side}": found,
            f"cosine_{side}": np.column_stack([(queries[query] * keys[answer]).sum(1), cosine]),
            f"worst_{side}": np.arange(len(query)) < len(worst),
        }
    mapped = [
        np.sort(numpy_generator(seed, "map of pairs", direction).permutation(len(x))[:MAPPED])
        for direction, x in zip(DIRECTIONS, trained, strict=True)
    ]
    both = np.concatenate([unit_features(x, rows) for x, rows in zip(trained, mapped, strict=True)])
    usable = np.linalg.norm(both, axis=1) > 0
    layouts = feature_maps(both, seed, of="cells") if usable.all() else []
    samples |= {f"mapped_{side}": rows for side, rows in enumerate(mapped)}
    samples |= {f"map_{layout.key}": layout.places.astype(np.float32) for layout in layouts}
    return samples, [{"key": layout.key, "name": layout.name, "caution": layout.caution} for layout in layouts]


def shown_cells(
    samples: Mapping[str, np.ndarray], cells: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the places among the held-out rows of all cells that ``samples`` shows or maps, for each column."""
    shown = []
    for side in (0, 1):
        there = [samples[f"query_{side}"], samples[f"mapped_{side}"]]
        back = [samples[f"answer_{1 - side}"], samples[f"found_{1 - side}"].reshape(-1)]
        shown.append(np.unique(cells[side][np.concatenate(there + back)]))
    return shown[0], shown[1]


def _best_answers(
    query: np.ndarray, queries: np.ndarray, keys: np.ndarray, asked: np.ndarray, answer: np.ndarray
) -> np.ndarray:
    """Returns the correct key of each query that is most similar to it."""
    best = []
    for each in query:
        right = answer[asked == each]
        best.append(right[int(np.argmax(keys[right] @ queries[each]))])
    return np.array(best, np.int64)


def _rows(embedded: Embedded, cells: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    first, second = (np.asarray(x)[rows] for x, rows in zip(embedded, cells, strict=True))
    return first, second
