"""Evaluation of a run on one column, by what its user knows of the cells: classes, or pairs with a score of similarity."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from coulomb.evaluation.comparison import START, compare, comparison_row, intervals, with_share
from coulomb.evaluation.one_column_verdict import BM25, RAW_VALUES, one_column_verdict
from coulomb.evaluation.samples import describe_samples
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.bm25_neighbors import bm25_classes, bm25_retrieval, bm25_similarities
from coulomb.metrics.evaluate import evaluate_features
from coulomb.metrics.geometry import alignment, uniformity
from coulomb.metrics.inputs import Features, Labels
from coulomb.metrics.knn import default_neighbors
from coulomb.metrics.matching import first_places
from coulomb.metrics.rank import effective_rank
from coulomb.metrics.rows import cosines
from coulomb.metrics.scored_pairs import score_correlations, spearman_differences

UNTRAINED = "random_init"
AGAINST = {
    START: START,
    UNTRAINED: "untrained",
    RAW_VALUES: RAW_VALUES,
    BM25: BM25,
}  # contestant → name in a comparison
GEOMETRY = 2_000  # cells, and pairs of equal meaning, for the geometry
SAMPLES = 1_500  # cells on the map and among the neighbors
CLOSE = 0.2  # of the scored pairs with the highest scores mean the same
SPEARMAN = "spearman"


@dataclass(frozen=True)
class Scored:
    """Scored pairs: places of their cells among the held-out rows, [n] each, and their scores [n]."""

    first: np.ndarray
    second: np.ndarray
    scores: np.ndarray


@dataclass(frozen=True)
class ColumnInputs:
    """What `assess_one_column` measures.

    Args:
        column: the name of the column.
        kind: "image", "text" or "vector".
        ids: an id per held-out cell, int64 [N]; equal cells have equal ids.
        held_out: contestant → features of the held-out rows [N, F]: ``trained``; ``starting_point``, the encoder with the
            weights that it started from, or ``random_init``, the encoder with the random weights that it started from;
            ``raw_values``, standardized vectors.
        train: contestant → features of training rows [M, F]; needed with ``labels``.
        labels: classes of the held-out rows, int64 [N], −1 unknown; None without labels.
        train_labels: classes of the training rows, int64 [M].
        class_names: names by label.
        texts: the held-out cells if they are texts, for BM25.
        train_texts: the training cells, likewise.
        scored: scored pairs of held-out rows; None if there are none. Then ``labels`` is None.
        rows: the number of each held-out row in the table, int64 [N]; default: 0 … N − 1.
        weights: names the weights that the encoder started from; empty if they were random.
        options: the run's options as in ``config.yaml``, for the next steps of the verdict.
        seed: seed of all draws.
    """

    column: str
    kind: str
    ids: np.ndarray
    held_out: Mapping[str, Features]
    train: Mapping[str, Features] = field(default_factory=dict)
    labels: Labels | None = None
    train_labels: Labels | None = None
    class_names: Sequence[str] | None = None
    texts: Sequence[str] | None = None
    train_texts: Sequence[str] | None = None
    scored: Scored | None = None
    rows: np.ndarray | None = None
    weights: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0

    @property
    def labeled(self) -> bool:
        """Whether rows on both sides have a label."""
        known = [
            labels is not None and bool((np.asarray(labels) >= 0).any()) for labels in (self.labels, self.train_labels)
        ]
        return all(known)


@dataclass(frozen=True)
class ColumnAssessment:
    """The result of `assess_one_column`.

    Attributes:
        evaluation: the content of ``evaluation.json``.
        samples: arrays for ``samples.npz``.
        shown: places among the held-out rows of the cells in ``samples``, in their order.
    """

    evaluation: dict[str, Any]
    samples: dict[str, np.ndarray]
    shown: np.ndarray


def assess_one_column(inputs: ColumnInputs) -> ColumnAssessment:
    """Measures the trained encoder and its baselines on the same held-out cells. Reads and writes no files.

    ==================  ===============================================================================================
    known of the cells  measured
    ==================  ===============================================================================================
    classes             kNN, linear probe, few labels, retrieval, clusters (`coulomb.metrics.evaluate_features`); of BM25
                        kNN and retrieval by its scores
    scored pairs        Spearman's and Pearson's correlation of cosines, or of BM25, with the scores
    nothing             nothing: the verdict says so
    always              alignment (of cells of equal meaning, if some are known), uniformity, effective rank
    ==================  ===============================================================================================

    ``evaluation`` holds ``column``, ``kind``; for each contestant these figures, with ``scored_pairs`` and ``geometry``;
    ``comparison``, the paired comparison of the trained encoder with each baseline; ``verdict``; ``samples``, what
    `coulomb.evaluation.samples.describe_samples` says of the arrays; and ``protocol``.
    """
    result: dict[str, Any] = {"column": inputs.column, "kind": inputs.kind}
    protocol: dict[str, Any] = {"held_out": len(inputs.ids), "judged_by": judged_by(inputs), "seed": inputs.seed}
    positives = _close_pairs(inputs)
    correct: dict[str, dict[str, np.ndarray]] = {}
    similarities: dict[str, np.ndarray] = {}
    for name, features in inputs.held_out.items():
        result[name], correct[name] = _by_classes(inputs, name) if inputs.labeled else ({}, {})
        if inputs.scored is not None:
            rows = np.asarray(features, np.float32)
            similarities[name] = cosines(rows, inputs.scored.first, rows, inputs.scored.second)
        result[name]["geometry"] = _geometry(features, inputs.ids, positives, inputs.seed)
    if inputs.texts is not None:
        _add_bm25(inputs, result, correct, similarities)
    result["comparison"] = [
        compare(AGAINST[name], correct["trained"], each, inputs.seed)
        for name, each in correct.items()
        if name != "trained" and each
    ]
    if inputs.scored is not None:
        result["comparison"] = by_scores(inputs.scored.scores, similarities, result, protocol, inputs.seed)
    samples, result["samples"], shown = _samples(inputs)
    rank = result["trained"]["geometry"]["effective_rank"]
    result["verdict"] = one_column_verdict(
        result["comparison"], protocol["judged_by"], inputs.kind, inputs.weights, inputs.options, rank
    )
    result["protocol"] = protocol | {
        "alignment": _alignment_protocol(inputs, positives),
        "bm25": BM25_PROTOCOL.get(protocol["judged_by"]) if inputs.texts is not None else None,
        "weights": inputs.weights or None,
    }
    return ColumnAssessment(result, samples, shown)


BM25_PROTOCOL = {
    "labels": "k1 = 1.2, b = .75; kNN votes weigh as much as their score",
    "scored pairs": "k1 = 1.2, b = .75; (score(a, b) + score(b, a)) / (score(a, a) + score(b, b))",
}


def judged_by(inputs: ColumnInputs) -> str:
    """Returns "labels", "scored pairs" or "nothing"."""
    if inputs.scored is not None:
        return "scored pairs"
    return "labels" if inputs.labeled else "nothing"


def _by_classes(inputs: ColumnInputs, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns the figures of a contestant by labels, and which held-out rows it classifies correctly."""
    assert inputs.labels is not None and inputs.train_labels is not None
    right: dict[str, np.ndarray] = {}
    figures = evaluate_features(
        inputs.train[name],
        inputs.train_labels,
        inputs.held_out[name],
        inputs.labels,
        k=default_neighbors(int((np.asarray(inputs.train_labels) >= 0).sum())),
        seed=inputs.seed,
        class_names=inputs.class_names,
        correct=right,
    )
    return figures, right


