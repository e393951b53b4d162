"""Laws that every exported loss obeys. A new loss is added as a row in tests/law_rows, with its formula as a double loop."""

import contextlib
import functools
import inspect
import itertools
import math
import re
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

import coulomb.losses
from coulomb.ground.errors import CoulombWarning
from coulomb.laws.subject import normal
from coulomb.losses import LearnableTemperature
from coulomb.similarity import policy, use_backend
from law_rows import all_rows, shuffled
from torch_versions import HAS_ATTENTION, NO_ATTENTION, ROUNDING

LOSSES = all_rows()
# Four paths to the same result: plain torch on the stored matrix, one cached tile, recomputed tiles, and attention passes,
# whose laws run in CI except for the comparison with the double loop.
PATHS = ("dense", "stored", "streaming", "attention")
TILES_ONLY = {"stored": 0, "tile": 5, "compared": 0, "cached": 0, "saved": 0}


def rows_that(condition):
    names = [name for name, row in LOSSES.items() if condition(row)]
    return pytest.mark.parametrize("row", [LOSSES[name] for name in names], ids=names)


each_loss = rows_that(lambda row: True)
each_with_temperature = rows_that(lambda row: row.temperature)
each_folding = rows_that(lambda row: row.engine)


def rows_and_paths_that(condition, slow=("attention",)):
    cases = [
        pytest.param(row, path, id=f"{name}-{path}", marks=[pytest.mark.slow] if path in slow else [])
        for name, row in LOSSES.items()
        for path in (PATHS if row.engine else ("stored",))
        if condition(row)
    ]
    return pytest.mark.parametrize(("row", "path"), cases, indirect=["path"])


each_loss_and_path = rows_and_paths_that(lambda row: True)


@pytest.fixture
def path(request):
    if request.param == "attention" and not HAS_ATTENTION:
        pytest.skip(NO_ATTENTION)
    changes = {
        "stored": {},
        "dense": {"backend": "dense"},
        "streaming": TILES_ONLY,
        "attention": {"backend": "attention"},
    }[request.param]
    with policy.override(**changes):
        yield request.param


@pytest.fixture
def streaming():
    with policy.override(stored=0, saved=0):
        yield


def drawn(row, n, d, dtype=torch.float64, seed=0, draw=None):
    return prepared(row.inputs(n, d, draw or normal(seed)), dtype)


def prepared(inputs, dtype):
    return tuple(t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t for t in inputs)


def with_gradient(function, inputs, **options):
    wanted = [t for t in inputs if t.requires_grad]
    value = function(*inputs)
    return value, *torch.autograd.grad(value, wanted, **options)


def looped(row, tau, inputs, dtype):
    # The dense PyTorch reference: the same formula on the same numbers, every operation in `dtype`.
    return with_gradient(lambda *a: row.mean(row.loop(tau, *a)), prepared(inputs, dtype))


def argument_names(row):
    return list(inspect.signature(row.make(0.1).forward).parameters)


def test_the_table_covers_every_exported_loss():
    assert {name.split()[0] for name in LOSSES} == {name for name in coulomb.losses.__all__ if name.endswith("Loss")}


# Correct: the formula and its derivatives, independent of how they are computed.


@functools.cache
def double_loop(row, tau):
    """Returns the loss of each anchor, and the mean with its gradients."""
    inputs = drawn(row, 7, 5)
    losses = row.loop(tau, *inputs)
    mean = row.mean(losses)
    return losses.detach(), mean.detach(), torch.autograd.grad(mean, [t for t in inputs if t.requires_grad])


