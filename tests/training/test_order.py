import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator as derived
from coulomb.kinds.image import Canvases
from coulomb.kinds.image.views import OwnViews, TakingTurns, make_views
from coulomb.tables import ArraySource, Batch, image_samples
from coulomb.tables.split import epoch_order
from coulomb.training.order import ColumnViews, RunLoader, RunOrder, draw_views


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


@pytest.mark.parametrize("world_size", [2, 3, 5])
@pytest.mark.parametrize("sampler", ["uniform", "class_balanced"])
def test_processes_divide_the_batches_of_one_process(world_size, sampler):
    drawn = {"sampler": sampler, "labels": np.arange(50) % 9 // 4}
    whole = list(RunOrder(np.arange(50), 12, 3, 7, **drawn))
    orders = [
        RunOrder(np.arange(50), 12, 3, 7, rank=rank, world_size=world_size, **drawn) for rank in range(world_size)
    ]
    assert [sum(parts, []) for parts in zip(*orders, strict=True)] == whole
    sizes = [order.share.stop - order.share.start for order in orders]
    assert max(sizes) - min(sizes) <= 1


def test_an_epoch_is_drawn_once(monkeypatch):
    drawn = []
    monkeypatch.setattr("coulomb.training.order.epoch_order", lambda *given: drawn.append(given) or epoch_order(*given))
    order = RunOrder(np.arange(40), 10, 2, 3)
    for step, batch in enumerate(order):
        batch_of(order, step, batch[:1])
    assert len(drawn) == 2


def test_unreadable_images_leave_the_positions_of_the_others():
    order = RunOrder(np.arange(40), 10, 2, 3, rank=1, world_size=2)
    for lost, places in ((), [5, 6, 7, 8, 9]), ((1, 4), [5, 7, 8]):
        batch = batch_of(order, 5, [list(order)[5][row] for row in lost])
        assert batch.share.rows.tolist() == places and batch.share.total == 10


def test_a_batch_has_the_rows_of_the_table_and_their_places_among_the_training_samples():
    samples, labels = np.array([40, 7, 21, 3, 30]), np.array([2, 0, -1, 1, 0])
    order = RunOrder(samples, 4, 1, 0, labels=labels)
    batch = batch_of(order, 0)
    assert batch.sample.tolist() == next(iter(order))
    assert samples[batch.train_row].tolist() == batch.sample.tolist()
    assert labels[batch.train_row].tolist() == batch.labels.tolist()
    assert batch_of(RunOrder(samples, 4, 1, 0), 0).labels is None


def test_a_loader_counts_the_batches_that_it_handed_out():
    images = image_samples(ArraySource(np.zeros((8, 4, 4, 3), dtype=np.uint8)), size=4)
    loader = RunLoader(images, RunOrder(np.arange(8), 2, 3, 0), 0)
    batches = iter(loader)
    first = [next(batches).sample.tolist() for _ in range(5)]
    state = loader.state_dict()
    rest = [batch.sample.tolist() for batch in batches]
    resumed = RunLoader(images, RunOrder(np.arange(8), 2, 3, 0), 0)
    resumed.load_state_dict(state)
    assert state["trained"] == 5 and [batch.sample.tolist() for batch in resumed] == rest
    assert first + rest == list(RunOrder(np.arange(8), 2, 3, 0))


SAMPLES = image_samples(ArraySource(np.zeros((40, 4, 4, 3), dtype=np.uint8)), size=4)


def test_a_checkpoint_of_another_batch_is_refused():
    states = [RunLoader(SAMPLES, RunOrder(np.arange(40), size, 1, 0), 0).state_dict() for size in (8, 4)]
    loader = RunLoader(SAMPLES, RunOrder(np.arange(40), 8, 1, 0), 0)
    loader.load_state_dict(states[0])
    with pytest.raises(InputError, match="trained with 4 images per step, and config.yaml gives 8"):
        loader.load_state_dict(states[1])


def batch_of(order, step, failed=()):
    """Returns a batch as a loader does: the image of index i is of color i."""
    index = torch.tensor([each for each in order.at(step).tolist() if each not in failed])
    canvas = (index.to(torch.uint8) * 5)[:, None, None, None].expand(-1, 3, 16, 16)
    stack = Canvases(canvas, torch.ones(len(index)))
    return order.place(step, Batch({"image": stack}, index, [(each, "damaged") for each in failed]))


VIEWS = make_views("natural", size=16, noise=0.5, jitter=0.5)


def drawn(views, batch, n, **options):
    rows = draw_views({"image": ColumnViews(views, n)}, batch, **options)
    return rows.split(rows["image"])


@pytest.mark.parametrize(
    "views", [VIEWS, TakingTurns([VIEWS, make_views("small-natural", size=16)])], ids=["one", "turns"]
)
@pytest.mark.parametrize("world_size", [2, 3])
def test_views_do_not_depend_on_the_number_of_processes(views, world_size):
    options = {"batch_size": 16, "epochs": 1, "seed": 5}
    one = RunOrder(np.arange(50), **options)
    whole = drawn(views, batch_of(one, 2), 2, seed=5, step=2, rank=0)
    parts = []
    for rank in range(world_size):
        order = RunOrder(np.arange(50), **options, rank=rank, world_size=world_size)
        parts.append(drawn(views, batch_of(order, 2), 2, seed=5, step=2, rank=rank))
    for view, shares in zip(whole, zip(*parts, strict=True), strict=True):
        torch.testing.assert_close(torch.cat(shares), view, rtol=0, atol=1e-6)
    generator = derived(5, "views", 2, 0)
    batch = batch_of(one, 2)
    as_ever = views(batch.stack.canvas, generator, n=2, aspect=batch.stack.aspect)  # as before shares existed
    assert all(torch.equal(a, b) for a, b in zip(whole, as_ever, strict=True))


def test_an_unreadable_image_does_not_change_the_views_of_the_others():
    order = RunOrder(np.arange(50), 16, 1, 5)
    lost = list(order)[1][3]
    whole, rest = (drawn(VIEWS, batch_of(order, 1, failed), 2, seed=5, step=1, rank=0) for failed in ([], [lost]))
    others = [row for row in range(16) if row != 3]
    assert all(torch.allclose(a[others], b, atol=1e-6) for a, b in zip(whole, rest, strict=True))


def test_own_views_are_called_as_before():
    """A user's function draws for the images of its process, by a generator of its own."""
    seen = []
    own = OwnViews(lambda images, generator: seen.append(generator.initial_seed()) or images, size=16, channels=3)
    for rank in range(2):
        order = RunOrder(np.arange(50), 16, 1, 5, rank=rank, world_size=2)
        assert len(drawn(own, batch_of(order, 0), 1, seed=5, step=0, rank=rank)[0]) == 8
    assert seen == [derived(5, "views", 0, rank).initial_seed() for rank in range(2)]


def test_a_sampler_evens_out_the_classes():
    labels = np.repeat([0, 1], [90, 10])
    shown = sum(RunOrder(np.arange(100), 10, 4, 0, sampler="class_balanced", labels=labels), [])
    assert np.bincount(labels[shown]).tolist() == [200, 200]


def test_the_order_depends_on_the_seed():
    assert list(RunOrder(np.arange(30), 5, 1, 0)) != list(RunOrder(np.arange(30), 5, 1, 1))
