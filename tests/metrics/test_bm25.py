"""BM25 compared with its formula, one query and one document at a time."""

import math

import numpy as np
import pytest

from coulomb.ground.errors import InputError
from coulomb.metrics.bm25 import bm25_ranks, bm25_scores, words

DOCUMENTS = [
    "The cat sat on the mat.", "A dog; a DOG and a cat!", "stock market news", "", "the the the", "Straße nach Osten",
]  # fmt: skip
QUERIES = ["cat", "the dog the cat", "STRASSE", "zebra", ""]


def formula(query, document, k1, b):
    lengths = [len(words(each)) for each in DOCUMENTS]
    score = 0.0
    for word in set(words(document)) & set(words(query)):
        holding = sum(word in words(each) for each in DOCUMENTS)
        frequency, asked = words(document).count(word), words(query).count(word)
        rarity = math.log(1 + (len(DOCUMENTS) - holding + 0.5) / (holding + 0.5))
        length = len(words(document)) / np.mean(lengths)
        score += asked * rarity * frequency * (k1 + 1) / (frequency + k1 * (1 - b + b * length))
    return score


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.5, 0.0), (2.0, 1.0)])
def test_scores_are_the_formula(k1, b):
    scores = bm25_scores(QUERIES, DOCUMENTS, k1=k1, b=b)
    expected = [[formula(query, document, k1, b) for document in DOCUMENTS] for query in QUERIES]
    np.testing.assert_allclose(scores(slice(0, 5)), expected, atol=1e-12)
    np.testing.assert_allclose(scores(slice(1, 3)), expected[1:3], atol=1e-12)


def test_ranks_count_ties_against_the_query():
    correct = np.arange(5), np.array([0, 1, 5, 2, 0])
    assert bm25_ranks(QUERIES, DOCUMENTS, correct).tolist() == [1, 3, 1, 6, 6]
    assert bm25_ranks(QUERIES, DOCUMENTS, ([0, 0], [0, 1])).tolist() == [1, -1, -1, -1, -1]


def test_words_are_runs_of_letters_and_digits_of_any_script():
    assert words("Die STRASSE, 3× l'été — snake_case") == ["die", "strasse", "3", "l", "été", "snake_case"]
    assert words("Страница 5") == ["страница", "5"]
    assert words("红色的花 is red") == ["红", "色", "的", "花", "is", "red"]
    assert words("ＡＢＣ e\u0301") == ["abc", "é"]


def test_invalid_input_is_refused():
    with pytest.raises(InputError, match=r"queries\[1\]=NoneType"):
        bm25_ranks(["a", None], ["a"], ([0], [0]))
    with pytest.raises(InputError, match="b=2"):
        bm25_scores(["a"], ["a"], b=2)
    with pytest.raises(InputError, match="documents"):
        bm25_scores(["a"], [])