def _add_bm25(
    inputs: ColumnInputs,
    result: dict[str, Any],
    correct: dict[str, dict[str, np.ndarray]],
    similarities: dict[str, np.ndarray],
) -> None:
    """Adds what BM25 finds to the figures, to the rows that are classified correctly, and to the similarities of pairs."""
    assert inputs.texts is not None
    texts = list(inputs.texts)
    if inputs.scored is not None:
        first, second = ([texts[row] for row in rows.tolist()] for rows in (inputs.scored.first, inputs.scored.second))
        similarities[BM25] = bm25_similarities(first, second)
        result[BM25] = {}
    elif inputs.labeled and inputs.train_texts is not None:
        labels, known = np.asarray(inputs.labels), np.asarray(inputs.train_labels)
        test, train = np.flatnonzero(labels >= 0), np.flatnonzero(known >= 0)
        k = result["trained"]["protocol"]["knn"]["k"]
        asked, documents = [texts[row] for row in test.tolist()], [inputs.train_texts[row] for row in train.tolist()]
        right = bm25_classes(documents, known[train], asked, k) == labels[test]
        result[BM25] = {"knn": float(right.mean())}
        if result["trained"].get("retrieval") is not None:
            result[BM25]["retrieval"] = bm25_retrieval(asked, labels[test])
        if correct["trained"]:
            correct[BM25] = {"knn": right}


