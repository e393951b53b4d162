"""A guide: the negatives of each row by a double loop over a second similarity, and reductions by plain torch in fp64."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import softplus

from coulomb.similarity import Guide, Similarity, autograd, plan, policy, streaming, use_backend
from step_memory import peak_mib


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def negatives(guide, kind, ids, lead):
    """[N, M] by a double loop: not self, not of equal id or instance, below the limit of the guide."""
    a, b = guide.queries_NE, guide.keys
    out = torch.zeros(len(a), len(b), dtype=torch.bool)
    for i in range(len(a)):
        for j in range(len(b)):
            same = {
                "guide alone": False,
                "ids": bool(ids[0][i] == ids[1][j]) and int(ids[0][i]) >= 0,
                "instances": i % 3 == j % 3,
            }[kind]
            out[i, j] = not (lead and i == j) and not same and bool(a[i] @ b[j] < guide.limit_N[i])
    return out


def lse(scores, counted):
    empty = ~counted.any(1)
    masked = scores.masked_fill(~counted, -torch.inf).masked_fill(empty[:, None], 0)
    return masked.logsumexp(1).masked_fill(empty, -torch.inf)


POSITIVE = 0.3
REDUCTIONS = {
    "lse": (lambda S: S.lse("negatives"), lse),
    "lses": (lambda S: S.lses((1, 2.5), "negatives")[1], lambda s, c: lse(2.5 * s, c)),
    "sum": (lambda S: S.sum("negatives"), lambda s, c: s.masked_fill(~c, 0).sum(1)),
    "mean": (lambda S: S.mean("negatives"), lambda s, c: s.masked_fill(~c, 0).sum(1) / c.sum(1).clamp_min(1)),
    "softplus": (lambda S: S.softplus("negatives"), lambda s, c: softplus(s, threshold=50).masked_fill(~c, 0).sum(1)),
    "max": (lambda S: S.max("negatives"), lambda s, c: s.masked_fill(~c, -torch.inf).amax(1)),
    "lse of 2": (lambda S: S.lse("negatives", top_k=2), lambda s, c: lse(*largest(s, c))),
    "contrast": (
        lambda S: S.contrast(torch.full(S.shape[:1], POSITIVE, dtype=torch.float64)),
        lambda s, c: softplus(lse(s, c) - POSITIVE, threshold=50),
    ),
}


def largest(scores, counted):
    least = scores.masked_fill(~counted, -torch.inf).topk(2, 1).values[:, -1:].detach()
    return scores, counted & (scores >= least)


def problem(n, m, kind, seed, scale=1.5, width=2):
    """(similarity as a function of options, leaves, guide, ids)"""
    queries = normal(n, 3, seed=seed).requires_grad_()
    keys = None if m is None else normal(m, 3, seed=seed + 1).requires_grad_()
    factor = torch.tensor(scale, dtype=torch.float64, requires_grad=True)
    a, b = normal(n, width, seed=seed + 2), None if m is None else normal(m, width, seed=seed + 3)
    guide = Guide(a, b, normal(n, seed=seed + 4))
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(-1, 3, (count,), generator=generator) for count in (n, n if m is None else m)]
    ids[1] = ids[0] if m is None else ids[1]
    some = {
        "guide alone": {},
        "ids": {"query_ids": ids[0]} | ({} if m is None else {"key_ids": ids[1]}),
        "instances": {"instances": 3},
    }[kind]
    leaves = [queries, factor] if keys is None else [queries, keys, factor]

    def similarity(**options):
        return Similarity(queries, keys, scale=factor, guide=guide, **some, **options)

    return similarity, leaves, guide, ids


def compare(value, truth, leaves, tolerance=1e-10):
    torch.testing.assert_close(value, truth, rtol=0, atol=tolerance)
    weights = torch.linspace(-1, 2, len(value), dtype=torch.float64)
    found, true = (
        torch.autograd.grad(
            (one.masked_fill(one == -torch.inf, 0) * weights).sum(),
            leaves,
            allow_unused=True,
            retain_graph=True,
            materialize_grads=True,
        )
        for one in (value, truth)
    )
    for mine, its in zip(found, true, strict=True):
        torch.testing.assert_close(mine, its, rtol=0, atol=tolerance)


@pytest.mark.parametrize("kind", ["guide alone", "ids", "instances"])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("n", "m"), [(13, None), (11, 17), (9, 2), (2, 9)])
def test_equals_the_double_loop(kind, reduction, n, m):
    similarity, leaves, guide, ids = problem(n, m, kind, seed=3)
    counted = negatives(guide, kind, ids, m is None)
    ours, loop = REDUCTIONS[reduction]
    queries, keys = leaves[0], leaves[0] if m is None else leaves[1]
    for options in ({}, {"backend": "dense"}, {"backend": "streaming", "tile": 4}, {"backend": "streaming"}):
        compare(ours(similarity(**options)), loop(leaves[-1] * queries @ keys.T, counted), leaves)


@settings(max_examples=80, deadline=None)
@given(
    n=st.integers(1, 30),
    m=st.none() | st.integers(1, 30),
    width=st.sampled_from([1, 2, 40]),
    tile=st.integers(1, 33),
    kind=st.sampled_from(["guide alone", "ids", "instances"]),
    reduction=st.sampled_from(["lse", "contrast", "sum"]),
    scale=st.sampled_from([0.5, 40.0, 400.0]),
    seed=st.integers(0, 99),
)
def test_every_shape_and_tile_size_equals_the_double_loop(n, m, width, tile, kind, reduction, scale, seed):
    similarity, leaves, guide, ids = problem(n, m, kind, seed, scale, width)
    counted = negatives(guide, kind, ids, m is None)
    ours, loop = REDUCTIONS[reduction]
    keys = leaves[0] if m is None else leaves[1]
    S = similarity(backend="streaming", tile=tile)
    assert torch.equal(S.count("negatives"), counted.sum(1))
    compare(ours(S), loop(leaves[-1] * leaves[0] @ keys.T, counted), leaves, 1e-10 * max(1, scale))


@pytest.mark.parametrize("m", [9, 12])
@pytest.mark.parametrize("options", [{}, {"backend": "dense"}, {"backend": "streaming", "tile": 4}])
@pytest.mark.parametrize("scale", [1.5, 300.0], ids=["the same tiles", "two passes"])
@pytest.mark.parametrize("cached", [0, 40, 10**6])
def test_both_directions_have_the_limits_of_the_pairs(m, options, scale, cached):
    """Row i counts g_ij below the limit of pair i, column i counts g_ji below the same limit."""
    similarity, leaves, guide, _ = problem(9, m, "instances", seed=5, scale=scale)
    scores, g = leaves[2] * leaves[0] @ leaves[1].T, guide.queries_NE @ guide.keys.T
    apart = torch.arange(9)[:, None] % 3 != torch.arange(m) % 3
    rows = lse(scores, apart & (g < guide.limit_N[:, None]))
    columns = lse(scores.T[:9], apart.T[:9] & (g.T[:9] < guide.limit_N[:9, None]))
    positive = scores.diagonal()
    truth = (softplus(rows - positive, threshold=50) + softplus(columns - positive, threshold=50)) / 2
    with policy.override(cached=cached * 8 // 3, least_cached=0):
        compare(similarity(**options).contrast(positive, both=True), truth, leaves, 1e-10 * max(1, scale))


def test_both_directions_share_the_tiles_unless_they_need_maxima(monkeypatch):
    passes = []
    monkeypatch.setattr(streaming, "_rows", lambda *given, ours=streaming._rows: passes.append(1) or ours(*given))
    for scale, expected in ((1.5, 1), (300.0, 2)):
        passes.clear()
        similarity, leaves, *_ = problem(9, 12, "instances", seed=5, scale=scale)
        similarity(backend="streaming").contrast(leaves[0].sum(1), both=True)
        assert len(passes) == expected


def test_counts_take_several_strips():
    similarity, _, guide, ids = problem(11, 17, "ids", seed=3)
    with policy.override(strip=40):
        assert torch.equal(similarity().count("negatives"), negatives(guide, "ids", ids, False).sum(1))


def test_only_negatives_are_guided():
    similarity, *_ = problem(7, None, "ids", seed=1)
    guided, plain = similarity(), Similarity(normal(7, 3, seed=1), scale=1.5, query_ids=similarity().query_ids)
    for over in ("all", "others", "positives"):
        torch.testing.assert_close(guided.lse(over).detach(), plain.lse(over))
        assert torch.equal(guided.count(over), plain.count(over))


def test_pairs_at_the_limit_are_left_out_whatever_the_rounding():
    """A copy of the positive has the similarity of the positive, which a tile's product rounds differently."""
    a = torch.nn.functional.normalize(torch.randn(64, 300, generator=torch.Generator().manual_seed(0)), dim=1)
    b = torch.nn.functional.normalize(torch.randn(64, 300, generator=torch.Generator().manual_seed(1)), dim=1)
    guide = Guide(a, torch.cat([b, b]), (a * b).sum(1))
    for tile in (5, 48, 64):
        S = Similarity(a, torch.cat([b, b]), guide=guide, backend="streaming", tile=tile)
        hidden = S.pairs("negatives").hidden(slice(0, 64), slice(0, 128))
        assert hidden.diagonal().all() and hidden.diagonal(64).all()


