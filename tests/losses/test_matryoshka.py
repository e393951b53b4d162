"""MatryoshkaLoss: the weighted sum over prefixes for every loss, and the pass over the tiles that prefixes share."""

import inspect
import itertools
import math
import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import (
    ArcFaceLoss,
    InfoNCELoss,
    JointInfoNCELoss,
    LearnableTemperature,
    MatryoshkaLoss,
    NCELoss,
    NTXentLoss,
    PaCoLoss,
    SupConLoss,
)
from coulomb.losses.matryoshka import EMBEDDINGS, TOGETHER, WHOLE
from coulomb.losses.options import Loss
from coulomb.similarity import policy, prefixes, products
from law_rows import all_rows
from law_rows.infonce import (
    circle,
    guide_loop,
    ids_loop,
    infonce_loop,
    positive_ids_loop,
    symmetric_ids_loop,
    symmetric_loop,
)
from law_rows.joint_infonce import joint_loop
from law_rows.matryoshka import views_loop
from law_rows.supcon import labeled_loop

DIMS, WEIGHTS = (2, 5), (0.5, 2.0)


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def learning(*tensors, dtype=torch.float64):
    return [t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t for t in tensors]


def value_and_gradients(function, inputs):
    value = function(*inputs)
    return value, *torch.autograd.grad(value, [t for t in inputs if t.is_floating_point()])


def cut(tensors, dim, width):
    return [t[..., :dim] if t.is_floating_point() and t.shape[-1] == width else t for t in tensors]


def summed(loop, dims, weights):
    """The weighted sum of a double loop over prefixes, the mean over anchors."""

    def of(*inputs):
        width = inputs[0].shape[-1]
        losses = [loop(*cut(inputs, dim, width)).mean() for dim in dims]
        return sum(weight * loss for weight, loss in zip(weights, losses, strict=True))

    return of


@pytest.fixture
def passes(monkeypatch):
    """Counts the passes over tiles that all prefixes share."""
    counted = []
    forward = prefixes.forward
    monkeypatch.setattr(prefixes, "forward", lambda *a: counted.append(1) or forward(*a))
    return counted


# Every loss


def accepted(row):
    loss = row.make(0.3)
    return isinstance(loss, Loss) and not isinstance(loss, WHOLE)


EVERY = {name: row for name, row in all_rows().items() if accepted(row)}
APART = {  # losses of `TOGETHER` that are computed for one prefix after another because of their options or arguments
    *(name for name in EVERY if any(word in name for word in ("mask", "multi-hot", "hardness", "weighted"))),
}


