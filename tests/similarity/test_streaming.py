"""The streaming backend against the dense backend: every reduction, pair set, tile size and magnitude."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coulomb.ground import machine
from coulomb.similarity import Similarity, plan, policy, products
from coulomb.similarity import tiles as tiling
from step_memory import peak_mib

REDUCTIONS = {
    "lse": Similarity.lse, "sum": Similarity.sum, "softplus": Similarity.softplus,
    "max": Similarity.max, "mean": Similarity.mean,
}  # fmt: skip


def problem(n, m, d, bias=False, magnitude=1.0, dtype=torch.float64, seed=0):
    """Operands, ids that include unknown ones, and masks with empty rows."""
    g = torch.Generator().manual_seed(seed)
    columns = n if m is None else m
    leaves = {
        "queries_ND": torch.randn(n, d, generator=g, dtype=torch.float64).to(dtype),
        "keys_MD": None if m is None else torch.randn(m, d, generator=g, dtype=torch.float64).to(dtype),
        "scale": torch.tensor(0.7 * magnitude, dtype=dtype),
        "column_bias": torch.randn(columns, generator=g, dtype=torch.float64).to(dtype) if bias else None,
    }
    for leaf in leaves.values():
        if leaf is not None:
            leaf.requires_grad_()
    ids = {"query_ids": torch.randint(-1, 4, (n,), generator=g)}
    if m is not None:
        ids["key_ids"] = torch.randint(-1, 4, (m,), generator=g)
    weights = torch.rand(n, columns, generator=g, dtype=torch.float64)
    mask = weights > 0.4
    mask[0] = False
    return leaves, ids, {"mask": mask, "weights": weights * mask}


def reduced(name, leaves, ids, over, **options):
    value = REDUCTIONS[name](Similarity(**leaves, **ids, **options), over)
    g = torch.Generator().manual_seed(5)
    signed = torch.randn(value.shape, generator=g, dtype=torch.float64).to(value.dtype)
    total = (value.masked_fill(value == -torch.inf, 0) * signed).sum()
    wanted = [leaf for leaf in leaves.values() if leaf is not None]
    return value, *torch.autograd.grad(total, wanted, allow_unused=True, materialize_grads=True)


def assert_same(ours, truth, rtol=1e-9, atol=1e-9):
    for mine, true in zip(ours, truth, strict=True):
        assert not mine.isnan().any()
        torch.testing.assert_close(mine, true, rtol=rtol, atol=atol)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("over", ["all", "others", "negatives", "positives", "mask", "weights"])
@pytest.mark.parametrize(
    ("bias", "magnitude"), [(False, 1.0), (True, 1.0), (True, 500.0)], ids=["plain", "bias", "online maximum"]
)
def test_equals_the_dense_backend(reduction, over, bias, magnitude):
    for n, m, d in [(37, None, 5), (13, 29, 3), (31, 7, 1), (1, None, 2)]:
        if over == "others" and m is not None:
            continue
        leaves, ids, masks = problem(n, m, d, bias, magnitude)
        truth = reduced(reduction, leaves, ids, masks.get(over, over), backend="dense")
        for options in ({"backend": "streaming", "tile": 7}, {"backend": "streaming"}, {}):
            assert_same(reduced(reduction, leaves, ids, masks.get(over, over), **options), truth)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 70),
    m=st.none() | st.integers(1, 70),
    d=st.sampled_from([1, 2, 3, 17, 64, 129, 2048]),
    tile=st.integers(1, 80),
    over=st.sampled_from(["all", "negatives", "positives", "mask"]),
    magnitude=st.sampled_from([0.0, 0.1, 100.0]),
    seed=st.integers(0, 1000),
)
def test_every_shape_and_tile_size_equals_the_dense_backend(n, m, d, tile, over, magnitude, seed):
    leaves, ids, masks = problem(n, m, d, bool(seed % 2), magnitude / d**0.5, seed=seed)
    truth = reduced("lse", leaves, ids, masks.get(over, over), backend="dense")
    assert_same(reduced("lse", leaves, ids, masks.get(over, over), backend="streaming", tile=tile), truth, atol=1e-8)


def use_kernel(linear, monkeypatch):
    kernel = machine.find_linear() if linear else None
    if linear and kernel is None:
        pytest.skip("this build of torch has no oneDNN linear operator")
    monkeypatch.setattr(machine, "LINEAR", kernel)


@pytest.mark.parametrize("m", [None, 1031])
@pytest.mark.parametrize("over", ["all", "negatives"])
@pytest.mark.parametrize("linear", [True, False], ids=["oneDNN", "mm"])
def test_several_full_tiles_equal_the_dense_backend_in_fp32(m, over, linear, monkeypatch):
    use_kernel(linear, monkeypatch)
    n, d = 1123, 33
    single, ids, _ = problem(n, m, d, magnitude=0.2, dtype=torch.float32)
    double, _, _ = problem(n, m, d, magnitude=0.2)
    with torch.no_grad():
        for name, leaf in double.items():
            if leaf is not None:
                leaf.copy_(single[name])
    ours = reduced("lse", single, ids, over, backend="streaming")
    truth = reduced("lse", double, ids, over, backend="dense")
    for mine, true in zip(ours, truth, strict=True):
        torch.testing.assert_close(mine.double(), true, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("linear", [True, False], ids=["oneDNN", "mm"])
@pytest.mark.parametrize(
    "rows, columns, d", [(512, 512, 128), (16, 16, 16), (17, 200, 19), (300, 16, 512), (15, 40, 64)]
)
def test_products_equal_the_dense_backend(rows, columns, d, linear, monkeypatch):
    use_kernel(linear, monkeypatch)
    g = torch.Generator().manual_seed(0)
    queries, keys = torch.randn(rows, d, generator=g), torch.randn(columns, d, generator=g)
    monkeypatch.setattr(products, "WORTHWHILE", 0)
    tile = products.product(queries, keys)
    torch.testing.assert_close(tile, queries @ keys.T, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(products.product(tile, keys.T), tile @ keys, rtol=1e-5, atol=1e-3)
    transposed = products.product(queries.T.contiguous(), tile.T).T
    torch.testing.assert_close(transposed, tile.T @ queries, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("backend", ["dense", "streaming"])
@pytest.mark.parametrize("over", ["others", "positives", "mask"])
def test_an_empty_set_gives_minus_infinity_and_zero_gradient(backend, over):
    queries = torch.ones(1, 3, requires_grad=True)
    pairs = torch.zeros(1, 1, dtype=torch.bool) if over == "mask" else over
    S = Similarity(queries, query_ids=torch.tensor([-1]), backend=backend)
    for fold in (Similarity.lse, Similarity.max):
        value = fold(Similarity(queries, query_ids=torch.tensor([-1]), backend=backend), pairs)
        assert value.item() == -torch.inf
        (gradient,) = torch.autograd.grad(value, queries, torch.ones(1))
        assert torch.equal(gradient, torch.zeros(1, 3))
    assert S.topk(1, pairs)[1].tolist() == [[-1]]
    assert S.mean(pairs).item() == S.sum(pairs).item() == S.count(pairs).item() == 0


@pytest.mark.parametrize("backend", ["dense", "streaming"])
def test_empty_keys_are_supported(backend):
    queries = torch.ones(2, 3, requires_grad=True)
    S = Similarity(queries, torch.zeros(0, 3), backend=backend)
    value = S.lse()
    assert value.tolist() == [-torch.inf] * 2
    (gradient,) = torch.autograd.grad(value.exp().sum(), queries)
    assert torch.isfinite(gradient).all()


def test_topk_is_sorted_and_its_columns_are_correct():
    leaves, ids, _ = problem(23, 41, 6)
    S = Similarity(**leaves, **ids, backend="streaming", tile=8)
    dense = Similarity(**leaves, **ids, backend="dense")
    for over, k in itertools.product(["all", "negatives", "positives"], [1, 5, 41]):
        values, columns = S.topk(k, over)
        true_values, true_columns = dense.topk(k, over)
        torch.testing.assert_close(values, true_values)
        assert torch.equal(columns, true_columns)
    (gradient,) = torch.autograd.grad(S.topk(3)[0].sum(), leaves["queries_ND"])
    (truth,) = torch.autograd.grad(dense.topk(3)[0].sum(), leaves["queries_ND"])
    torch.testing.assert_close(gradient, truth)


@pytest.mark.parametrize("backend", ["dense", "streaming"])
def test_low_cosines_at_a_low_temperature_are_accurate(backend):
    # s is between −100 and −50: with a fixed bound of 1/τ, exp(s − 100) would be 0 in fp32.
    g = torch.Generator().manual_seed(0)
    base = torch.randn(1, 8, generator=g)
    queries = torch.nn.functional.normalize(base + 0.3 * torch.randn(40, 8, generator=g))
    keys = torch.nn.functional.normalize(-base + 0.3 * torch.randn(50, 8, generator=g))
    truth = Similarity(queries.double(), keys.double(), scale=100.0).lse()
    assert truth.max() < -20
    torch.testing.assert_close(
        Similarity(queries, keys, scale=100.0, backend=backend).lse().double(), truth, rtol=0, atol=3e-5
    )


def test_the_fixed_bound_is_used_only_if_exponents_stay_in_range():
    queries = torch.nn.functional.normalize(torch.randn(8, 4, generator=torch.Generator().manual_seed(0)))

    for scale, bounded in [(1 / 0.07, True), (1 / 0.02, True), (1 / 0.01, False)]:
        for unit in (False, True):
            one = Similarity(queries, scale=scale, unit=unit)._problem("all")
            assert one.bounded is bounded
            assert one.largest_exponent == pytest.approx(scale * tiling.LOG2E, rel=2e-3)


@pytest.mark.parametrize(
    "low_high_tile", [(0, 1, 1), (0, 100, 100), (0, 2000, 2000), (3, 1300, 1300), (0, 129, 200), (0, 640, 1024)]
)
def test_the_tiles_of_a_diagonal_cover_each_pair_once(low_high_tile):
    low, high, tile = low_high_tile
    covered = torch.zeros(high, high, dtype=torch.int8)
    for rows, cols in tiling.diagonal(slice(low, high), tile):
        assert rows == cols or rows.stop <= cols.start
        assert max(rows.stop - rows.start, cols.stop - cols.start) <= tile
        covered[rows, cols] += 1
        if rows != cols:
            covered[cols, rows] += 1
    assert (covered[low:, low:] == 1).all()


def test_only_a_large_bias_needs_the_online_maximum():
    bias = torch.tensor([300.0, -300.0, 299.0])
    S = Similarity(torch.zeros(2, 3), torch.zeros(3, 3), column_bias=bias, backend="streaming")
    torch.testing.assert_close(S.lse(), bias.logsumexp(0).expand(2))


def test_the_triangle_is_used_if_possible():
    def triangular(*sides, **options):
        return plan.decide(Similarity(*sides, backend="streaming", **options)._problem("all")).triangular

    assert triangular(torch.eye(3)) and triangular(torch.eye(3).double())
    assert not triangular(torch.eye(3), torch.eye(3))
    assert not triangular(torch.eye(3), scale=1e4)  # rows and columns have different maxima
    assert not triangular(torch.eye(3), column_bias=torch.ones(3))


def test_the_dense_backend_has_second_derivatives_for_empty_sets():
    g = torch.Generator().manual_seed(0)
    queries = torch.randn(4, 2, generator=g, dtype=torch.float64).requires_grad_()
    ids = torch.tensor([0, 0, 1, -1])

    def finite(x):
        value = Similarity(x, query_ids=ids, backend="dense").lse("positives")
        return value.masked_fill(value == -torch.inf, 0)

    assert torch.autograd.gradcheck(finite, queries)
    assert torch.autograd.gradgradcheck(finite, queries)


STEP = """
from coulomb.losses import NTXentLoss
def step(n):
    x, y = (torch.randn(n, 128, generator=torch.Generator().manual_seed(s)).requires_grad_() for s in (0, 1))
    NTXentLoss(0.5)(x, y).backward()