def test_a_guide_has_no_gradient_and_takes_no_more_memory():
    _, leaves, guide, _ = problem(9, 12, "guide alone", seed=2)
    learning = Guide(*(part.clone().requires_grad_() for part in (guide.queries_NE, guide.keys_ME, guide.limit_N)))
    for options in ({}, {"backend": "dense"}, {"backend": "streaming"}):
        S = Similarity(leaves[0], leaves[1], guide=learning, **options)
        S.lse("negatives").sum().backward()
    assert learning.queries_NE.grad is None and learning.limit_N.grad is None


def test_values_and_gradients_in_fp32_and_half_precision():
    n = 1500
    parts = [torch.nn.functional.normalize(normal(n, 24, seed=seed), dim=1) for seed in (0, 1)]
    a, b = (normal(n, 16, seed=seed).round().float() for seed in (2, 3))  # whole numbers: no pair is near a limit
    guide = Guide(a, b, (a * b).sum(1) - 0.5)
    counted = (a.double() @ b.double().T < guide.limit_N.double()[:, None]) & ~torch.eye(n, dtype=torch.bool)
    counted_back = (b.double() @ a.double().T < guide.limit_N.double()[:, None]) & ~torch.eye(n, dtype=torch.bool)
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 2e-2)):
        ours = [part.to(dtype).requires_grad_() for part in parts]
        exact = [part.detach().double().requires_grad_() for part in ours]
        S = Similarity(*ours, scale=8.0, instances=n, guide=guide, half=dtype, unit=True, backend="streaming")
        value = S.contrast(S.positives()).mean()
        scores = 8 * exact[0] @ exact[1].T
        truth = softplus(lse(scores, counted) - scores.diagonal()).mean()
        back = softplus(lse(scores.T, counted_back) - scores.diagonal()).mean()
        both = S.contrast(S.positives(), both=True).mean()
        for one, its_truth in ((value, truth), (both, (truth + back) / 2)):
            torch.testing.assert_close(one.double(), its_truth, rtol=tolerance, atol=0)
            true = torch.autograd.grad(its_truth, exact, retain_graph=True)
            for mine, its in zip(torch.autograd.grad(one, ours, retain_graph=True), true, strict=True):
                assert (mine.double() - its).abs().max() < tolerance * its.abs().max()