@pytest.mark.parametrize(
    "setting", [{}, {"saved": 0, "stored": 0, "tile": 3, "compared": 0}], ids=["default", "one pass"]
)
@pytest.mark.parametrize("name", EVERY)
def test_is_the_weighted_sum_of_the_losses_of_all_prefixes(name, setting, passes):
    row = EVERY[name]
    generator = torch.Generator().manual_seed(0)
    inputs = row.inputs(8, 5, lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64))
    with policy.override(**setting):
        mine = value_and_gradients(MatryoshkaLoss(row.make(0.3), [5, 2], [2.0, 0.5]), learning(*inputs))
    assert bool(passes) == (bool(setting) and type(row.make(0.3)) in TOGETHER and name not in APART)

    def loop(*given):
        parts = [
            weight * row.mean(row.loop(0.3, *cut(given, dim, 5))) for dim, weight in zip(DIMS, WEIGHTS, strict=True)
        ]
        return sum(parts)

    truth = value_and_gradients(loop, learning(*inputs))
    for one, true in zip(mine, truth, strict=True):
        torch.testing.assert_close(one, true, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_one_prefix_of_all_dimensions_is_the_loss_itself(name):
    row = EVERY[name]
    generator = torch.Generator().manual_seed(0)
    inputs = row.inputs(8, 5, lambda *shape: torch.randn(*shape, generator=generator))
    with policy.override(saved=0, stored=0):
        whole = value_and_gradients(row.make(0.3), learning(*inputs, dtype=torch.float32))
        nested = value_and_gradients(MatryoshkaLoss(row.make(0.3), [5]), learning(*inputs, dtype=torch.float32))
    assert all(torch.equal(one, other) for one, other in zip(whole, nested, strict=True))


# All prefixes in one pass


def three(x, y):
    return torch.stack([x, y, x * y], 1)


def pair_ids(n):
    return torch.tensor([0, 1, 0, 2, -1, 1, 2, -1, 0, 3]).repeat(-(-n // 10))[:n]


CASES = {
    "one direction": (InfoNCELoss, infonce_loop, ()),
    "both directions": (lambda *a, **k: InfoNCELoss(*a, symmetric=True, **k), symmetric_loop, ()),
    "queue": (InfoNCELoss, infonce_loop, ("queue",)),
    "ids": (InfoNCELoss, ids_loop, ("ids",)),
    "two ids, both directions": (
        lambda *a, **k: InfoNCELoss(*a, symmetric=True, **k),
        symmetric_ids_loop,
        ("two ids",),
    ),
    "hard negatives with ids": (
        lambda *a, **k: InfoNCELoss(*a, in_batch=True, **k),
        lambda tau, query, positive, negatives, ids, others: ids_loop(tau, query, positive, ids, negatives, others),
        ("queue", "ids", "negative ids"),
    ),
    "two views": (NTXentLoss, views_loop, ()),
    "three views": (NTXentLoss, lambda tau, x, y: labeled_loop(tau, three(x, y)), ()),
    "ids as positives": (lambda *a, **k: InfoNCELoss(*a, same_id="positive", **k), positive_ids_loop, ("ids",)),
    "guide": (lambda *a, **k: InfoNCELoss(*a, guide_margin=0.1, **k), guide_loop(0.1, False), ("codes",)),
    "labels": (SupConLoss, lambda tau, x, y, ids: labeled_loop(tau, torch.stack([x, y], 1), ids), ("ids",)),
    "all directions with hard negatives": (
        JointInfoNCELoss,
        lambda tau, x, y: joint_loop(tau, x, y, torch.stack([x * y, x + y], 1)),
        (),
    ),
}
# How a loss is called with a case's arguments, where these are not its own
CALLS = {
    "three views": lambda loss, x, y: loss(three(x, y)),
    "guide": lambda loss, x, y, codes: loss(x, y, guide=(circle(codes.double(), 1.0), circle(codes.double(), 1.02))),
    "labels": lambda loss, x, y, ids: loss(torch.stack([x, y], 1), ids),
    "all directions with hard negatives": lambda loss, x, y: loss(x, y, torch.stack([x * y, x + y], 1)),
}
PASSES = dict.fromkeys(CASES, 1) | {"all directions with hard negatives": 5}  # in each forward pass


def arguments(extras, n, d, seed=0):
    """(positional arguments of the loop, the same as named arguments of the loss)"""
    query, positive, queue = normal(n, d, seed=seed), normal(n, d, seed=seed + 1), normal(2 * n + 3, d, seed=seed + 2)
    ids = pair_ids(n)
    known = {
        "queue": ("negatives", queue),
        "ids": ("ids", ids),
        "two ids": ("ids", torch.stack([ids, torch.arange(n) // 2 % 3 + 4], 1)),
        "codes": ("codes", 7 * torch.arange(n) % 23),
        "negative ids": ("negative_ids", pair_ids(2 * n + 3).flip(0)),
    }
    return [query, positive, *(known[extra][1] for extra in extras)], [known[extra][0] for extra in extras]


def called(name, loss, names):
    if name in CALLS:
        return lambda *given: CALLS[name](loss, *given)
    return lambda first, second, *others: loss(first, second, **dict(zip(names, others, strict=True)))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("n", "dims"), [(7, (3, 5, 11)), (13, (1, 8)), (17, (2, 4, 8, 16, 32)), (2, (1, 2))], ids=str)
def test_prefixes_in_one_pass_equal_the_double_loop(name, n, dims, passes):
    make, loop, extras = CASES[name]
    inputs, names = arguments(extras, n, dims[-1] + 3)
    weights = [1.0 + k for k in range(len(dims))]
    truth = value_and_gradients(summed(lambda *a: loop(0.2, *a), dims, weights), learning(*inputs))
    for tile, cached in itertools.product((5, 16, 64), (0, 2**10)):
        with policy.override(saved=0, stored=0, tile=tile, compared=0, cached=cached), warnings.catch_warnings():
            warnings.simplefilter("ignore", CoulombWarning)
            loss = MatryoshkaLoss(make(0.2), dims, weights)
            mine = value_and_gradients(called(name, loss, names), learning(*inputs))
            values = MatryoshkaLoss(make(0.2, reduction="none"), dims, weights)
            each = called(name, values, names)(*inputs)
        for one, true in zip((*mine, each.mean()), (*truth, truth[0].detach()), strict=True):
            torch.testing.assert_close(one, true, rtol=0, atol=1e-10, msg=lambda m, c=(tile, cached): f"{c}: {m}")
    assert len(passes) == 12 * PASSES[name]


@pytest.mark.parametrize("name", CASES)
def test_threads_side_by_side_give_the_same_gradients(name, passes):
    make, _, extras = CASES[name]
    inputs, names = arguments(extras, 150, 12)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            for stored in (0, 2**20):
                with policy.override(saved=0, stored=stored, tile=32):
                    loss = MatryoshkaLoss(make(0.1), (3, 4, 12))
                    results.append(value_and_gradients(called(name, loss, names), learning(*inputs)))
    finally:
        torch.set_num_threads(before)
    assert len(passes) == 2 * PASSES[name]
    for result in results[1:]:
        for one, true in zip(result, results[0], strict=True):
            torch.testing.assert_close(one, true, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["one direction", "both directions", "two views"])
def test_a_learned_temperature_gets_the_sum_of_the_gradients(name, passes):
    make, loop, _ = CASES[name]
    inputs, _ = arguments((), 9, 8)
    temperature = LearnableTemperature(0.3).double()
    with policy.override(saved=0, stored=0, tile=4):
        (mine,) = torch.autograd.grad(MatryoshkaLoss(make(temperature), (2, 8))(*inputs), temperature.log_scale)
    assert passes
    step = 1e-6
    rise = [summed(lambda *a, t=0.3 * math.exp(-s): loop(t, *a), (2, 8), (1, 1))(*inputs) for s in (step, -step)]
    assert float(mine) == pytest.approx(float(rise[0] - rise[1]) / (2 * step), rel=1e-6)


def test_the_scale_of_a_call_gets_the_sum_of_the_gradients(passes):
    inputs, _ = arguments((), 9, 8)
    scale = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    results = []
    for stored in (0, 2**20):
        with policy.override(saved=0, stored=stored, tile=4):
            value = MatryoshkaLoss(InfoNCELoss(symmetric=True), (2, 8))(*inputs, scale=scale)
            results.append((value.detach(), *torch.autograd.grad(value, scale)))
    assert len(passes) == 1
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_one_pass_is_as_accurate_as_a_loss_for_each_prefix(name, dtype, passes):
    make, loop, extras = CASES[name]
    inputs, names = arguments(extras, 40, 48)
    inputs = [t.to(dtype) if t.is_floating_point() else t for t in inputs]
    dims = (4, 9, 48)
    exact = [t.double() if t.is_floating_point() else t for t in inputs]
    truth = value_and_gradients(summed(lambda *a: loop(0.02, *a), dims, (1, 1, 1)), learning(*exact))
    results = []
    for stored in (0, 2**20):
        with policy.override(saved=0, stored=stored, tile=16), warnings.catch_warnings():
            warnings.simplefilter("ignore", CoulombWarning)
            loss = MatryoshkaLoss(make(0.02), dims)
            results.append(value_and_gradients(called(name, loss, names), learning(*inputs, dtype=dtype)))
    assert len(passes) == PASSES[name]
    for together, apart, true in zip(*results, truth, strict=True):
        assert together.dtype == apart.dtype
        errors = [(one.double() - true).abs().max() for one in (together, apart)]
        size = true.abs().max()
        assert errors[0] <= 2 * errors[1] + 4 * torch.finfo(torch.float32).eps * size + 1e-6


@pytest.mark.parametrize("name", ["one direction", "both directions", "two views"])
def test_products_in_half_precision_are_as_accurate_as_those_of_a_loss_for_each_prefix(name, passes, monkeypatch):
    monkeypatch.setattr(products, "gains", lambda *_: True)
    make, _, _ = CASES[name]
    query = normal(60, 48)
    inputs = [t.bfloat16() for t in (query, query + normal(60, 48, seed=1))]
    loss = MatryoshkaLoss(make(0.1), (4, 16, 48))
    truth = value_and_gradients(loss, learning(*inputs))
    results = []
    for saved in (0, 10**6):
        with policy.override(saved=saved, stored=0, half_rows=1, tile=16):
            results.append(value_and_gradients(loss, learning(*inputs, dtype=torch.bfloat16)))
    assert len(passes) == 1
    for together, apart, true in zip(*results, truth, strict=True):
        error, allowed = ((one.double() - true).abs().max() for one in (together, apart))
        assert error <= 2 * allowed + 2**-9 * true.abs().max()
    assert results[0][0] != truth[0].float()  # their operands are rounded


def test_prefixes_of_very_different_lengths_keep_their_precision(passes):
    # The first dimensions are a millionth of the others, and their directions count as much.
    inputs = [normal(12, 10, seed=seed) * torch.tensor([1e-6] * 4 + [1.0] * 6) for seed in (0, 1)]
    truth = value_and_gradients(summed(lambda *a: symmetric_loop(0.2, *a), (4, 10), (1, 1)), learning(*inputs))
    with policy.override(saved=0, stored=0, tile=5):
        loss = MatryoshkaLoss(InfoNCELoss(0.2, symmetric=True), (4, 10))
        mine = value_and_gradients(loss, learning(*inputs, dtype=torch.float32))
    assert passes
    for one, true in zip(mine, truth, strict=True):
        for part in (slice(0, 4), slice(4, 10)):
            one_part, true_part = (one, true) if one.ndim == 0 else (one[:, part], true[:, part])
            assert (one_part.double() - true_part).abs().max() <= 2e-5 * true_part.abs().max()


# Which losses and which calls take one pass


@pytest.mark.parametrize(
    "loss",
    [
        InfoNCELoss(0.2, normalize=False),
        InfoNCELoss(0.2, diagnose=True),
        InfoNCELoss(0.001),  # exponentials that need a maximum
    ],
    ids=["no norm", "diagnosis", "low temperature"],
)
def test_other_calls_compute_one_prefix_after_another(loss, passes):
    query, positive = normal(8, 6), normal(8, 6, seed=1)
    with policy.override(saved=0, stored=0):
        total = MatryoshkaLoss(loss, (2, 6), (0.5, 1))(query, positive)
        short, long = (loss(query[:, :dim], positive[:, :dim]) for dim in (2, 6))
    assert not passes
    if loss.diagnose:
        assert torch.equal(total[1].positive, long[1].positive)
        total, short, long = total[0], short[0], long[0]
    torch.testing.assert_close(total, 0.5 * short + long)


def test_second_derivatives_of_a_shared_pass_name_the_dense_backend():
    query, positive = learning(normal(6, 4), normal(6, 4, seed=1))
    loss = MatryoshkaLoss(InfoNCELoss(0.2), (2, 4))
    with policy.override(saved=0, stored=0), pytest.raises(RuntimeError, match="backend='dense'"):
        torch.autograd.grad(loss(query, positive), query, create_graph=True)
    with policy.override(saved=0, stored=0, backend="dense"):
        torch.autograd.grad(loss(query, positive), query, create_graph=True)[0].sum().backward()
    assert query.grad is not None


# Degenerate batches


def test_a_prefix_of_zeros_is_counted_and_gets_no_gradient_from_it(passes):
    query, positive = normal(6, 5), normal(6, 5, seed=1)
    query[1, :2] = 0
    positive[3] = 0
    inputs = learning(query, positive)
    results = []
    for stored in (0, 2**20):
        with policy.override(saved=0, stored=stored, tile=4), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss = MatryoshkaLoss(InfoNCELoss(0.2, symmetric=True), (2, 3, 5))
            results.append(value_and_gradients(loss, inputs))
        messages = [str(w.message) for w in caught]
        assert any("1 of 6 rows of query are zero vectors" in text for text in messages), messages
    assert len(passes) == 1
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert (results[0][2][3] == 0).all()


@pytest.mark.parametrize(("n", "ids"), [(1, None), (5, [3] * 5)], ids=["one pair", "equal ids"])
def test_batches_without_negatives_are_zero_and_counted(n, ids, passes):
    inputs = learning(normal(n, 4), normal(n, 4, seed=1))
    loss = MatryoshkaLoss(InfoNCELoss(0.2, symmetric=True), (2, 4))
    with policy.override(saved=0, stored=0), pytest.warns(CoulombWarning, match=f"{n} of {n} anchors have no negative"):
        value, *gradients = value_and_gradients(
            lambda *a: loss(*a, ids=None if ids is None else torch.tensor(ids)), inputs
        )
    assert value == 0 and passes
    assert all((gradient == 0).all() for gradient in gradients)


def test_dimensions_beyond_the_longest_prefix_get_no_gradient(passes):
    inputs = learning(normal(6, 9), normal(6, 9, seed=1))
    with policy.override(saved=0, stored=0):
        _, *gradients = value_and_gradients(MatryoshkaLoss(InfoNCELoss(0.2), (2, 4)), inputs)
    assert passes
    for gradient in gradients:
        assert (gradient[:, :4] != 0).any() and (gradient[:, 4:] == 0).all()


def test_a_frozen_queue_gets_no_gradient(passes):
    query, positive = learning(normal(6, 4), normal(6, 4, seed=1))
    queue = normal(20, 4, seed=2)
    loss = MatryoshkaLoss(InfoNCELoss(0.2), (2, 4))
    with policy.override(saved=0, stored=0, tile=5):
        mine = torch.autograd.grad(loss(query, positive, queue), [query, positive])
    truth = torch.autograd.grad(loss(query, positive, queue), [query, positive])
    assert len(passes) == 1
    for one, true in zip(mine, truth, strict=True):
        torch.testing.assert_close(one, true, rtol=0, atol=1e-12)


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that an operator returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        result = function(*arguments, **(options or {}))
        for one in result if isinstance(result, tuple | list) else [result]:
            if isinstance(one, torch.Tensor):
                self.elements = max(self.elements, one.numel())
        return result


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_tensor_grows_with_the_square_of_the_batch(name, passes):
    make, _, extras = CASES[name]
    largest = []
    for n in (100, 200, 400):
        inputs, names = arguments(extras, n, 8)
        with policy.override(saved=0, stored=0, compared=0, cached=0, tile=32), Largest() as mode:
            value_and_gradients(called(name, MatryoshkaLoss(make(0.2), (2, 4, 8)), names), learning(*inputs))
        largest.append(mode.elements)
    assert len(passes) == 3 * PASSES[name]
    assert largest[1] - largest[0] == pytest.approx((largest[2] - largest[1]) / 2, rel=0.1)


def test_the_graph_may_be_walked_twice():
    inputs = learning(normal(20, 6), normal(20, 6, seed=1))
    with policy.override(saved=0, stored=0, tile=8):
        value = MatryoshkaLoss(InfoNCELoss(0.2), (2, 4, 6))(*inputs)
    first, second = (torch.autograd.grad(value, inputs, retain_graph=True) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


# Options


def test_dims_and_weights_are_kept_together_in_ascending_order():
    loss = MatryoshkaLoss(InfoNCELoss(), dims=[8, 2, 4], weights=[1, 2, 3])
    assert (list(loss.dims), list(loss.weights)) == ([2, 4, 8], [2, 3, 1])
    assert list(MatryoshkaLoss(InfoNCELoss(), [4]).weights) == [1]
    assert "dims=[2, 4, 8], weights=[2.0, 3.0, 1.0]" in repr(loss)


@pytest.mark.parametrize("n", [6, 1100])  # a loss for each prefix, and one pass
def test_assigned_dims_and_weights_count_in_any_order(n):
    draws = torch.Generator().manual_seed(0)
    query, positive = (torch.randn(n, 128, generator=draws) for _ in range(2))
    loss = MatryoshkaLoss(InfoNCELoss(0.5), [64, 128])
    loss.dims, loss.weights = [128, 64], [3.0, 1.0]
    expected = MatryoshkaLoss(InfoNCELoss(0.5), [64, 128], [1.0, 3.0])(query, positive)
    torch.testing.assert_close(loss(query, positive), expected, rtol=0, atol=0)
    loss.weights = [1.0]
    with pytest.raises(ValueError, match="weights must be 2 numbers"):
        loss(query, positive)


def test_parameters_are_those_of_the_loss():
    loss = MatryoshkaLoss(InfoNCELoss(LearnableTemperature()), [4])
    assert [name for name, _ in loss.named_parameters()] == ["loss.temperature.log_scale"]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: MatryoshkaLoss(torch.nn.MSELoss(), [4]), TypeError, "^loss .*MSELoss"),
        (lambda: MatryoshkaLoss(ArcFaceLoss(3, 4), [2]), TypeError, "^loss=ArcFaceLoss"),
        (lambda: MatryoshkaLoss(PaCoLoss(), [2]), TypeError, "^loss=PaCoLoss"),
        (lambda: MatryoshkaLoss(MatryoshkaLoss(InfoNCELoss(), [2]), [2]), TypeError, "^loss=MatryoshkaLoss"),
        (lambda: MatryoshkaLoss(NCELoss(9), [2]), ValueError, "^loss=NCELoss with normalizer"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), []), ValueError, "^dims"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), [2, 2]), ValueError, "^dims"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), [0, 2]), ValueError, "^dims .*0"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), [2.5]), TypeError, "^dims .*2.5"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), 64), TypeError, "^dims .*64"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), [2], [1, 1]), ValueError, "^weights .*got 2"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), [2], [-1]), ValueError, "^weights .*-1"),
        (lambda: MatryoshkaLoss(InfoNCELoss(), [2], 1.0), TypeError, "^weights"),
    ],
)
def test_options_that_are_wrong_raise_an_error_that_names_them(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_embeddings_shorter_than_the_longest_prefix_raise():
    loss = MatryoshkaLoss(InfoNCELoss(), [2, 6])
    with pytest.raises(ValueError, match=r"^query has 4 dimensions, fewer than .* 6"):
        loss(normal(3, 4), normal(3, 4))
    with pytest.raises(ValueError, match="^positive has 7 dimensions"):
        loss(normal(3, 6), normal(3, 7))
    with pytest.raises(TypeError, match="query was given twice"):
        loss(normal(3, 6), normal(3, 6), query=normal(3, 6))
    with pytest.raises(TypeError, match="InfoNCELoss takes"):
        loss(*[normal(3, 6)] * 6)


def test_the_arguments_of_every_loss_that_hold_embeddings_are_known():
    for name, row in EVERY.items():
        inputs = row.inputs(8, 5, normal)
        names = inspect.signature(row.make(0.3).forward).parameters
        for argument, value in zip(names, inputs, strict=False):
            assert (argument in EMBEDDINGS) == (value.is_floating_point() and value.shape[-1] == 5), (name, argument)
