"""Texts, vectors and images of one table through the loader."""

import numpy as np
import pytest
import torch

from coulomb.ground.errors import InputError
from coulomb.kinds.image import Image
from coulomb.kinds.text import Text, tokenize
from coulomb.kinds.vector import Vector
from coulomb.tables import Columns, Samples, image_samples, open_source
from coulomb.training.order import RunLoader, RunOrder

CAPTIONS = ["a cat", "two dogs", None, "", "a long caption", "x"] * 5
VECTORS = np.random.default_rng(0).standard_normal((30, 6)).astype(np.float32)


def letters(text):
    return [ord(each) for each in text]


def table(**columns):
    return Columns(columns or {"caption": CAPTIONS, "features": VECTORS}, labels=np.arange(30) % 3)


def through_the_loader(samples, workers, start=0):
    order = RunOrder(np.arange(30), 7, 2, 0, start=start)
    return list(RunLoader(samples, order, workers)), order


@pytest.mark.parametrize("workers", [0, 1])
def test_texts_come_through_the_loader(workers):
    batches, order = through_the_loader(Samples(table(), {"caption": Text(letters)}), workers)
    assert len(batches) == len(order)
    for batch, samples in zip(batches, order, strict=True):
        good = [each for each in samples if CAPTIONS[each]]
        assert batch.sample.tolist() == good and len(batch) == len(batch.stack) == len(good)
        assert [each for each, _ in batch.failed] == [each for each in samples if not CAPTIONS[each]]
        texts = [
            "".join(chr(each) for each in ids[mask])
            for ids, mask in zip(batch.stack.ids, batch.stack.mask, strict=True)
        ]
        assert texts == [CAPTIONS[each] for each in good]


@pytest.mark.parametrize("workers", [0, 1])
def test_vectors_of_a_memory_map_come_through_the_loader(tmp_path, workers):
    stored = VECTORS.copy()
    stored[[4, 11]] = np.inf
    np.save(tmp_path / "rows.npy", stored)
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    batches, order = through_the_loader(Samples(table(features=rows), {"features": Vector()}), workers, start=4)
    assert sum(len(batch) for batch in batches) + sum(len(batch.failed) for batch in batches) == 4 * 7
    for batch, samples in zip(batches, order, strict=True):
        assert batch.sample.tolist() == [each for each in samples if each not in (4, 11)]
        assert {each for each, _ in batch.failed} <= {4, 11}
        np.testing.assert_array_equal(batch.stack.values[:, 0].numpy(), stored[batch.sample])


@pytest.mark.parametrize("workers", [0, 1])
def test_texts_that_are_tokenized_once_come_through_the_loader_as_their_strings_do(workers):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({chr(each): each for each in range(128)}, []))
    column = tokenize(CAPTIONS, tokenizer, longest=6)
    kind = Text(tokenizer, longest=6)
    plain, _ = through_the_loader(Samples(table(), {"caption": Text(letters, longest=6)}), workers)
    samples = Samples(table(caption=column), {"caption": kind})
    batches, _ = through_the_loader(samples, workers)
    assert samples.table.kinds == {"caption": "text"}
    for batch, other in zip(batches, plain, strict=True):
        assert batch.sample.tolist() == other.sample.tolist() and batch.failed == other.failed
        assert torch.equal(batch.stack.ids, other.stack.ids) and torch.equal(batch.stack.mask, other.stack.mask)
        assert batch.rounded == other.rounded


def test_two_columns_have_the_same_samples():
    samples = Samples(table(), {"caption": Text(letters, longest=6), "features": Vector()})
    (batch,) = samples.batches([9, 2, 4, 0], 4)
    assert batch.sample.tolist() == [4, 0] and [each for each, _ in batch.failed] == [9, 2]
    assert len(batch.columns["caption"]) == len(batch.columns["features"]) == 2
    np.testing.assert_array_equal(batch.columns["features"].values[:, 0].numpy(), VECTORS[[4, 0]])
    assert batch.rounded == [4] and samples.rounded == {4}  # the caption was cut
    assert samples.failures == {9: "the text is empty", 2: "no text"}
    assert samples.usable.tolist() == [each for each in range(30) if each not in (2, 9)]
    with pytest.raises(ValueError, match="too many values"):
        batch.stack


def test_a_batch_without_any_readable_cell():
    (batch,) = Samples(table(), {"caption": Text(letters), "features": Vector()}).batches([2, 3], 2)
    assert len(batch) == 0 and all(len(stack) == 0 for stack in batch.columns.values()) and len(batch.failed) == 2


def test_texts_beside_images_are_not_cached():
    pixels = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), np.uint8)
    both = Samples(table(caption=CAPTIONS, image=open_source(pixels)), {"caption": Text(letters), "image": Image(8)})
    assert both.nbytes is None and not both.load(progress=False)
    (batch,) = both.batches([5, 0], 2)
    assert torch.equal(
        batch.columns["image"].canvas, image_samples(open_source(pixels), 8).__getitems__([5, 0]).stack.canvas
    )


def test_a_batch_moves_with_its_stacks():
    (batch,) = Samples(table(), {"features": Vector()}).batches([1, 2], 2)
    moved = batch.to("meta")
    assert moved.stack.values.is_meta and not moved.sample.is_meta and not moved.stack.row.is_meta


@pytest.mark.parametrize(
    ("kinds", "named"), [({}, "none"), ({"image": Image(8)}, "image"), ({"caption": Text(letters), "x": Vector()}, "x")]
)
def test_columns_that_are_not_there_are_refused(kinds, named):
    with pytest.raises(InputError, match=f"{named}.*caption"):
        Samples(table(), kinds)


def test_workers_are_checked():
    with pytest.raises(InputError, match="workers=-1"):
        Samples(table(), {"features": Vector()}, workers=-1)
