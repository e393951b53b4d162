import pickle

import numpy as np
import pyarrow as pa
import pytest

from coulomb.ground.errors import InputError
from coulomb.tables.texts import Texts, decoded, strings


def test_texts_are_a_sequence():
    texts = Texts(pa.chunked_array([["a", "b"], ["ç"]]))
    assert len(texts) == 3 and texts[2] == "ç" and texts[np.int64(0)] == "a" and texts[-1] == "ç"
    assert list(texts) == ["a", "b", "ç"] == list(texts[:]) and list(texts[1:]) == ["b", "ç"]
    assert list(texts.take(np.array([2, 0, 2]))) == ["ç", "a", "ç"]
    assert list(pickle.loads(pickle.dumps(texts))) == list(texts)
    with pytest.raises(IndexError):
        texts[3]


def test_bytes_that_are_no_utf8_are_named():
    assert decoded(pa.array([b"x", None]), "t").to_pylist() == ["x", None]
    with pytest.raises(InputError, match="t: the text of row 2 is not UTF-8.*0xff at position 1"):
        decoded(pa.array([b"x", None, b"y\xff"]), "t")


def test_strings_that_are_no_unicode_are_named():
    assert strings(["x", None], "t").to_pylist() == ["x", None]
    with pytest.raises(InputError, match="t: the text of row 11 has half of a surrogate pair at position 2"):
        strings(["x", "ab\ud800"], "t", first=10)