@pytest.mark.parametrize(
    ("row", "path", "tau"),
    [  # how a loss depends on τ does not depend on the path
        pytest.param(row, path, tau, id=f"{name}-{path}-{tau}")
        for name, row in LOSSES.items()
        for path in (PATHS if row.engine else ("stored",))
        for tau in ((0.05, 0.7) if path == "stored" else (0.05,))
    ],
    indirect=["path"],
)
def test_equals_the_double_loop(row, path, tau):
    inputs, (losses, mean, gradients) = drawn(row, 7, 5), double_loop(row, tau)
    torch.testing.assert_close(row.make(tau, reduction="none")(*inputs), losses, rtol=0, atol=1e-10)
    value, *ours = with_gradient(row.make(tau), inputs)
    torch.testing.assert_close(value, mean, rtol=0, atol=1e-10)
    for ours_grad, true_grad in zip(ours, gradients, strict=True):
        torch.testing.assert_close(ours_grad, true_grad, rtol=0, atol=1e-8)
    torch.testing.assert_close(row.make(tau, reduction="sum")(*inputs), losses.sum(), rtol=0, atol=1e-9)


@rows_that(lambda row: row.derivative)
def test_gradcheck(row):
    inputs = drawn(row, 4, 3)
    assert torch.autograd.gradcheck(row.make(0.3), inputs)
    if row.gradgrad:
        with use_backend("dense"):
            assert torch.autograd.gradgradcheck(row.make(0.3), inputs)


@rows_that(lambda row: row.gradgrad)
def test_second_derivatives_equal_the_dense_backends(row):
    def twice():
        inputs = drawn(row, 6, 3)
        _, *grads = with_gradient(row.make(0.3), inputs, create_graph=True)
        twists = [normal(1)(*g.shape) for g in grads]
        return torch.autograd.grad(sum((g * v).sum() for g, v in zip(grads, twists, strict=True)), inputs[0])[0]

    stored = twice()
    with use_backend("dense"):
        torch.testing.assert_close(stored, twice(), rtol=1e-9, atol=1e-9)


@each_loss
def test_torch_func_grad_is_correct_or_suggests_the_dense_backend(row):
    inputs = drawn(row, 6, 3)
    truth = with_gradient(row.make(0.3), inputs)[1]
    plain = [t.detach() for t in inputs]

    def gradient():
        return torch.func.grad(row.make(0.3))(*plain)

    with use_backend("dense"):
        torch.testing.assert_close(gradient(), truth, rtol=1e-9, atol=1e-10)
    try:
        actual = gradient()
    except RuntimeError as error:
        assert "backend" in str(error) and "dense" in str(error)
    else:
        torch.testing.assert_close(actual, truth, rtol=1e-9, atol=1e-10)


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # raised inside torch by jvp
@each_loss
def test_vmap_and_jvp_are_correct(row):
    batches = [drawn(row, 6, 3, seed=seed) for seed in (0, 1)]
    tangents = [normal(2)(*t.shape) if t.requires_grad else None for t in batches[0]]
    plain = [[t.detach() for t in batch] for batch in batches]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        actual = torch.func.vmap(row.make(0.3))(*(torch.stack(pair) for pair in zip(*plain, strict=True)))
    torch.testing.assert_close(actual, torch.stack([row.make(0.3)(*batch) for batch in batches]))
    which = [i for i, tangent in enumerate(tangents) if tangent is not None]

    def moving(*values):
        return row.make(0.3)(*(values[which.index(i)] if i in which else t for i, t in enumerate(plain[0])))

    along = tuple(tangents[i] for i in which)
    slope = torch.func.jvp(moving, tuple(plain[0][i] for i in which), along)[1]
    _, *grads = with_gradient(row.make(0.3), batches[0])
    torch.testing.assert_close(slope, sum((g * v).sum() for g, v in zip(grads, along, strict=True)))


