import numpy as np
import torch

from coulomb.kinds.text import Tokens


def ragged(*texts, padding=0):
    ids = np.asarray([each for text in texts for each in text], dtype=np.int32)
    return Tokens.ragged(ids, np.asarray([len(text) for text in texts], dtype=np.int64), padding)


def texts_of(tokens):
    return [ids[mask].tolist() for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]


TEXTS = [[3, 1, 4], [1], [5, 9, 2, 6, 5], [], [3, 5]]


def test_ragged_texts_are_padded_on_the_right():
    tokens = ragged(*TEXTS, padding=7)
    assert texts_of(tokens) == TEXTS and tokens.ids.shape == (5, 5)
    assert tokens.ids[1].tolist() == [1, 7, 7, 7, 7] and tokens.mask[1].tolist() == [True] + [False] * 4
    assert tokens.lengths.tolist() == [3, 1, 5, 0, 2]
    assert len(ragged()) == 0


def test_taking_rows_trims_the_padding():
    tokens = ragged(*TEXTS)
    taken = tokens.take(np.asarray([4, 0]))
    assert texts_of(taken) == [TEXTS[4], TEXTS[0]] and taken.ids.shape == (2, 3)
    chosen = tokens.rows(torch.tensor([1, 1, 4]))
    assert texts_of(chosen) == [TEXTS[1], TEXTS[1], TEXTS[4]] and chosen.ids.shape == (3, 2)
    taken.ids.zero_()
    assert texts_of(tokens) == TEXTS


def test_joining_pads_to_the_longest_of_all():
    joined = Tokens.join([ragged(*TEXTS[:2]), ragged(*TEXTS[2:]), ragged([8])])
    assert texts_of(joined) == [*TEXTS, [8]] and joined.ids.shape == (6, 5)
