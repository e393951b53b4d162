import numpy as np
import pytest

from coulomb.tables.shards.blocks import Blocks, cut_blocks
from coulomb.training.order import RunOrder


def made(images=1000, shards=10, size=100, block=1000, window=4000):
    shard = np.repeat(np.arange(shards, dtype=np.int32), images // shards)
    offsets = np.tile(np.arange(images // shards) * size, shards)
    blocks = cut_blocks(shard, offsets, np.full(images, size), block)
    return Blocks(blocks.of, blocks.shard, blocks.start, blocks.end, window)


def test_blocks_cover_their_images_and_stay_in_a_shard():
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, 5000, 500)
    shard = np.sort(draw.integers(0, 7, 500)).astype(np.int32)
    offsets = np.concatenate([np.cumsum(sizes[shard == s]) - sizes[shard == s] for s in range(7)])
    blocks = cut_blocks(shard, offsets, sizes, 4096)
    assert (np.diff(blocks.of) >= 0).all() and (blocks.shard[blocks.of] == shard).all()
    assert (blocks.start[blocks.of] <= offsets).all() and (offsets + sizes <= blocks.end[blocks.of]).all()
    assert (blocks.sizes <= 4096 + 5000).all()
    assert len(cut_blocks(shard[:0], offsets[:0], sizes[:0]).shard) == 0


def test_an_epoch_is_a_permutation_that_visits_windows_one_after_the_other():
    blocks, images = made(), np.arange(0, 1000, 3)
    arranged = blocks.arrange(np.random.default_rng(1).permutation(images), np.random.default_rng(2))
    assert sorted(arranged) == list(images)
    visits = [np.flatnonzero(blocks.of[arranged] == block) for block in range(100)]
    assert max(np.ptp(visit) for visit in visits) < 20  # a window of 4 blocks has about 13 of these images
    orders = [tuple(images[blocks.of[images] == b]) != tuple(arranged[visits[b]]) for b in range(100)]
    assert sum(orders) > 50  # and they are shuffled in it


def test_one_window_is_a_true_shuffle():
    shuffled = np.random.default_rng(0).permutation(1000)
    assert (made(window=10**9).arrange(shuffled, np.random.default_rng(1)) == shuffled).all()


@pytest.mark.parametrize("sampler", ["uniform", "class_balanced", "square_root"])
def test_every_step_is_computed_alone_for_any_number_of_processes(sampler):
    blocks, labels = made(), np.arange(1000) // 100
    drawn = {"blocks": blocks, "sampler": sampler, "labels": labels}
    whole = list(RunOrder(np.arange(1000), 48, 2, 3, **drawn))
    assert list(RunOrder(np.arange(1000), 48, 2, 3, start=25, **drawn)) == whole[25:]
    for world in (2, 3):
        parts = [list(RunOrder(np.arange(1000), 48, 2, 3, rank=r, world_size=world, **drawn)) for r in range(world)]
        assert [sum((list(p) for p in step), []) for step in zip(*parts)] == [list(step) for step in whole]
    assert whole[:20] != whole[20:40]  # every epoch has an order of its own


def test_epochs_differ_in_which_blocks_share_a_window():
    blocks, images = made(), np.arange(1000)
    firsts = [set(blocks.of[blocks.arrange(images, np.random.default_rng(seed))[:40]]) for seed in range(5)]
    assert all(len(a & b) < 4 for a in firsts for b in firsts if a is not b)