@each_folding
def test_streaming_second_derivative_is_correct_or_suggests_the_dense_backend(row, streaming):
    inputs = drawn(row, 4, 3)
    try:
        actual = torch.autograd.grad(row.make(0.3)(*inputs), inputs[0], create_graph=True)[0]
    except RuntimeError as error:
        assert "backend='dense'" in str(error)
    else:  # a loss that only needs sums uses no tiles
        with use_backend("dense"):
            truth = torch.autograd.grad(row.make(0.3)(*inputs), inputs[0])[0]
        torch.testing.assert_close(actual, truth, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    ("row", "path"),
    [
        pytest.param(row, path, id=f"{name}-{path}")
        for name, row in LOSSES.items()
        for path in (("stored", "streaming") if row.engine else ("stored",))
    ],
    indirect=["path"],
)
@pytest.mark.parametrize(("kind", "reduction"), [("meta", "mean"), ("fake", "none")])
def test_meta_and_fake_tensors_propagate_shapes_and_types(row, path, kind, reduction):
    inputs = drawn(row, 7, 5, torch.float32)
    truth = with_gradient(lambda *given: row.make(0.2, reduction=reduction)(*given).sum(), inputs)
    expected = row.make(0.2, reduction=reduction)(*inputs)
    mode = FakeTensorMode()
    with mode if kind == "fake" else contextlib.nullcontext():
        inputs = [mode.from_tensor(t) if kind == "fake" else t.detach().to("meta") for t in inputs]
        inputs = [t.requires_grad_() if t.is_floating_point() else t for t in inputs]
        loss = row.make(LearnableTemperature(0.2) if row.temperature else 0.2, reduction=reduction)
        loss = loss if kind == "fake" else loss.to("meta")
        assert "reduction" in repr(loss)
        value = loss(*inputs)
        _, *grads = with_gradient(lambda *given: loss(*given).sum(), inputs)
    assert (value.shape, value.dtype, value.device.type) == (expected.shape, expected.dtype, inputs[0].device.type)
    assert [(g.shape, g.dtype) for g in grads] == [(g.shape, g.dtype) for g in truth[1:]]


FIRST = {name.split()[0]: name for name in reversed(LOSSES)}  # the first row of each loss
QUICK = {(name, "stored") for name in FIRST.values()}


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("row", "path"),
    [  # a compilation takes a second: each loss is compiled once, other rows and the streaming path in the slow tests
        pytest.param(row, path, id=f"{name}-{path}", marks=[] if (name, path) in QUICK else [pytest.mark.slow])
        for name, row in LOSSES.items()
        for path in (("stored", "streaming") if row.engine and name in FIRST.values() else ("stored",))
    ],
    indirect=["path"],
)
def test_compiles_without_a_graph_break_to_the_same_result(row, path):
    inputs = drawn(row, 6, 4, torch.float32)
    torch._dynamo.reset()
    compiled = torch.compile(row.make(0.2), fullgraph=True, backend="aot_eager")
    for mine, eager in zip(with_gradient(compiled, inputs), with_gradient(row.make(0.2), inputs), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-6)


@each_folding
def test_every_tile_size_gives_the_dense_result(row):
    # Options change the formula, and few of them the walk over the tiles: more examples for the first row of each loss.
    @settings(max_examples=12 if any(row is LOSSES[name] for name in FIRST.values()) else 4, deadline=None)
    @given(
        n=st.integers(3, 23), d=st.sampled_from([1, 2, 7, 64, 257]), tile=st.integers(1, 40), seed=st.integers(0, 99)
    )
    def law(n, d, tile, seed):
        the_same_whatever_the_tile(row, n, d, tile, seed)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoulombWarning)
        law()
        the_same_whatever_the_tile(row, 5, 2048, 3, 0)


