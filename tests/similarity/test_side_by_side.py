"""Every reduction with tiles in several threads: the numbers of the stored matrix, and the same bits in every run."""

import pytest
import torch

from coulomb.similarity import Similarity
from coulomb.similarity.tiles import slices, strip_length, tournament

SHAPES = [(37, 53, 7), (100, 70, 16), (64, 64, 64), (1, 90, 8), (90, 1, 8), (301, 300, 50), (401, 900, 150)]
FOLDS = {
    "lse": lambda S: S.lse(),
    "lse of negatives": lambda S: S.lse("negatives"),
    "two powers, a square": lambda S: S.lses((1.0, 2.0), "negatives"),
    "two powers": lambda S: S.lses((0.5, 1.7), "negatives"),
    "both directions": lambda S: torch.cat(S.lse_both("negatives")),
    "softplus": lambda S: S.softplus("negatives", bias=0.3),
    "sum of the largest": lambda S: S.sum("negatives", top_k=min(3, S.shape[1])),
    "top-k": lambda S: S.topk(min(3, S.shape[1]), "negatives")[0],
    "many of the largest": lambda S: S.topk(min(40, S.shape[1]), "negatives")[0],
    "fused": lambda S: S.contrast(torch.linspace(0, 1, S.shape[0], dtype=torch.double), "negatives"),
    "statistics": lambda S: torch.stack([*vars(S.statistics("negatives")).values()]),
}
NO_EXPONENTIALS = {"softplus", "sum of the largest", "top-k", "many of the largest"}


@pytest.fixture
def threads():
    """Sets the number of threads until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


# A maximum is only needed for exponentials; top-k and sums have none.
CASES = [
    (fold, itself, scale)
    for fold in FOLDS
    for itself in (False, True)
    for scale in (1.7, 900.0)
    if not (itself and fold == "both directions") and not (scale == 900.0 and fold in NO_EXPONENTIALS)
]


def reduced(fold, shape, scale, itself, backend):
    """Values and gradients of a fold."""
    n, m, tile = shape
    generator = torch.Generator().manual_seed(0)
    queries, keys = (torch.randn(rows, 11, dtype=torch.double, generator=generator).requires_grad_() for rows in (n, m))
    ids = [torch.randint(0, 5, (rows,), generator=generator) for rows in (n, m)]
    scale = torch.tensor(scale, dtype=torch.double, requires_grad=True)
    if itself:
        similarity = Similarity(queries, scale=scale, query_ids=ids[0], backend=backend, tile=tile)
    else:
        bias = None if fold == "both directions" else torch.linspace(0, 1, m, dtype=torch.double).requires_grad_()
        options = {"query_ids": ids[0], "key_ids": ids[1], "column_bias": bias}
        similarity = Similarity(queries, keys, scale=scale, backend=backend, tile=tile, **options)
    values = FOLDS[fold](similarity)
    values = values.masked_fill(values.isinf(), 0)
    learning = [x for x in (queries, None if itself else keys, scale, similarity.column_bias) if x is not None]
    if not values.requires_grad:
        return [values]
    weights = torch.linspace(1, 2, values.numel(), dtype=torch.double).view_as(values)
    return [values.detach(), *torch.autograd.grad((values * weights).sum(), learning)]


@pytest.mark.parametrize(("fold", "itself", "scale"), CASES)
def test_every_fold_equals_the_stored_matrix_and_itself_bit_by_bit(fold, itself, scale, threads):
    for shape in SHAPES:
        expected = reduced(fold, shape, scale, itself, "dense")
        for count in (3, 8):
            threads(count)
            found, again = (reduced(fold, shape, scale, itself, "streaming") for _ in range(2))
            case = f"{shape}, {count} threads"
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9 * scale, msg=lambda text: f"{case}: {text}")
            assert all(torch.equal(one, other) for one, other in zip(found, again, strict=True)), case


@pytest.mark.parametrize("count", range(1, 12))
def test_a_tournament_has_each_pair_once_and_each_number_once_in_a_round(count):
    pairs = list(tournament(count))
    assert sorted(pairs) == [(i, j) for i in range(count) for j in range(i, count)]
    seen = set()
    for pair in pairs:
        if seen & set(pair):  # a new round
            assert len(seen) >= count - 1
            seen = set()
        seen |= set(pair)


@pytest.mark.parametrize("length", [0, 1, 5, 320, 1000, 8192])
@pytest.mark.parametrize("tile, count, least", [(1, 1, 1), (100, 4, 128), (768, 4, 320), (10_000, 1, 1)])
def test_strips_are_equal_and_at_most_a_tile(length, tile, count, least):
    step = strip_length(length, tile, count, least)
    strips = list(slices(length, step))
    assert step <= max(1, tile) and sum(strip.stop - strip.start for strip in strips) == length
