import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coulomb.errors import InputError
from coulomb.training.order import RunOrder


@given(
    images=st.integers(2, 60),
    batch=st.integers(2, 12),
    epochs=st.integers(1, 3),
    start=st.integers(0, 40),
    seed=st.integers(0, 5),
)
def test_starting_at_any_step_continues_the_same_sequence(images, batch, epochs, start, seed):
    indices = np.arange(images) * 3 + 1
    if images < batch:
        with pytest.raises(InputError, match=f"batch_size={batch}.*{images} training images"):
            RunOrder(indices, batch, epochs, seed)
        return
    labels = np.arange(images) % 7 // 3
    balanced = {"sampler": "class_balanced", "labels": labels}
    resumed = list(RunOrder(indices, batch, epochs, seed, start=start, **balanced))
    assert resumed == list(RunOrder(indices, batch, epochs, seed, **balanced))[start:]
    whole = list(RunOrder(indices, batch, epochs, seed))
    assert len(whole) == len(RunOrder(indices, batch, epochs, seed, start=start)) == epochs * (images // batch)
    assert list(RunOrder(indices, batch, epochs, seed, start=start)) == whole[start:]


def test_an_epoch_shows_each_image_at_most_once_and_differs_from_the_next():
    order = RunOrder(np.arange(100), 10, 2, seed=0)
    batches = list(order)
    first, second = sum(batches[:10], []), sum(batches[10:], [])
    assert sorted(first) == sorted(second) == list(range(100))
    assert first != second


@pytest.mark.parametrize("world_size", [2, 3])
def test_processes_share_an_epoch_without_overlap(world_size):
    shares = [list(RunOrder(np.arange(50), 4, 1, 7, rank=rank, world_size=world_size)) for rank in range(world_size)]
    assert len({len(share) for share in shares}) == 1
    seen = [index for share in shares for batch in share for index in batch]
    assert len(seen) == len(set(seen))


def test_a_sampler_evens_out_the_classes():
    labels = np.repeat([0, 1], [90, 10])
    shown = sum(RunOrder(np.arange(100), 10, 4, 0, sampler="class_balanced", labels=labels), [])
    assert np.bincount(labels[shown]).tolist() == [200, 200]


def test_the_order_depends_on_the_seed():
    assert list(RunOrder(np.arange(30), 5, 1, 0)) != list(RunOrder(np.arange(30), 5, 1, 1))