"""


@pytest.mark.slow
def test_memory_is_linear_in_the_batch():
    # 16384 × 16384 floats are 1 GiB; the two inputs and their gradients are 16 MiB.
    assert 16 < peak_mib(STEP, 1024, 8192) < 150


@pytest.mark.parametrize(("m", "both"), [(None, False), (700, False), (700, True)])  # both directions require keys
def test_half_precision_products_are_as_accurate_as_dense(m, both, monkeypatch):
    # For rows in bfloat16, tiles may be products of bfloat16 operands, if the error is no larger than dense PyTorch's.
    monkeypatch.setattr(machine, "FAST_BFLOAT16", True)
    g = torch.Generator().manual_seed(0)
    leaves = [torch.nn.functional.normalize(torch.randn(k, 48, generator=g)).bfloat16() for k in (600, m) if k]
    weights = torch.rand(600, generator=g).double()

    def run(dtype, **options):
        operands = [leaf.to(dtype).requires_grad_() for leaf in leaves]
        S = Similarity(*(x.float() if options else x for x in operands), scale=20.0, **options)
        value = torch.cat(S.lse_both()) if both else S.lse("all" if m else "others")
        return value, *torch.autograd.grad((value[:600] * weights.to(value.dtype)).sum(), operands)

    truth = run(torch.float64)
    with policy.override(half_rows=512):
        mine = run(torch.bfloat16, half=torch.bfloat16, backend="streaming", unit=True, tile=256)
    scores = (20 * leaves[0] @ leaves[-1].T).double()  # dense PyTorch, with its matrix rounded to bfloat16
    if m is None:
        scores.fill_diagonal_(-torch.inf)
    dense = torch.cat([scores.logsumexp(1), scores.logsumexp(0)]) if both else scores.logsumexp(1)
    assert (mine[0] - truth[0]).abs().max() <= (dense - truth[0]).abs().max() * 1.5
    assert (mine[0] - truth[0]).abs().max() > 1e-6  # bfloat16 was used
    for ours, true in zip(mine[1:], truth[1:], strict=True):
        assert (ours.double() - true).norm() <= 0.01 * true.norm()


# Logits so large that the lse of a row is rounded by more than 1; multiples of ln 2, so that equal ones stay equal.
COARSE = {
    "one direction": (7, "all", [1.0], False),
    "queries lead keys": (9, "others", [1.0], False),
    "symmetric": (None, "others", [1.0], False),
    "both directions": (7, "negatives", [1.0], True),
    "two powers": (7, "all", [1.0, 2.0], False),
    "two other powers": (7, "all", [0.5, 1.75], False),
    "ids": (7, "positives", [1.0], False),
    "a mask with an empty row": (
        7,
        torch.arange(63).view(9, 7) % 8 > torch.tensor(8 * [3] + [9])[:, None],
        [1.0],
        False,
    ),
}


COARSE_CASES = [
    (name, bias, frozen)
    for name, (m, _, _, both) in COARSE.items()
    for bias in (False, True)
    for frozen in ((None, "queries_ND", "keys_MD") if m else (None,))
    if not (both and bias)
]


@pytest.mark.parametrize(("name", "bias", "frozen"), COARSE_CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_gradients_where_an_lse_is_coarser_than_1_are_those_of_the_softmax(name, dtype, bias, frozen):
    m, over, powers, both = COARSE[name]
    g, size = torch.Generator().manual_seed(0), {torch.float32: 2.0**10, torch.float64: 2.0**26}[dtype]

    def whole(*shape):
        return torch.randint(-2, 3, shape, generator=g) * size

    leaves = {
        "queries_ND": whole(9, 6),
        "keys_MD": None if m is None else whole(m, 6),
        "scale": torch.tensor(math.log(2), dtype=torch.double),
    }
    leaves["column_bias"] = 0.37 * size**2 * torch.arange(m or 9) if bias else None
    for kind, leaf in leaves.items() if m else ():
        if kind in ("keys_MD", "column_bias") and leaf is not None:
            leaf[-3:] = leaf[:3]  # equal logits share the gradient
    leaves = {k: leaf if leaf is None else leaf.to(dtype).requires_grad_(k != frozen) for k, leaf in leaves.items()}
    ids = {"query_ids": torch.arange(9) % 3} | ({} if m is None else {"key_ids": torch.arange(m) % 3})
    S = Similarity(**leaves, **ids, queries_lead_keys="lead" in name, backend="streaming", tile=4)
    values = [*S.lse_both(over)] if both else list(S.lses(powers, over))
    hidden, matrix = S.pairs(over).hidden(*S.pairs(over).everything), S.scale * (S.queries_ND @ S.keys_MD.T)
    matrix = matrix if S.column_bias is None else matrix + S.column_bias
    if hidden is not None:
        matrix = matrix.masked_fill(hidden, -torch.inf)
    total = truth = 0
    for power, value, scores in zip(powers * 2, values, [matrix] * len(powers) + [matrix.T], strict=False):
        upstream = torch.linspace(-1, 2, len(value), dtype=dtype)
        softmax = (power * scores.detach()).softmax(1).nan_to_num(0)
        total = total + (value.masked_fill(value == -torch.inf, 0) * upstream).sum()
        truth = truth + power * (softmax * scores.clamp_min(-(2.0**100)) * upstream[:, None]).sum()
    wanted = [leaf for leaf in leaves.values() if leaf is not None and leaf.requires_grad]
    results = (torch.autograd.grad(part, wanted) for part in (total, truth))
    for mine, true in zip(*results, strict=True):
        assert true.abs().max() > 0
        torch.testing.assert_close(mine, true, rtol=1e-4, atol=1e-5 * float(true.abs().max()))