def the_same_whatever_the_tile(row, n, d, tile, seed):
    inputs = drawn(row, n, d, seed=seed)
    with use_backend("dense"):
        dense = with_gradient(row.make(0.1), inputs)
    stored = with_gradient(row.make(0.1), inputs)
    streamed = []
    for cached in (0, n * n // 4, n * n):  # cache none, some or all of the exponentials
        with policy.override(stored=0, saved=0, tile=tile, cached=cached * 8 // d, least_cached=0):
            streamed.append(with_gradient(row.make(0.1), inputs))
    for truth, *ours in zip(dense, stored, *streamed, strict=True):
        for mine in ours:
            torch.testing.assert_close(mine, truth, rtol=1e-9, atol=1e-10)


@each_loss
def test_is_invariant_to_the_order_of_samples(row):
    inputs = drawn(row, 9, 4)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    moved = row.make(0.2)(*shuffled(row, inputs, order))
    torch.testing.assert_close(moved, row.make(0.2)(*inputs), rtol=0, atol=1e-12)


@rows_and_paths_that(lambda row: row.constant is not None)
def test_equal_features_give_the_constant(row, path):
    inputs = [torch.ones_like(t) if t.is_floating_point() else t for t in drawn(row, 8, 5)]
    assert float(row.make(0.2)(*inputs).detach()) == pytest.approx(row.constant(8), abs=1e-10)


@each_with_temperature
def test_learned_temperature_gets_the_correct_gradient(row):
    inputs = [t.detach() for t in drawn(row, 6, 4)]
    temperature = LearnableTemperature(0.3).double()
    (mine,) = torch.autograd.grad(row.make(temperature)(*inputs), temperature.log_scale)
    step = 1e-6
    rise = [row.mean(row.loop(0.3 * math.exp(-s), *inputs)) for s in (step, -step)]  # log_scale is −log τ
    assert float(mine) == pytest.approx(float(rise[0] - rise[1]) / (2 * step), rel=1e-6)


@each_loss
def test_results_are_bitwise_reproducible(row, streaming):
    inputs = drawn(row, 300, 16, torch.float32)
    first, second = (with_gradient(row.make(0.1), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


# Accurate: at least as accurate as dense PyTorch in the same precision.


def assert_at_least_as_accurate(ours, dense, truth, absolute=1e-5):
    for mine, theirs, true in zip(ours, dense, truth, strict=True):
        error, allowed = ((x.double() - true).abs().max() for x in (mine, theirs))
        # A gradient is returned in its input's precision, and rounding it can cost half an ulp.
        rounding = true.abs().max() * torch.finfo(mine.dtype).eps / 2
        allowed = allowed if torch.isfinite(allowed) else 0.0  # a reference that overflows allows no error
        assert error <= allowed + absolute * ROUNDING + rounding


PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@pytest.mark.parametrize(
    ("row", "path", "dtype", "tau"),
    [  # rows in half precision are converted before any path begins; how precise a path is, a low τ shows
        pytest.param(
            row, path, dtype, tau, id=f"{name}-{path}-{kind}-{tau}", marks=[pytest.mark.slow] * (path == "attention")
        )
        for name, row in LOSSES.items()
        for kind, dtype in PRECISIONS.items()
        for path in (PATHS if row.engine and kind == "float32" else ("stored",))
        for tau in ((0.01, 0.5) if kind == "float32" and path == "stored" else (0.01,))
    ],
    indirect=["path"],
)
def test_at_least_as_accurate_as_dense_in_the_same_precision(row, path, dtype, tau):
    inputs = drawn(row, 9, 16, dtype)
    ours = with_gradient(row.make(tau), inputs)
    assert ours[0].dtype == torch.float32  # never computed in half precision
    assert [g.dtype for g in ours[1:]] == [dtype] * (len(ours) - 1)
    # Attention returns its lse, up to 200 here, as a logarithm to base 2 in fp32: exp(s − lse) is off by 4e-5.
    assert_at_least_as_accurate(ours, *references(row, dtype, tau), 4e-5 if path == "attention" else 1e-5)


@functools.cache
def references(row, dtype, tau):
    inputs = drawn(row, 9, 16, dtype)
    return looped(row, tau, inputs, dtype), looped(row, tau, inputs, torch.float64)


# In 512 dimensions normal vectors have cosines near 0, including those of positives. Every exponential relative to the
# bound e^(1/τ) underflows.


def opposed(seed=0):
    """Returns a function that draws vectors around +e and −e, alternating between tensors, in many dimensions."""
    draw, sign = normal(seed), [1.0]

    def of(*shape):
        sign[0] = -sign[0]
        return draw(*shape) * 0.5 + 5 * sign[0] * torch.nn.functional.one_hot(torch.tensor(0), shape[-1])

    return of


@each_with_temperature
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("draw", [opposed, normal])
def test_low_cosines_at_a_low_temperature_are_accurate(row, dtype, draw, streaming):
    inputs = drawn(row, 6, 512, dtype, draw=draw())
    ours = with_gradient(row.make(0.01), inputs)
    assert_at_least_as_accurate(ours, looped(row, 0.01, inputs, dtype), looped(row, 0.01, inputs, torch.float64))


@rows_that(lambda row: row.sharp)
@pytest.mark.parametrize("path", PATHS, indirect=True)
def test_losses_near_zero_keep_precision(row, path):
    # Each sample has its own direction in all tensors; additional rows point in the opposite directions.
    def own_direction(*shape):
        views = torch.eye(8, dtype=torch.float64)[: shape[0]]
        if shape[0] > 5:
            return -torch.eye(8, dtype=torch.float64)[torch.arange(shape[0]) % 8]
        return views if len(shape) == 2 else views[:, None].expand(shape).contiguous()

    inputs = drawn(row, 5, 8, torch.float32, draw=own_direction)
    ours, truth = with_gradient(row.make(0.06), inputs), looped(row, 0.06, inputs, torch.float64)
    assert 0 < truth[0].item() < 1e-6
    assert ours[0].item() == pytest.approx(truth[0].item(), rel=1e-4, abs=0)
    for mine, true in zip(ours[1:], truth[1:], strict=True):
        assert (mine - true).abs().max() <= 1e-4 * true.abs().max() + 1e-12


@rows_that(lambda row: row.crowd is not None)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tau", [0.01, 0.5])
def test_65536_uniform_negatives_are_accurate(row, dtype, tau):
    inputs = prepared(row.crowd(normal()), dtype)

    def dense(precision):
        return with_gradient(lambda *a: row.mean(row.crowded(tau, *a)), prepared(inputs, precision))

    assert_at_least_as_accurate(with_gradient(row.make(tau), inputs), dense(dtype), dense(torch.float64))


@each_loss_and_path
def test_autocast_does_not_change_the_result(row, path):
    inputs = drawn(row, 30, 16, torch.float32)
    wanted = [t for t in inputs if t.requires_grad]
    plain = with_gradient(row.make(0.1), inputs)
    with torch.autocast("cpu", torch.bfloat16):
        value = row.make(0.1)(*inputs)
        inside = value, *torch.autograd.grad(value, wanted, retain_graph=True)
    outside = value, *torch.autograd.grad(value, wanted)  # as PyTorch recommends
    for one, other, true in zip(inside, outside, plain, strict=True):
        atol = 1e-6 * true.detach().abs().max().item()
        torch.testing.assert_close(one, true, rtol=1e-6, atol=atol)
        torch.testing.assert_close(other, true, rtol=1e-6, atol=1e-7)


@rows_that(lambda row: row.gradgrad)
def test_autocast_does_not_change_the_second_derivative(row):
    inputs = drawn(row, 30, 16, torch.float32)
    wanted = [t for t in inputs if t.requires_grad]

    def twice():
        _, *grads = with_gradient(row.make(0.1), inputs, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), wanted, allow_unused=True)

    with use_backend("dense"):
        plain = twice()
        with torch.autocast("cpu", torch.bfloat16):
            inside = twice()
    for mine, true in zip(inside, plain, strict=True):
        atol = 0 if true is None else 1e-6 * true.abs().max().item()
        torch.testing.assert_close(mine, true, rtol=1e-6, atol=atol)


# Robust: a defined finite result, a counted warning, or an error that names the argument.


def finite_or_named(row, inputs):
    """Returns the outcome: "error", "warned" or "fine"."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value, *grads = with_gradient(row.make(0.05), inputs)
        except ValueError as error:
            assert re.match(rf"({'|'.join(argument_names(row))}|.*anchors)\b", str(error))
            return "error"
    assert torch.isfinite(value)
    assert all(torch.isfinite(g).all() for g in grads)
    counted = [str(w.message) for w in caught if w.category is CoulombWarning]
    assert len(counted) == len(caught)
    assert all(re.search(r"\d", message) for message in counted)
    if not counted:  # without a warning, loss or gradient must differ from 0
        assert value != 0 or any((g != 0).any() for g in grads)
    return "warned" if counted else "fine"


@each_loss_and_path
def test_a_batch_of_one_and_equal_samples_are_finite_or_raise(row, path):
    finite_or_named(row, drawn(row, 1, 4, torch.float32))
    same = [torch.ones_like(t) if t.is_floating_point() else t for t in drawn(row, 4, 3, torch.float32)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoulombWarning)
        value, *grads = with_gradient(row.make(0.05), prepared(same, torch.float32))
    assert torch.isfinite(value)
    assert all(torch.isfinite(g).all() for g in grads)


def label_places(inputs):
    return [i for i, t in enumerate(inputs) if not t.is_floating_point() and t.dtype != torch.bool]


@rows_and_paths_that(lambda row: label_places(drawn(row, 6, 6)))
def test_uninformative_labels_are_finite_or_raise(row, path):
    inputs = drawn(row, 6, 6, torch.float32)
    places = label_places(inputs)
    for labels in (torch.zeros_like, lambda given: torch.arange(len(given))):  # one class; no positives
        finite_or_named(row, [labels(t) if i in places else t for i, t in enumerate(inputs)])


@each_loss_and_path
def test_duplicates_and_zero_vectors_stay_finite(row, path):
    inputs = drawn(row, 8, 4, torch.float32)
    with torch.no_grad():
        inputs[0][1] = inputs[0][0]
        inputs[0][2] = 0
    result = finite_or_named(row, inputs)
    if not row.normalizes:
        return
    assert result == "warned"
    with pytest.warns(CoulombWarning, match=f"rows of {argument_names(row)[0]} are zero vectors"):
        _, grad, *_ = with_gradient(row.make(0.05), inputs)
    assert (grad[2] == 0).all()  # a zero vector has no direction and gets no gradient


@each_loss
def test_non_finite_values_raise_an_error_that_names_the_argument(row):
    for (which, name), bad in itertools.product(enumerate(argument_names(row)), (math.nan, math.inf)):
        inputs = drawn(row, 6, 4)
        if which >= len(inputs) or not inputs[which].is_floating_point():
            continue
        with torch.no_grad():
            inputs[which].view(-1)[-1] = bad
        with pytest.raises(ValueError, match=rf"^{name} .*(NaN|finite)"):
            row.make(0.1)(*inputs)


NORMALIZING = [name for name, row in LOSSES.items() if row.normalizes and "Softmax" not in name]


@pytest.mark.parametrize("name", NORMALIZING)
def test_rows_whose_products_overflow_raise_an_error_that_names_the_argument(name):
    row, size = LOSSES[name], 1e19
    inputs = [t.detach() * size if t.is_floating_point() else t for t in drawn(row, 6, 4, torch.float32)]
    with pytest.raises(
        ValueError, match=rf"^({'|'.join(argument_names(row))}) has .* rows with NaN, infinite or too large"
    ):
        row.make(0.1, normalize=False)(*inputs)


REFUSED = {
    "sparse": lambda t: t.to_sparse(),
    "complex": lambda t: t.to(torch.complex64),
    "a list": lambda t: t.tolist(),
    "an array": lambda t: t.numpy(),
    "a dict": lambda t: {},
}


@each_loss
def test_inputs_other_than_dense_real_tensors_raise_an_error_that_names_the_argument(row):
    names = argument_names(row)
    for which, kind in itertools.product(range(len(drawn(row, 6, 4))), REFUSED):
        inputs = [t.detach() for t in drawn(row, 6, 4)]
        if names[which] == "centers" and kind not in ("sparse", "complex"):
            continue  # the centers of ArcFace are a parameter
        inputs[which] = REFUSED[kind](inputs[which])
        with pytest.raises(TypeError, match=f"^{names[which]} must be "):
            row.make(0.1)(*inputs)


@rows_that(lambda row: "labels" in argument_names(row))
def test_labels_may_be_a_column(row):
    inputs = [t.detach() for t in drawn(row, 6, 4)]
    which = argument_names(row).index("labels")
    if inputs[which].ndim == 2:
        pytest.skip("several labels per sample")
    inputs[which] = inputs[which].clamp(0, 1)  # only 0 and 1, which must not be read as multi-hot labels
    column = [t[:, None] if i == which else t for i, t in enumerate(inputs)]
    assert torch.equal(row.make(0.1)(*column), row.make(0.1)(*inputs))


@each_loss
def test_errors_name_the_argument(row):
    inputs = drawn(row, 6, 4)
    first, *others = argument_names(row)
    with pytest.raises(TypeError, match=f"{first} must be a floating"):
        row.make(0.1)(torch.ones_like(inputs[0], dtype=torch.long), *inputs[1:])
    with pytest.raises(ValueError, match=f"{first} must have .* dimensions"):
        row.make(0.1)(inputs[0].flatten(), *inputs[1:])
    with pytest.raises(ValueError, match=f"{first} is an empty batch"):
        row.make(0.1)(*(t[:0] for t in inputs))
    with pytest.raises(ValueError, match=f"{first} has no dimensions"):
        row.make(0.1)(inputs[0][..., :0], *inputs[1:])
    if len(inputs) > 1:
        with pytest.raises(ValueError, match=f"^({'|'.join(others)}) "):
            row.make(0.1)(inputs[0], inputs[1][:-1], *inputs[2:])
    with pytest.raises(ValueError, match="reduction"):
        row.make(0.1, reduction="average")


DIAGNOSING = {n for n in LOSSES if "diagnose" in inspect.signature(getattr(coulomb.losses, n.split()[0])).parameters}


@pytest.mark.parametrize("name", sorted(DIAGNOSING))
def test_diagnose_returns_the_same_loss_and_valid_statistics(name):
    row = LOSSES[name]
    inputs = drawn(row, 6, 4)
    loss, diagnosis = row.make(0.2, diagnose=True)(*inputs)
    torch.testing.assert_close(loss, row.make(0.2)(*inputs), rtol=1e-12, atol=1e-12)
    assert loss.requires_grad
    anchors = (len(diagnosis.positive),)
    for values in (diagnosis.positive, diagnosis.hardest_negative, diagnosis.effective_negatives):
        assert values.shape == anchors
        assert not values.requires_grad
    assert diagnosis.without_positive == diagnosis.positive.isnan().sum()
    cosines = diagnosis.positive[~diagnosis.positive.isnan()]
    assert (cosines.abs() <= 1 + 1e-9).all()
    has_negatives = diagnosis.hardest_negative > -math.inf
    assert (diagnosis.hardest_negative[has_negatives].abs() <= 1 + 1e-9).all()
    assert (diagnosis.effective_negatives[has_negatives] >= 1 - 1e-9).all()


@pytest.mark.parametrize("name", sorted(DIAGNOSING))
def test_a_large_meta_batch_has_a_diagnosis_and_a_gradient(name):
    row, normalize = LOSSES[name], False
    inputs = [t.detach().to("meta") for t in drawn(row, 1100, 8, torch.bfloat16)]
    inputs[0].requires_grad_()
    temperature = LearnableTemperature(0.2) if row.temperature else 0.2
    loss, diagnosis = row.make(temperature, diagnose=True, normalize=normalize).to("meta")(*inputs)
    loss.backward()
    assert loss.is_meta and inputs[0].grad.shape == inputs[0].shape
    assert diagnosis.positive.is_meta and diagnosis.hardest_negative.shape == diagnosis.positive.shape


@each_with_temperature
def test_invalid_temperatures_raise(row):
    for temperature in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature"):
            row.make(temperature)
    with pytest.raises(TypeError, match="temperature"):
        row.make("hot")


@each_loss
def test_the_device_of_each_argument_is_checked(row):
    names = argument_names(row)
    for which in range(1, len(drawn(row, 6, 4))):
        inputs = list(drawn(row, 6, 4))
        inputs[which] = inputs[which].to("meta")
        with pytest.raises(ValueError, match=f"{names[which]} is on meta"):
            row.make(0.1)(*inputs)


@each_loss
def test_repr_shows_the_options(row):
    loss = row.make(0.125, reduction="sum")
    assert "reduction='sum'" in repr(loss)
    if row.temperature:
        assert "temperature=0.125" in repr(loss)
        assert "log_scale" in "".join(row.make(LearnableTemperature()).state_dict())