def by_scores(
    scores: np.ndarray,
    similarities: Mapping[str, np.ndarray],
    result: dict[str, Any],
    protocol: dict[str, Any],
    seed: int,
) -> list[dict[str, Any]]:
    """Adds ``scored_pairs`` to the figures of each contestant, and returns the comparisons of Spearman's correlation.

    Args:
        scores: of the pairs, [n].
        similarities: contestant → similarities of the pairs, [n]; ``trained`` first, if it is there.
        result: contestant → its figures.
        protocol: receives ``not_measured``, the reason for contestants whose similarities are all equal.
        seed: seed of the bootstrap.
    """
    comparison = []
    for name, each in similarities.items():
        try:
            result[name]["scored_pairs"] = score_correlations(each, scores, seed)
            if name == "trained" or result.get("trained", {}).get("scored_pairs") is None:
                continue
            ours, theirs, differences = spearman_differences(similarities["trained"], each, scores, seed)
        except InputError as error:  # all similarities are equal
            result[name]["scored_pairs"] = None
            protocol.setdefault("not_measured", {})[name] = str(error)
            continue
        low, high = intervals({SPEARMAN: differences[np.isfinite(differences)]})[SPEARMAN]
        row = comparison_row(ours, theirs, low, high, len(scores))
        comparison.append(
            {"against": AGAINST[name], "measurements": {SPEARMAN: row}, "overall": with_share(row, [SPEARMAN])}
        )
    return comparison


def _close_pairs(inputs: ColumnInputs) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns places of at most 2,000 pairs of held-out rows that mean the same; None if none are known."""
    draw = numpy_generator(inputs.seed, "close pairs")
    if inputs.scored is not None:
        scores = inputs.scored.scores
        close = np.flatnonzero(scores >= np.quantile(scores, 1 - CLOSE))
        close = np.sort(draw.permutation(close)[:GEOMETRY])
        return inputs.scored.first[close], inputs.scored.second[close]
    if not inputs.labeled:
        return None
    labels = np.asarray(inputs.labels)
    order = draw.permutation(np.flatnonzero(labels >= 0))
    order = order[np.argsort(labels[order], kind="stable")]  # in random order within each class
    first, second = order[:-1], order[1:]
    same = draw.permutation(
        np.flatnonzero((labels[first] == labels[second]) & (inputs.ids[first] != inputs.ids[second]))
    )
    return None if not len(same) else (first[same[:GEOMETRY]], second[same[:GEOMETRY]])


def _alignment_protocol(inputs: ColumnInputs, positives: tuple[np.ndarray, np.ndarray] | None) -> str | None:
    if positives is None:
        return None
    of = (
        f"the {CLOSE:.0%} of the scored pairs with the highest scores"
        if inputs.scored is not None
        else "pairs of one class"
    )
    return f"mean squared distance of {len(positives[0]):,} pairs: {of}"


def _geometry(
    features: Features, ids: np.ndarray, positives: tuple[np.ndarray, np.ndarray] | None, seed: int
) -> dict[str, float | None]:
    rows = torch.as_tensor(np.asarray(features, np.float32))
    distinct = first_places(ids)[0]
    drawn = rows[np.sort(numpy_generator(seed, "geometry of one column").permutation(distinct)[:GEOMETRY])]
    return {
        "alignment": None if positives is None else alignment(rows[positives[0]], rows[positives[1]]),
        "uniformity": uniformity(drawn) if len(drawn) > 1 else None,
        "effective_rank": effective_rank(drawn),
    }


def _samples(inputs: ColumnInputs) -> tuple[dict[str, np.ndarray], dict[str, Any], np.ndarray]:
    """Returns the arrays for the report, their description, and the places of the distinct cells that they show."""
    features = np.asarray(inputs.held_out["trained"], np.float32)
    distinct = first_places(inputs.ids)[0]
    usable = distinct[np.linalg.norm(features[distinct], axis=1) > 0]
    shown = np.sort(numpy_generator(inputs.seed, "samples of one column").permutation(usable)[:SAMPLES])
    labels = np.full(len(shown), -1) if inputs.labels is None else np.asarray(inputs.labels)[shown]
    arrays, description = describe_samples(features[shown], labels, len(shown), inputs.seed, of="cells")
    rows = np.arange(len(inputs.ids)) if inputs.rows is None else np.asarray(inputs.rows)
    return arrays | {"rows_0": rows[shown], "labels": labels}, description, shown
