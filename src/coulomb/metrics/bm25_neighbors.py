"""Classification and retrieval by shared words: what BM25 finds without any training."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from coulomb.metrics.bm25 import bm25_scores
from coulomb.metrics.inputs import Labels, check_integers
from coulomb.metrics.retrieval import count_matches, retrieval_scores, without_self
from coulomb.metrics.rows import blocks

QUERIES = 256  # whose scores with all documents are held at a time
KS = (1, 5, 10)


def bm25_classes(
    train: Sequence[str], train_y: Labels, test: Sequence[str], k: int, *, classes: int | None = None
) -> np.ndarray:
    """Returns the class of each test text by the k training texts with the highest BM25 scores, int64 [n].

        score_c = Σ over the k best training texts of their score·1[y = c]

    The class with the largest score wins, of equal scores the smaller class number; so a text that shares no word with any
    training text gets class 0.

    Args:
        train: texts [m].
        train_y: their classes [m], none unknown.
        test: texts [n].
        k: at most m.
        classes: number of classes; default: the largest class number plus 1.
    """
    labels = np.asarray(train_y)
    count = int(labels.max()) + 1 if classes is None else classes
    scores, found = bm25_scores(test, train), np.empty(len(test), np.int64)
    for rows in blocks(len(test), QUERIES):
        values = scores(rows)
        best = np.argsort(-values, axis=1, kind="stable")[:, :k]
        votes = np.zeros((len(values), count))
        np.add.at(votes, (np.arange(len(values))[:, None], labels[best]), np.take_along_axis(values, best, axis=1))
        found[rows] = votes.argmax(axis=1)
    return found


def bm25_retrieval(texts: Sequence[str], labels: Labels, ks: Sequence[int] = KS) -> dict[str, Any]:
    """`coulomb.metrics.class_retrieval` among texts by their BM25 scores: ``recall_at``, ``map_at_r``, ``r_precision``.

    Every text is a query for the texts of its class; those whose class has no other text are left out. Documents with equal
    scores are found in their order.

    Args:
        texts: [n].
        labels: classes [n], none unknown.

    Raises:
        ValueError: no class has two texts.
    """
    y = check_integers(torch.as_tensor(labels), "labels", torch.as_tensor(labels))
    relevant = count_matches(y, y) - 1
    if not bool((relevant > 0).any()):
        raise ValueError("no class has two texts")
    depth = min(max(int(relevant.max()), *ks), len(texts) - 1)
    scores, found = bm25_scores(texts, texts), torch.zeros(len(texts), len(ks) + 2, dtype=torch.float64)
    for rows in blocks(len(texts), QUERIES):
        best = torch.from_numpy(np.argsort(-scores(rows), axis=1, kind="stable")[:, : depth + 1])
        query = torch.arange(rows.start, rows.stop)
        others = without_self(best, query)
        found[rows] = retrieval_scores(y[others] == y[rows, None], relevant[rows], ks)
    means = found[relevant > 0].mean(dim=0).tolist()
    recall = {str(k): mean for k, mean in zip(ks, means, strict=False)}
    return {"recall_at": recall, "map_at_r": means[-2], "r_precision": means[-1]}


def bm25_similarities(first: Sequence[str], second: Sequence[str]) -> np.ndarray:
    """Returns how many words pairs of texts share by BM25, relative to the texts with themselves, float64 [n].

        (score(a, b) + score(b, a)) / (score(a, a) + score(b, b))         1 for equal texts, 0 without a common word

    Words are weighted by how rare they are among all 2n texts. 0 for two texts without words.
    """
    texts, n = [*first, *second], len(first)
    scores = bm25_scores(texts, texts)
    found = np.zeros(n)
    for rows in blocks(n, QUERIES):
        mine = np.arange(rows.start, rows.stop)
        there, back = scores(rows), scores(slice(rows.start + n, rows.stop + n))
        at = np.arange(len(mine))
        own = there[at, mine] + back[at, mine + n]
        np.divide(there[at, mine + n] + back[at, mine], own, out=found[rows], where=own > 0)
    return found
