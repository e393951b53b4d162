"""Reductions as attention passes equal those of the tiles; when they are chosen, how they are checked, what they cannot do."""

import logging
import shutil
import types
import warnings
from collections import Counter

import pytest
import torch
from torch.nn.functional import normalize

import coulomb
from coulomb.ground import machine
from coulomb.ground.checked import readable
from coulomb.ground.errors import CoulombWarning
from coulomb.losses import HardNegativeLoss, InfoNCELoss, NTXentLoss
from coulomb.similarity import Similarity, attention, plan, policy, products, streaming, use_backend
from coulomb.similarity.engine import Gradients, Plan, Reduced
from coulomb.similarity.pairs import Pairs
from coulomb.similarity.tiles import Problem, diagonal
from torch_versions import ROUNDED_PRODUCTS, needs_attention


def drawn(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def rows(n, dim=5, seed=0, dtype=torch.float64):
    return normalize(drawn(n, dim, seed=seed)).to(dtype).requires_grad_()


IDS, OTHER_IDS = torch.tensor([0, 1, 2, 0, 1, -1, 3, 3, -1]), torch.tensor([1, 1, 0, -1, 2, 3, 3, 0, 4, 9, -1])


TWO_IDS, OTHER_TWO_IDS = (torch.stack([ids, (3 * ids + 1) % 5], 1) for ids in (IDS, OTHER_IDS))


def some_weights(n, m):
    weights = drawn(n, m, seed=5).clamp_min(0)
    weights[2] = 0  # a row without pairs
    return weights


def of_itself(**options):
    return lambda: Similarity(rows(9), scale=scale(), **options)


def of_keys(**options):
    return lambda: Similarity(rows(9), rows(11, seed=1), scale=scale(), **options)


def scale():
    return torch.tensor(6.0, dtype=torch.float64, requires_grad=True)


def bias(m):
    return drawn(m, seed=7).requires_grad_()


REDUCTIONS = {
    "symmetric": (of_itself(), lambda S: S.lse("others")),
    "symmetric, all": (of_itself(), lambda S: S.lse("all")),
    "symmetric, instances": (of_itself(instances=3), lambda S: S.lse("negatives")),
    "symmetric, positive instances": (of_itself(instances=3), lambda S: S.lse("positives")),
    "symmetric, ids": (of_itself(query_ids=IDS), lambda S: S.lse("positives")),
    "symmetric, two powers": (of_itself(), lambda S: S.lses([0.5, 1.5], "others")),
    "symmetric, bias": (lambda: Similarity(rows(9), scale=scale(), column_bias=bias(9)), lambda S: S.lse("others")),
    "symmetric, weights": (of_itself(), lambda S: S.lse(some_weights(9, 9))),
    "symmetric, softplus": (of_itself(query_ids=IDS), lambda S: S.softplus("negatives", sign=-1, bias=-2.0)),
    "one direction": (of_keys(), lambda S: S.lse("all")),
    "ids": (of_keys(query_ids=IDS, key_ids=OTHER_IDS), lambda S: S.lse("negatives")),
    "two ids": (of_keys(query_ids=TWO_IDS, key_ids=OTHER_TWO_IDS), lambda S: S.lse("positives")),
    "symmetric, two ids": (of_itself(query_ids=TWO_IDS), lambda S: S.lse("negatives")),
    "queries lead keys": (of_keys(queries_lead_keys=True), lambda S: S.lse("others")),
    "two powers": (of_keys(), lambda S: S.lses([1.0, 2.0], "all")),
    "boolean mask": (of_keys(), lambda S: S.lse(some_weights(9, 11) > 0)),
    "weights": (of_keys(), lambda S: S.lse(some_weights(9, 11))),
    "bias": (lambda: Similarity(rows(9), rows(11, seed=1), column_bias=bias(11)), lambda S: S.lse("all")),
    "both directions": (of_keys(query_ids=IDS, key_ids=OTHER_IDS), lambda S: torch.cat(S.lse_both("negatives"))),
    "contrast": (of_keys(), lambda S: S.contrast(S.positives(), "all")),
    "softplus": (of_keys(), lambda S: S.softplus(some_weights(9, 11))),
    "sum": (of_keys(), lambda S: S.sum(some_weights(9, 11))),
    "sum, bias": (
        lambda: Similarity(rows(9), rows(11, seed=1), column_bias=bias(11)),
        lambda S: S.sum(some_weights(9, 11)),
    ),
}


def with_gradients(make, reduce, signs):
    S = make()
    value = reduce(S)
    leaves = [x for x in (S.queries_ND, S.keys_MD, S.scale, S.column_bias) if isinstance(x, torch.Tensor)]
    leaves = [x for i, x in enumerate(leaves) if all(x is not before for before in leaves[:i])]
    value = value.masked_fill(value == -torch.inf, 0)
    weights = drawn(*value.shape, seed=3)
    weights = {"positive": weights.abs(), "negative": -weights.abs(), "mixed": weights, "zero": 0 * weights}[signs]
    return value, *torch.autograd.grad((value * weights).sum(), [x for x in leaves if x.requires_grad])


@needs_attention
@pytest.mark.parametrize("signs", ["positive", "negative", "mixed", "zero"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_values_and_gradients_equal_those_of_the_dense_backend(name, signs):
    with use_backend("attention") as ours:
        actual = with_gradients(*REDUCTIONS[name], signs)
    assert set(ours.engines) == {"attention"}
    with use_backend("dense"):
        expected = with_gradients(*REDUCTIONS[name], signs)
    for mine, true in zip(actual, expected, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-11, atol=1e-11)


@needs_attention
@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (4, 0)])
def test_degenerate_shapes(shape):
    queries, keys = drawn(shape[0], 3).requires_grad_(), drawn(shape[1], 3, seed=1).requires_grad_()
    results = []
    for backend in ("attention", "streaming"):
        value = Similarity(queries, keys, backend=backend).lse()
        grads = torch.autograd.grad(value.masked_fill(value == -torch.inf, 0).sum(), [queries, keys])
        results.append((value.detach(), *grads))
    for mine, true in zip(*results, strict=True):
        torch.testing.assert_close(mine, true)


@needs_attention
def test_frozen_keys_and_frozen_queries():
    for frozen in (0, 1):
        grads = []
        for backend in ("attention", "dense"):
            sides = [rows(9), rows(11, seed=1)]
            sides[frozen] = sides[frozen].detach()
            value = Similarity(*sides, scale=9.0, backend=backend).lse().sum()
            grads.append(torch.autograd.grad(value, sides[1 - frozen])[0])
        torch.testing.assert_close(*grads, rtol=1e-11, atol=1e-11)


@needs_attention
def test_large_scales_do_not_overflow():
    grads = []
    for backend in ("attention", "dense"):
        queries = rows(9)
        value = Similarity(queries, scale=2000.0, backend=backend).lse("others")
        assert torch.isfinite(value).all()
        grads.append((value.detach(), torch.autograd.grad(value.sum(), queries)[0]))
    for mine, true in zip(*grads, strict=True):
        torch.testing.assert_close(mine, true, rtol=1e-10, atol=1e-9)


@needs_attention
def test_fp32_is_as_close_to_fp64_as_the_tiles():
    errors = {}
    truth = None
    for backend, dtype in (("dense", torch.float64), ("attention", torch.float32), ("streaming", torch.float32)):
        queries = rows(200, 64, dtype=torch.float32).detach().to(dtype).requires_grad_()
        value = Similarity(queries, scale=10.0, backend=backend).lse("others").mean()
        result = value.detach().double(), torch.autograd.grad(value, queries)[0].double()
        truth = truth or result
        errors[backend] = [float((mine - true).abs().max()) for mine, true in zip(result, truth, strict=True)]
    for mine, tiles in zip(errors["attention"], errors["streaming"], strict=True):
        assert mine <= 2 * tiles + 1e-7


@needs_attention
def test_it_has_no_second_derivative():
    queries = rows(9)
    value = Similarity(queries, backend="attention").lse("others").sum()
    with pytest.raises(RuntimeError, match="backend='dense'"):
        torch.autograd.grad(value, queries, create_graph=True)


def test_one_kind_of_reduction_is_left_to_the_tiles_counted_and_logged_once(caplog):
    with use_backend("attention") as ours, caplog.at_level(logging.INFO, logger="coulomb"):
        for _ in range(2):
            Similarity(rows(9)).lse("others", top_k=3)
    ((name, count),) = ours.engines.items()
    assert name == "tiles: a threshold (top_k), which equal similarities must meet again" and count == 2
    assert [record.getMessage() for record in caplog.records] == [
        f"attention is not used: {name.removeprefix('tiles: ')}"
    ]


# The choice.


def test_use_backend_sets_and_restores():
    assert coulomb.use_backend is use_backend
    before = policy.current()
    with use_backend("dense"):
        assert policy.current().backend == "dense"
        with use_backend("attention"):
            assert policy.current().backend == "attention"
        assert policy.current().backend == "dense"
    assert policy.current() is before
    setting = use_backend("attention")  # a statement, as torch.set_grad_enabled
    try:
        assert policy.current().backend == "attention"
    finally:
        setting.__exit__()
    assert policy.current() is before
    with pytest.raises(ValueError, match="backend must be .*'attention', got 'atention'"):
        use_backend("atention")
    assert policy.current() is before


CHOICES = {
    "auto": ({"backend": "streaming"}, "tiles", ""),
    "by name": ({}, "attention", ""),
    "fp32 by name": ({"half": None}, "attention", ""),
    "giant similarities": ({"exponent": 1e6}, "tiles", "similarities so large"),
    "a threshold": ({"at_least_N": torch.zeros(9)}, "tiles", "a threshold"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_attention_is_chosen_by_name_only(name):
    changes, engine, why = CHOICES[name]
    options = {"half": torch.bfloat16, "exponent": 20.0, "backend": "attention"} | changes
    problem = Problem(rows(9, dtype=torch.float32), None, 10.0, None, Similarity(rows(9)).pairs("others"), **options)
    decided = plan.decide(problem)
    assert decided.engine == engine and decided.why.startswith(why) and not decided.fused


class OnGpu(torch.Tensor):
    is_cuda = True


@pytest.mark.parametrize(
    ("agrees", "engine", "why"), [(True, "attention", ""), (False, "tiles", "the self-check failed")]
)
def test_on_a_gpu_attention_must_pass_the_self_check(agrees, engine, why, monkeypatch):
    monkeypatch.setattr(attention, "agrees", lambda problem: agrees)
    queries = rows(9, dtype=torch.float32).detach().as_subclass(OnGpu)
    pairs, options = Similarity(rows(9)).pairs("others"), {"exponent": 20.0, "backend": "attention"}
    decided = plan.decide(Problem(queries, None, 10.0, None, pairs, **options))
    assert (decided.engine, decided.why) == (engine, why)


def test_a_large_problem_takes_attention_only_where_it_is_the_backend():
    similarity = Similarity(rows(2000, dtype=torch.bfloat16), half=torch.bfloat16)
    assert plan.decide(similarity._problem("others")).engine == "tiles"
    with use_backend("attention") as ours:
        assert plan.decide(similarity._problem("others")).engine == "attention"
    assert ours.engines == {"attention": 1}


FAMILIES = {
    "symmetric": (lambda: Similarity(rows(9), instances=3), "negatives", {}),
    "symmetric, two powers": (lambda: Similarity(rows(9)), "others", {"powers": (1.0, 2.0)}),
    "both": (of_keys(query_ids=IDS, key_ids=OTHER_IDS), "negatives", {"both": True}),
    "bias": (lambda: Similarity(rows(9), rows(9, seed=1), column_bias=bias(9)), "all", {}),
    "mask": (of_keys(), some_weights(9, 11) > 0, {}),
    "softplus": (of_keys(), some_weights(9, 11), {"reduction": "softplus"}),
}


def family(name, half):
    make, over, options = FAMILIES[name]
    problem = make()._problem(over, **options)
    operands = [x if x is None else x.float() for x in (problem.queries_ND, problem.keys_MD)]
    problem = problem.with_operands(*operands, 10.0, None if problem.bias_M is None else problem.bias_M.float())
    problem.half = half
    return problem


@needs_attention
@pytest.mark.parametrize("half", [None, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", FAMILIES)
def test_the_self_check_passes_and_finds_every_wrong_result(name, half):
    problem = family(name, half)
    if ROUNDED_PRODUCTS and half is torch.bfloat16 and name != "softplus":
        assert attention.disagreement(problem).startswith("rows differ by")
        return
    assert attention.disagreement(problem) is None

    def wrong_values(*given, **options):
        reduced = attention.forward(*given, **options)
        reduced.rows_PN[0, -1] *= 1.01
        return reduced

    def wrong_gradients(*given):
        return Gradients(*(None if grad is None else grad * 1.1 for grad in attention.backward(*given)))

    def nothing(*given, **options):
        raise RuntimeError("no kernel for this GPU\nand a long explanation")

    assert attention.disagreement(problem, forward=wrong_values).startswith("rows differ by")
    assert "gradients of queries_ND differ" in attention.disagreement(problem, backward=wrong_gradients)
    assert attention.disagreement(problem, forward=nothing) == "RuntimeError: no kernel for this GPU"


@needs_attention
def test_a_family_is_checked_once_and_logged(caplog):
    problem = family("symmetric", torch.float16)
    problem.queries_ND = drawn(9, 11, dtype=torch.float32)  # a width of this test only
    with caplog.at_level(logging.INFO, logger="coulomb"):
        assert attention.agrees(problem) and attention.agrees(problem)
    assert len(caplog.records) == 1 and "self-check against the tiles passed" in caplog.text


def test_a_family_that_fails_warns_once_and_takes_the_tiles():
    problem = family("symmetric", torch.bfloat16)
    problem.queries_ND = drawn(9, 13, dtype=torch.float32)
    problem.reduction = "unknown"  # stands for a kernel that cannot be compiled
    with pytest.warns(CoulombWarning, match=r"^attention: .*; the tiles are used instead for"):
        assert not attention.agrees(problem)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not attention.agrees(problem)


@needs_attention
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "over"), [("lse", "negatives"), ("softplus", "all"), ("sigmoid", "positives")])
def test_scores_compile_to_one_kernel(kind, over):
    if shutil.which("g++") is None:
        pytest.skip("no C++ compiler")
    from torch.nn.attention.flex_attention import flex_attention

    known = {"instances": 20} if over == "positives" else {"query_ids": torch.arange(40) % 7}
    S = Similarity(rows(40, 16, dtype=torch.float32).detach(), scale=5.0, **known)
    problem = S._problem(over)
    zeros = torch.zeros(40)
    weights = attention.Weights(1, (zeros + 1, zeros - 1), (zeros + 2, zeros - 2))
    expected = attention.attention_pass(problem, problem.keys, 1.0, kind, weights)[1]
    operand = problem.queries_ND[None, None]
    score = attention._score(problem, 1.0, kind, weights, False)
    torch._dynamo.reset()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own deprecations
        compiled = torch.compile(flex_attention, dynamic=True, fullgraph=True)
        actual = compiled(operand, operand, operand, score_mod=score, scale=1.0)[0, 0]
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@needs_attention
@pytest.mark.slow
def test_the_compiled_kernel_in_fp32_where_inductor_offers_it():
    problem = Similarity(rows(40, 16, dtype=torch.float32).detach(), scale=5.0)._problem("others")
    expected = streaming.forward(problem, Plan("tiles")).rows_PN[0]
    operand = problem.queries_ND[None, None]
    kernel = attention._compiled(("test", 16))
    score = attention._score(problem, 1.0, "lse", None, False)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        try:
            request = attention._flex().AuxRequest(lse=True)
            aux = kernel(operand, operand, operand, score_mod=score, scale=1.0, return_aux=request)[1]
        except Exception as error:  # of Inductor
            if "return_lse" in str(error) or shutil.which("g++") is None:
                pytest.skip("Inductor's kernel for CPUs does not return the lse")
            raise
    torch.testing.assert_close(aux.lse[0, 0], expected, rtol=1e-5, atol=1e-5)


# What a GPU needs of the tiles.


class Reads(torch.utils._python_dispatch.TorchDispatchMode):
    """Counts values that are read on the host."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.count[function.overloadpacket.__name__] += 1
        return function(*args, **(kwargs or {}))


LOSSES = {
    "NT-Xent": lambda a, b: NTXentLoss(0.2)(a, b),
    "InfoNCE": lambda a, b: InfoNCELoss(0.2)(a, b),
    "InfoNCE both": lambda a, b: InfoNCELoss(0.2, symmetric=True)(a, b),
    "hard negatives": lambda a, b: HardNegativeLoss(0.2)(a, b),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_number_of_values_read_on_the_host_does_not_depend_on_the_number_of_tiles(name):
    counts = []
    for tile in (4, 64):
        views = [rows(32, 8, seed=seed, dtype=torch.float32) for seed in (0, 1)]
        with policy.override(stored=0, tile=tile, cached=0), Reads() as reads:
            torch.autograd.grad(LOSSES[name](*views), views)
        counts.append(reads.count["_local_scalar_dense"])
    assert counts[0] == counts[1] <= 12


def test_tiles_on_a_gpu_are_not_skipped_by_reading_ids():
    ids = torch.tensor([0, 0, 1, 1])
    for device, expected in (("cpu", False), ("cuda", True)):
        pairs = Pairs((4, 4), torch.device(device), same=True, query_ids=ids, key_ids=ids)
        assert pairs.touches(slice(0, 2), slice(2, 4)) is expected


class Capturing(torch.Tensor):
    """A tensor on a GPU while a CUDA graph is captured, as far as `capturing` can tell."""

    is_cuda = True


def test_nothing_is_read_while_a_cuda_graph_is_captured(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    queries = drawn(6, 3).as_subclass(Capturing)
    assert not readable(queries)
    problem = Problem(queries, None, 10.0, None, Similarity(drawn(6, 3)).pairs("others"))
    assert problem.largest_exponent == torch.inf and not problem.bounded
    assert Problem(queries, None, 10.0, None, problem.pairs, unit=True).largest_exponent < 15
    with Reads() as reads:
        assert not attention.agrees(problem)  # not checked before, and cannot be now
        upstream = torch.ones(1, 6).as_subclass(Capturing)
        weights = list(attention._weights(problem, Reduced(upstream), upstream[0], None, 0))
    assert [one.sign for one in weights] == [1, -1] and reads.count["_local_scalar_dense"] == 0


@pytest.mark.parametrize(
    ("free", "rows_of_a_tile"), [(0, 1024), (2**30, 2048), (8 * 2**30, 4096), (2**36, 8192), (2**40, 8192)]
)
def test_tiles_on_a_gpu_grow_with_the_free_memory(free, rows_of_a_tile):
    assert machine.gpu_tile(free) == rows_of_a_tile
    assert rows_of_a_tile == 1024 or 4 * rows_of_a_tile**2 <= free / 64


def test_tiles_on_a_cpu_do_not_depend_on_memory():
    assert policy.tile_for(128) == policy.tile_for(128, torch.device("cpu")) == 768
    if not torch.cuda.is_available():
        assert policy.tile_for(128, torch.device("cuda")) == 1024


def test_a_large_tile_makes_large_strips_and_few_blocks_on_the_diagonal():
    assert policy.strip_height(65536, 8192, 8192) == 1024
    assert policy.strip_height(65536, 768, 768) == 128
    assert len(list(diagonal(slice(0, 8192), 8192))) == 1 + 2
    assert len(list(diagonal(slice(0, 768), 768))) == 1 + 2


def test_tf32_is_off_in_the_engine_unless_the_policy_allows_it():
    matmul = torch.backends.cuda.matmul
    new = hasattr(matmul, "fp32_precision")  # since torch 2.9
    name, fast, exact = ("fp32_precision", "tf32", "ieee") if new else ("allow_tf32", True, False)
    before = getattr(matmul, name)
    like = types.SimpleNamespace(device=torch.device("cuda"))
    setattr(matmul, name, fast)  # the user's choice for the encoder
    try:
        with products.full_precision(like):
            assert getattr(matmul, name) == exact and not torch.is_autocast_enabled("cuda")
        assert getattr(matmul, name) == fast
        with policy.override(tf32=True), products.full_precision(like):
            assert getattr(matmul, name) == fast
        with pytest.raises(KeyError), products.full_precision(like):
            raise KeyError
        assert getattr(matmul, name) == fast
    finally:
        setattr(matmul, name, before)
