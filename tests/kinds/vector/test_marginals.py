import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.kinds.kind import Share
from coulomb.kinds.vector import MarginalViews, Vector


def stack_of(kind, cells):
    return kind.stack([kind.read(cells, row).value for row in range(len(cells))])


def columns_of_their_own(rows, width):
    """Values whose integer part names the column and whose fraction the row."""
    return (np.arange(width) + np.arange(rows)[:, None] / 1000).astype(np.float32)


@pytest.mark.parametrize(("width", "replaced", "count"), [(10, 0.6, 6), (7, 0.6, 4), (2, 0.6, 1), (5, 0.05, 1)])
def test_each_copy_has_as_many_values_of_other_rows_in_their_own_columns(width, replaced, count):
    rows = columns_of_their_own(400, width)
    kind = Vector(MarginalViews(rows[:300], replaced))
    stack = stack_of(kind, rows[300:])
    first, second, third = kind.views(stack, generator(0), n=3)
    assert torch.equal(first, kind.views.plain(stack)) and torch.equal(first, torch.from_numpy(rows[300:]))
    for view in (second, third):
        changed = view != first
        assert (changed.sum(1) == count).all()  # these rows are not among those that are drawn from
        assert (view.floor() == torch.arange(width)).all()
        assert np.isin(view[changed].numpy(), rows[:300]).all()
        if count > 1:
            drawn = ((view - view.floor()) * 1000).round()[changed].view(100, count)
            assert (drawn.std(1) > 0).float().mean() > 0.9  # each value comes from a row of its own
    assert not torch.equal(second, third)
    shares = ((second != first).float().mean(0) - count / width).abs()
    assert (shares < 0.2).all()  # places are drawn evenly


def test_values_are_drawn_from_the_marginal_of_the_column():
    rows = np.zeros((1000, 2), np.float32)
    rows[:250] = 1  # a quarter of each column
    kind = Vector(MarginalViews(rows, 0.5))
    view = kind.views(stack_of(kind, np.full((2000, 2), 7, np.float32)), generator(1))[1]
    drawn = view[view != 7]
    assert len(drawn) == 2000 and drawn.mean().item() == pytest.approx(0.25, abs=0.04)


def test_a_share_draws_as_the_whole_batch_does():
    rows = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    kind = Vector(MarginalViews(rows))
    whole = kind.views(stack_of(kind, rows[:12]), generator(0), n=3)
    mine = torch.tensor([3, 4, 9])
    parts = kind.views(stack_of(kind, rows[mine.numpy()]), generator(0), 3, Share(mine, 12))
    assert all(torch.equal(part, view[mine]) for part, view in zip(parts, whole, strict=True))


@pytest.mark.parametrize(
    ("rows", "replaced", "message"),
    [
        (np.zeros((5, 1)), 0.6, "at least 2"),
        (np.zeros((0, 3)), 0.6, "at least 2"),
        (np.zeros((5, 3)), 1.0, "replaced=1"),
    ],
)
def test_what_cannot_be_corrupted_is_refused(rows, replaced, message):
    with pytest.raises(InputError, match=message):
        MarginalViews(rows, replaced)
