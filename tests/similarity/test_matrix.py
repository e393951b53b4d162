"""The interface of `Similarity`: arguments, transposes, precisions, and the choice of a backend."""

import pytest
import torch

from coulomb.similarity import Similarity, autograd, plan, policy, products, use_backend

X = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_only_small_problems_store_the_matrix():
    def engine(**options):
        return plan.decide(Similarity(X, **options)._problem("all")).engine

    assert engine() == "stored"
    assert engine(backend="streaming") == "tiles"
    assert engine(backend="dense") == "dense"
    with policy.override(stored=35):
        assert engine() == "tiles"
    with use_backend("dense"):
        assert engine() == "dense"
    with use_backend("streaming"):
        assert engine() == "tiles"


def test_transpose_swaps_queries_and_keys():
    S = Similarity(X, Y, scale=2.0, query_ids=torch.arange(6) % 3, key_ids=torch.arange(4) % 3)
    torch.testing.assert_close(S.T.lse(), (2 * Y @ X.T).logsumexp(1))
    assert S.T.count("positives").tolist() == [2, 2, 2, 2]
    symmetric = Similarity(X)
    assert symmetric.T is symmetric
    with pytest.raises(ValueError, match="column_bias has no meaning for the transpose"):
        _ = Similarity(X, Y, column_bias=torch.zeros(4)).T


def test_positives_are_computed_directly():
    S = Similarity(X, X.flip(0), scale=3.0, column_bias=torch.arange(6.0))
    whole = 3 * X @ X.flip(0).T + torch.arange(6.0)
    torch.testing.assert_close(S.positives(), whole.diagonal())
    columns = torch.tensor([[1, 2], [0, 5], [3, 3], [4, 0], [1, 1], [2, 0]])
    torch.testing.assert_close(S.positives(columns), whole.gather(1, columns))
    with pytest.raises(ValueError, match="needs a key for every query"):
        Similarity(X, Y).positives()


def test_anchors_at_the_start_of_the_keys_exclude_themselves():
    truth = (X @ X.T).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf).logsumexp(1)
    for backend in ("dense", "streaming"):
        S = Similarity(X[:4], X, queries_lead_keys=True, backend=backend, tile=3)
        torch.testing.assert_close(S.lse("others"), truth[:4])
        torch.testing.assert_close(S.sum("others"), (X @ X.T).sum(1)[:4] - (X * X).sum(1)[:4])


