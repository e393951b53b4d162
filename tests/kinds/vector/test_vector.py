import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator
from coulomb.kinds import UnreadableCell
from coulomb.kinds.kind import Share
from coulomb.kinds.vector import StoredRows, StoredViews, Vector


def stack_of(kind, cells, samples):
    return kind.stack([kind.read(cells, sample).value for sample in samples])


def test_a_plain_vector_is_one_stored_view(tmp_path):
    rows = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    kind = Vector()
    stack = stack_of(kind, np.load(tmp_path / "rows.npy", mmap_mode="r"), [4, 0])
    assert stack.values.shape == (2, 1, 3) and stack.row.tolist() == [4, 0]
    np.testing.assert_array_equal(kind.views.plain(stack).numpy(), rows[[4, 0]])
    with pytest.raises(InputError, match="n=2 views: 1 are stored"):
        kind.views(stack, generator(0), n=2)


def test_samples_without_a_row_or_with_a_value_that_is_not_finite_are_unreadable():
    rows = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    cells = StoredRows(rows, np.array([2, -1, 1, 0]))
    kind = Vector(reason="gone")
    assert len(cells) == 4 and stack_of(kind, cells, [0, 3]).row.tolist() == [2, 0]
    with pytest.raises(UnreadableCell, match="gone"):
        kind.read(cells, 1)
    rows[1, 1, 0] = np.nan
    assert stack_of(kind, rows, [0, 2]).row.tolist() == [0, 2]
    with pytest.raises(UnreadableCell, match="gone"):
        kind.read(rows, 1)


@pytest.mark.parametrize("shape", [(3,), (3, 0), (3, 2, 2, 2)])
def test_odd_shapes_are_refused(shape):
    with pytest.raises(InputError, match=r"must be \[N, F\] or \[N, V, F\]"):
        Vector().read(np.zeros(shape, np.float32), 0)


def test_views_are_different_stored_views_of_each_sample_and_stateless():
    kind = Vector()
    rows = np.arange(50 * 4, dtype=np.float32).reshape(50, 4, 1)
    samples = np.arange(49, -1, -1)
    stack = stack_of(kind, rows, samples)
    first, second, third = kind.views(stack, generator(0), n=3)
    columns = torch.cat([first, second, third], 1) - 4 * torch.from_numpy(samples).float()[:, None]
    assert all(len(set(row)) == 3 and set(row) <= {0, 1, 2, 3} for row in columns.tolist())
    assert {row[0] for row in columns.tolist()} == {0, 1, 2, 3}
    assert torch.equal(kind.views(stack, generator(0), n=3)[1], second)


def test_a_share_draws_as_the_whole_batch_does():
    rows = np.random.default_rng(0).standard_normal((20, 4, 2)).astype(np.float32)
    neighbors = torch.randint(20, (20, 3), generator=generator(1))
    for views in (StoredViews(), StoredViews(rows, neighbors)):
        kind = Vector(views)
        whole = views(stack_of(kind, rows, range(12)), generator(0), n=3)
        mine = torch.tensor([3, 4, 9])
        parts = views(stack_of(kind, rows, mine.tolist()), generator(0), 3, Share(mine, 12))
        assert all(torch.equal(part, view[mine]) for part, view in zip(parts, whole, strict=True))


def test_with_neighbors_all_views_but_the_first_are_those_of_neighbors():
    neighbors = torch.tensor([[1, 2], [2, 3], [3, 4], [4, 0], [0, 1]], dtype=torch.int32)
    rows = torch.arange(5.0)[:, None, None].expand(5, 3, 1).numpy()
    kind = Vector(StoredViews(rows, neighbors))
    samples = torch.arange(5).repeat(20)
    first, *others = kind.views(stack_of(kind, rows, samples.tolist()), generator(0), n=3)
    assert torch.equal(first[:, 0], samples.float())
    for other in others:
        drawn = {(int(row), int(image)) for row, image in zip(samples, other[:, 0], strict=True)}
        assert drawn == {(row, int(image)) for row in range(5) for image in neighbors[row]}
    assert not torch.equal(*others)


def test_a_preview_names_the_first_values():
    kind = Vector()
    assert kind.preview(kind.read(np.arange(6.0).reshape(1, 6), 0).value) == "6 values: 0, 1, 2, 3, …"
    assert kind.preview(kind.read(np.array([[0.5, -1]]), 0).value) == "2 values: 0.5, -1"