STEP = """
from coulomb.losses import DistillationLoss, InfoNCELoss
def step(n):
    query, key, noise, guide = (torch.randn(n, 64, generator=torch.Generator().manual_seed(s)) for s in range(4))
    query.requires_grad_()
    InfoNCELoss(0.1, symmetric=True)(query, key, guide=(guide, guide + noise)).backward()
    DistillationLoss(0.2, 0.1)(query, guide, key, noise).backward()
"""


@pytest.mark.slow
def test_memory_is_linear_in_the_batch():
    # Each of the four matrices has 256 MiB.
    assert 8 < peak_mib(STEP, 1100, 8192) < 120


def test_tiles_replace_attention_and_symmetry():
    similarity, *_ = problem(40, None, "guide alone", seed=0)
    with use_backend("attention") as chosen:
        similarity().lse("negatives")
    assert [*chosen.engines] == ["tiles: a guide, whose similarities are computed by tiles"]
    assert not plan.decide(similarity(backend="streaming")._problem("negatives")).triangular


@pytest.mark.parametrize("backend", ["stored", "streaming"])
def test_gradients_in_compiled_graphs_have_the_announced_layout(backend):
    similarity, *_ = problem(6, 4, "ids", seed=0)
    problem_ = similarity(backend="streaming")._problem("negatives", backend=backend)
    flat = autograd._flattened(problem_)
    results = torch.ops.coulomb.reduce(*flat, [True] * 4)
    arguments = (*flat, *results, torch.ones_like(results[0]), torch.ones_like(results[1]), [True, True, True, False])
    torch.library.opcheck(torch.ops.coulomb.reduce_backward.default, arguments, test_utils="test_faketensor")


def test_errors_name_the_argument():
    x, y, limit = torch.eye(3), torch.ones(2, 3), torch.zeros(3)
    for guide, error, message in [
        ((x, y, limit), TypeError, "guide must be a coulomb.similarity.Guide, got tuple"),
        (Guide(x[:2], y, limit), ValueError, "guide.queries_NE must have 3 rows, got 2"),
        (Guide(x, None, limit), ValueError, "guide.keys_ME must have 2 rows, got 3"),
        (Guide(x, y[:, :2], limit), ValueError, "guide.keys_ME has 2 dimensions, guide.queries_NE has 3"),
        (Guide(x, y.long(), limit), TypeError, "guide.keys_ME must be floating"),
        (Guide(x, y, limit[:2]), ValueError, r"guide.limit_N must have shape \[3\], got \(2,\)"),
        (Guide(x, y.to("meta"), limit), ValueError, "guide.keys_ME is on meta"),
    ]:
        with pytest.raises(error, match=message):
            Similarity(x, y, guide=guide)
    S = Similarity(x, x, guide=Guide(x, x, limit))
    with pytest.raises(ValueError, match="guide has no meaning for the transpose"):
        _ = S.T
    with pytest.raises(ValueError, match="lse_both has no guide"):
        S.lse_both("negatives")
    with pytest.raises(ValueError, match="needs keys_MD"):
        _ = Similarity(x, guide=Guide(x, None, limit)).back