@pytest.mark.parametrize("backend", ["dense", "streaming"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_fp32(backend, dtype):
    x = X.to(dtype).requires_grad_()
    value = Similarity(x, backend=backend).lse("others")
    truth = Similarity(x.detach().double()).lse("others")
    assert value.dtype == torch.float32
    torch.testing.assert_close(value.double(), truth, rtol=0, atol=1e-5)
    (gradient,) = torch.autograd.grad(value.sum(), x)
    assert gradient.dtype == dtype


def test_a_stored_matrix_is_in_full_precision(monkeypatch):
    monkeypatch.setattr(products.machine, "FAST_BFLOAT16", True)
    x = X.float()
    with policy.override(half_rows=1):
        assert torch.equal(Similarity(x, half=torch.bfloat16).lse("others"), Similarity(x).lse("others"))


def test_errors_name_the_argument():
    long = torch.arange(6)
    for arguments, options, error, message in [
        ((X[0],), {}, ValueError, "queries_ND must be a matrix"),
        ((long[:, None],), {}, TypeError, "queries_ND must be floating"),
        ((X, Y[:, :2]), {}, ValueError, "keys_MD has 2 dimensions"),
        ((X, Y.to("meta")), {}, ValueError, "keys_MD is on meta"),
        ((X,), {"key_ids": long}, ValueError, "key_ids was given without keys_MD"),
        ((X,), {"query_ids": long[:3]}, ValueError, r"query_ids must have shape \[6\]"),
        ((X,), {"query_ids": X[:, 0]}, TypeError, "query_ids must be integers"),
        ((X,), {"query_ids": long - 2}, ValueError, "query_ids must be ids from 0"),
        ((X, Y), {"column_bias": torch.zeros(6)}, ValueError, r"column_bias must have shape \[4\]"),
        ((X,), {"scale": torch.ones(1)}, ValueError, "scale must be a number"),
        ((X,), {"backend": "cuda"}, ValueError, "backend must be"),
        ((X,), {"tile": 0}, ValueError, "tile must be"),
        ((X, Y), {"queries_lead_keys": True}, ValueError, "queries_lead_keys needs"),
    ]:
        with pytest.raises(error, match=message):
            Similarity(*arguments, **options)
    S = Similarity(X, Y)
    for fold, message in [
        (lambda: S.lse("everyone"), "over must be one of"),
        (lambda: S.lse("others"), "needs keys that are the queries"),
        (lambda: S.lse("negatives"), "needs instances, or query_ids"),
        (lambda: S.lse(torch.ones(4, 6)), r"the mask must have shape \[6, 4\]"),
        (lambda: S.lse(-torch.ones(6, 4)), "finite and not negative"),
        (lambda: S.topk(5), "k must be between 1 and"),
    ]:
        with pytest.raises(ValueError, match=message):
            fold()


def test_gradient_of_the_scale_is_the_softmax_mean_of_the_cosines():
    scale = torch.tensor(0.9, dtype=torch.float64, requires_grad=True)
    for backend in ("dense", "streaming"):
        (gradient,) = torch.autograd.grad(Similarity(X, Y, scale=scale, backend=backend).lse().sum(), scale)
        probabilities = (0.9 * X @ Y.T).softmax(1)
        torch.testing.assert_close(gradient, (probabilities * (X @ Y.T)).sum())


@pytest.mark.parametrize("backend", ["dense", "auto", "streaming"])
@pytest.mark.parametrize("k", [1, 2, 5])
def test_top_k_reduces_only_the_k_largest(backend, k):
    x = X.double().requires_grad_()
    S = Similarity(x, scale=3.0, backend=backend, tile=2)
    scores = (3 * x @ x.T).masked_fill(torch.eye(6, dtype=torch.bool), -torch.inf)
    largest = scores.topk(k, 1).values
    torch.testing.assert_close(S.lse("others", top_k=k), largest.logsumexp(1))
    torch.testing.assert_close(S.sum("others", top_k=k), largest.sum(1))
    (grad,) = torch.autograd.grad(S.lse("others", top_k=k).sum(), x)
    (truth,) = torch.autograd.grad(largest.logsumexp(1).sum(), x)
    torch.testing.assert_close(grad, truth)
    with pytest.raises(ValueError, match="k must be between 1 and the number of keys 6, got 7"):
        S.lse("others", top_k=7)


@pytest.mark.parametrize("backend", ["dense", "auto", "streaming"])
def test_ties_with_the_k_th_largest_count(backend):
    x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.6, 0.8], [0.6, -0.8]])
    S = Similarity(x[:1], x[1:], backend=backend)
    torch.testing.assert_close(S.sum(top_k=1), torch.tensor([1.8]))


def test_few_and_many_pairs_of_equal_ids_give_the_same_counts_and_sums():
    ids = torch.tensor([0, 1, 0, -1, 1, -1])
    for S in (Similarity(X, query_ids=ids), Similarity(X, Y, query_ids=ids, key_ids=torch.tensor([1, 0, -1, 1]))):
        few = S.count("positives"), S.sum("positives")
        with policy.override(compared=0):
            torch.testing.assert_close(few, (S.count("positives"), S.sum("positives")))


@pytest.mark.parametrize("threads", [1, 2])
def test_results_are_bitwise_reproducible(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = torch.nn.functional.normalize(torch.randn(700, 64, generator=torch.Generator().manual_seed(0)), dim=1)
        x.requires_grad_()
        runs = []
        for _ in range(3):
            lse = Similarity(x, scale=10.0, instances=350, backend="streaming", tile=128).lse("negatives")
            runs.append((lse.detach(), *torch.autograd.grad(lse.sum(), x)))
        assert all(torch.equal(a, b) for again in runs[1:] for a, b in zip(runs[0], again, strict=True))
        truth = (10 * x @ x.T).masked_fill(torch.eye(350, dtype=torch.bool).repeat(2, 2), -torch.inf).logsumexp(1)
        torch.testing.assert_close(runs[0][0], truth.detach())
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("backend", ["stored", "streaming"])
@pytest.mark.parametrize("both", [False, True])
def test_gradients_in_compiled_graphs_have_the_announced_layout(backend, both):
    """Inductor asserts the strides that the operator's fake kernel announces."""
    ids = torch.arange(12).view(6, 2) % 5
    S = Similarity(X.T.contiguous().T, Y, query_ids=ids, key_ids=ids[:4], backend="streaming")
    problem = S._problem("negatives", both=both, backend=backend)
    flat = autograd._flattened(problem)
    results = torch.ops.coulomb.reduce(*flat, [True] * 4)
    arguments = (*flat, *results, torch.ones_like(results[0]), torch.ones_like(results[1]), [True, True, True, False])
    torch.library.opcheck(torch.ops.coulomb.reduce_backward.default, arguments, test_utils="test_faketensor")
