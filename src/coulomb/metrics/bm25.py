"""BM25, retrieval by shared words: the baseline that a model of texts has to beat."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from coulomb.ground.errors import InputError
from coulomb.metrics.matching import Correct, score_ranks

K1, B = 1.2, 0.75
# Chinese and Japanese are written without spaces: each of their characters is a word.
_IDEOGRAPH = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_IDEOGRAPH}]|(?:(?![{_IDEOGRAPH}])\w)+")


def words(text: str) -> list[str]:
    """Returns the words of a text: runs of letters, digits and underscores in any script, folded to lower case.

    'Die STRASSE, 3×' → ['die', 'strasse', '3']. Without stemming or stop words.
    """
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def bm25_scores(
    queries: Sequence[str], documents: Sequence[str], *, k1: float = K1, b: float = B
) -> Callable[[slice], np.ndarray]:
    """Returns a function from a slice of the queries to their scores with all documents, float64 [b, K].

        score(q, d) = Σ over words w of q of ln(1 + (K − n_w + ½)/(n_w + ½)) · f·(k1 + 1)/(f + k1·(1 − b + b·|d|/mean |d|))

    with f the occurrences of w in d, and n_w the documents with w (Robertson and Zaragoza, 2009; the logarithm is that of
    Lucene, which is never negative). Words that are repeated in a query count as often. Memory: the words of the documents.

    Raises:
        InputError: ``k1`` < 0, ``b`` outside [0, 1], something that is not a string, no document.

    >>> scores = bm25_scores(["red flower"], ["a cat", "a red rose"])
    >>> scores(slice(0, 1)).round(2)
    array([[0.  , 0.64]])
    """
    from scipy.sparse import csr_array

    if not k1 >= 0 or not 0 <= b <= 1:
        raise InputError(f"k1={k1}, b={b}: k1 must be at least 0, and b from 0 to 1.")
    if not len(documents):
        raise InputError("documents: there is none to search.")
    places: dict[str, int] = {}
    counts = _count(documents, places, "documents", grow=True)
    rows, columns, occurrences = counts
    lengths = np.bincount(rows, occurrences, minlength=len(documents))
    relative = lengths / max(float(lengths.mean()), 1e-12)
    holding = np.bincount(columns, minlength=len(places))
    rarity = np.log1p((len(documents) - holding + 0.5) / (holding + 0.5))
    weight = rarity[columns] * occurrences * (k1 + 1) / (occurrences + k1 * (1 - b + b * relative[rows]))
    table = csr_array((weight, (columns, rows)), shape=(len(places), len(documents)))
    rows, columns, occurrences = _count(queries, places, "queries", grow=False)
    asked = csr_array((occurrences, (rows, columns)), shape=(len(queries), len(places)))

    def scores(block: slice) -> np.ndarray:
        return np.asarray((asked[block] @ table).toarray())

    return scores


def bm25_ranks(
    queries: Sequence[str], documents: Sequence[str], correct: Correct, *, k1: float = K1, b: float = B
) -> np.ndarray:
    """Returns the rank of the best correct document of each query by BM25, int64 [Q]; see `score_ranks` and `bm25_scores`.

    Documents with equal scores count against the query. A query that shares no word with a correct document therefore has
    one of the last ranks.

    Shape:
        correct: two arrays [P].
        output: [Q].

    >>> bm25_ranks(["red flower"], ["a cat", "a red rose"], (np.array([0]), np.array([1])))
    array([1])
    """
    scores = bm25_scores(queries, documents, k1=k1, b=b)
    return score_ranks(scores, len(queries), len(documents), correct)


def _count(
    texts: Sequence[str], places: dict[str, int], name: str, *, grow: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (text, word, occurrences) of the words of all texts; unknown words are added to ``places`` or left out."""
    rows, columns, occurrences = [], [], []
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(f"{name}[{row}]={type(text).__name__}: must be a string.")
        for word, count in Counter(words(text)).items():
            if grow:
                places.setdefault(word, len(places))
            if word in places:
                rows.append(row)
                columns.append(places[word])
                occurrences.append(count)
    return np.array(rows, np.int64), np.array(columns, np.int64), np.array(occurrences, np.float64)
