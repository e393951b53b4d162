import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.kinds.kind import Share
from coulomb.kinds.text import LeftOutTokens, Tokens
from coulomb.kinds.text.text import uniform


def texts(lengths, first=10):
    """Texts whose tokens are all different numbers."""
    lengths = np.array(lengths)
    return Tokens.ragged(np.arange(first, first + lengths.sum()), lengths, padding=3)


def lists(tokens):
    return [ids[mask].tolist() for ids, mask in zip(tokens.ids, tokens.mask, strict=True)]


def test_some_tokens_are_left_out_and_the_others_keep_their_order():
    stack = texts([30] * 200)
    views = LeftOutTokens(0.2, padding=3)
    first, second = views(stack, generator(0))
    for view in (first, second):
        for whole, left in zip(lists(stack), lists(view), strict=True):
            assert left == [each for each in whole if each in set(left)]
        assert view.lengths.float().mean().item() == pytest.approx(24, abs=0.5)
        assert (view.ids[~view.mask] == 3).all()
    assert lists(first) != lists(second)
    assert views.plain(stack) is stack
    again = views(stack, generator(0))[1]
    assert torch.equal(again.ids, second.ids)


def test_one_token_stays_and_special_ones_always():
    stack = texts([1, 2, 3, 1] * 50)
    left = LeftOutTokens(0.95)(stack, generator(0), n=1)[0]
    assert (left.lengths >= 1).all() and (left.lengths == 1).float().mean() > 0.8
    ids = torch.tensor([[1, 20, 21, 2], [1, 22, 2, 0], [1, 2, 0, 0]])
    special = Tokens(ids, torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 1, 0, 0]], dtype=torch.bool))
    for view in LeftOutTokens(0.95, frozenset({1, 2}))(special, generator(0), n=20):
        found = lists(view)
        assert all(each[0] == 1 and each[-1] == 2 for each in found)
        assert [len(each) >= 3 for each in found] == [True, True, False]
        assert found[2] == [1, 2]


def test_a_share_draws_as_the_whole_batch_does_whatever_its_longest_text():
    stack = texts([5, 40, 7, 3, 12])
    views = LeftOutTokens(0.5)
    whole = views(stack, generator(4))
    mine = torch.tensor([0, 2, 3])
    parts = views(stack.take(mine.numpy()), generator(4), 2, Share(mine, 5))
    for part, view in zip(parts, whole, strict=True):
        assert lists(part) == [lists(view)[row] for row in mine.tolist()]


def test_the_numbers_are_even():
    drawn = uniform(np.arange(2000), 50)
    assert drawn.shape == (2000, 50) and drawn.min() >= 0 and drawn.max() < 1
    counts = np.histogram(drawn, 20, (0, 1))[0] / drawn.size
    assert np.abs(counts - 0.05).max() < 0.003
    assert abs(np.corrcoef(drawn[:, 0], drawn[:, 1])[0, 1]) < 0.07
    assert abs(np.corrcoef(drawn[:-1, 0], drawn[1:, 0])[0, 1]) < 0.07


@pytest.mark.parametrize("left_out", [0.0, 1.0, -0.5])
def test_the_share_must_be_inside(left_out):
    with pytest.raises(InputError, match="left_out="):
        LeftOutTokens(left_out)
