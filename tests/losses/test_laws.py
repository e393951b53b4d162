"""Laws that every exported loss obeys. A new loss joins by a row in tests/law_rows: its call, its formula as a double loop."""

import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import coulomb.losses
from coulomb.errors import CoulombWarning
from coulomb.losses import LearnableTemperature
from coulomb.similarity import matrix
from law_rows import all_rows

LOSSES = all_rows()
NOT_LOSSES = {"LearnableTemperature"}


each_loss = pytest.mark.parametrize("row", LOSSES.values(), ids=LOSSES.keys())


def drawn(row, n, d, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = row.inputs(n, d, lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64))
    return tuple(t.to(dtype).requires_grad_() if t.is_floating_point() else t for t in made)


def with_gradient(function, inputs):
    wanted = [t for t in inputs if t.requires_grad]
    value = function(*inputs)
    return value, *torch.autograd.grad(value, wanted)


def test_the_table_covers_every_exported_loss():
    assert {name.split()[0] for name in LOSSES} == set(coulomb.losses.__all__) - NOT_LOSSES


@each_loss
@pytest.mark.parametrize("streaming_only", [False, True], ids=["dense", "streaming"])
@pytest.mark.parametrize("tau", [0.05, 0.7])
def test_equals_the_double_loop(row, streaming_only, tau, monkeypatch):
    if streaming_only:
        monkeypatch.setattr(matrix, "DENSE_ELEMENTS", 0)
        monkeypatch.setattr(matrix, "TILE", 5)
    inputs = drawn(row, 7, 5)
    loss = row.make(tau, reduction="none")
    torch.testing.assert_close(loss(*inputs), row.loop(tau, *inputs), rtol=0, atol=1e-10)
    ours = with_gradient(row.make(tau), inputs)
    truth = with_gradient(lambda *a: row.mean(row.loop(tau, *a)), inputs)
    torch.testing.assert_close(ours[0], truth[0], rtol=0, atol=1e-10)
    for ours_grad, true_grad in zip(ours[1:], truth[1:], strict=True):
        torch.testing.assert_close(ours_grad, true_grad, rtol=0, atol=1e-8)
    torch.testing.assert_close(row.make(tau, reduction="sum")(*inputs), row.loop(tau, *inputs).sum(), rtol=0, atol=1e-9)


@each_loss
@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "dense"])
def test_gradcheck(row, elements, monkeypatch):
    monkeypatch.setattr(matrix, "DENSE_ELEMENTS", elements)
    inputs = drawn(row, 4, 3)
    assert torch.autograd.gradcheck(row.make(0.3), inputs)
    if elements:
        assert torch.autograd.gradgradcheck(row.make(0.3), inputs)


@each_loss
def test_second_derivative_of_the_streaming_backend_is_a_clear_error(row, monkeypatch):
    monkeypatch.setattr(matrix, "DENSE_ELEMENTS", 0)
    inputs = drawn(row, 4, 3)
    with pytest.raises(RuntimeError, match="backend='dense'"):
        torch.autograd.grad(row.make(0.3)(*inputs), inputs[0], create_graph=True)


@each_loss
def test_any_tile_size_gives_the_dense_result(row):
    @settings(max_examples=12, deadline=None)
    @given(
        n=st.integers(3, 23), d=st.sampled_from([1, 2, 7, 64, 257]), tile=st.integers(1, 40), seed=st.integers(0, 99)
    )
    def law(n, d, tile, seed):
        inputs = drawn(row, n, d, seed=seed)
        dense = with_gradient(row.make(0.1), inputs)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(matrix, "DENSE_ELEMENTS", 0)
            patch.setattr(matrix, "TILE", tile)
            streamed = with_gradient(row.make(0.1), inputs)
        for ours, truth in zip(streamed, dense, strict=True):
            torch.testing.assert_close(ours, truth, rtol=1e-9, atol=1e-10)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CoulombWarning)
        law()


@each_loss
def test_order_of_samples_does_not_matter(row):
    inputs = drawn(row, 9, 4)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(3))
    shuffled = [t[order] if row.paired or i < 2 else t for i, t in enumerate(inputs)]
    if inputs[-1].dtype == torch.bool:
        shuffled[-1] = shuffled[-1][:, order]
    torch.testing.assert_close(row.make(0.2)(*shuffled), row.make(0.2)(*inputs), rtol=0, atol=1e-12)


@each_loss
@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "dense"])
def test_equal_features_give_the_constant(row, elements, monkeypatch):
    monkeypatch.setattr(matrix, "DENSE_ELEMENTS", elements)
    inputs = [torch.ones_like(t) if t.is_floating_point() else t for t in drawn(row, 8, 5)]
    if row.constant is None:
        pytest.skip("its value depends on more than the features")
    assert float(row.make(0.2)(*inputs)) == pytest.approx(row.constant(8), abs=1e-10)


def looped_in(row, tau, inputs, dtype):
    # The dense PyTorch reference: the same formula on the same numbers, every operation in `dtype`.
    return with_gradient(lambda *a: row.mean(row.loop(tau, *a)), tuple(_to(t, dtype) for t in inputs))


def _to(t, dtype):
    return t.detach().to(dtype).requires_grad_() if t.is_floating_point() else t


@each_loss
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("tau", [0.01, 0.5])
@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "dense"])
def test_no_less_exact_than_dense_in_the_same_precision(row, dtype, tau, elements, monkeypatch):
    monkeypatch.setattr(matrix, "DENSE_ELEMENTS", elements)
    inputs = tuple(_to(t, dtype) for t in drawn(row, 9, 16))
    truth = looped_in(row, tau, inputs, torch.float64)
    dense = looped_in(row, tau, inputs, dtype)
    ours = with_gradient(row.make(tau), inputs)
    assert ours[0].dtype == torch.float32  # statistics never in half precision
    assert [g.dtype for g in ours[1:]] == [dtype] * (len(ours) - 1)
    for mine, theirs, true in zip(ours, dense, truth, strict=True):
        error, allowed = ((x.double() - true).abs().max() for x in (mine, theirs))
        # A gradient is returned in its input's precision, which alone rounds it by half an ulp.
        rounding = true.abs().max() * torch.finfo(mine.dtype).eps / 2
        assert error <= allowed + 1e-5 + rounding


@each_loss
@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "dense"])
def test_autocast_changes_nothing(row, elements, monkeypatch):
    monkeypatch.setattr(matrix, "DENSE_ELEMENTS", elements)
    inputs = drawn(row, 30, 16, torch.float32)
    wanted = [t for t in inputs if t.requires_grad]
    with torch.autocast("cpu", torch.bfloat16):
        value = row.make(0.1)(*inputs)
    inside = value, *torch.autograd.grad(value, wanted)  # outside, as torch asks
    for mine, plain in zip(inside, with_gradient(row.make(0.1), inputs), strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-6, atol=1e-7)


@each_loss
def test_learned_temperature_gets_the_right_gradient(row):
    inputs = [t.detach() for t in drawn(row, 6, 4)]
    temperature = LearnableTemperature(0.3).double()
    (mine,) = torch.autograd.grad(row.make(temperature)(*inputs), temperature.log_scale)
    step = 1e-6
    rise = [row.loop(0.3 * math.exp(-s), *inputs).mean() for s in (step, -step)]  # log_scale is −log τ
    assert float(mine) == pytest.approx(float(rise[0] - rise[1]) / (2 * step), rel=1e-6)


@each_loss
def test_duplicates_and_zero_vectors_stay_finite(row):
    inputs = drawn(row, 8, 4, torch.float32)
    with torch.no_grad():
        inputs[0][1] = inputs[0][0]
        inputs[0][2] = 0
    with pytest.warns(CoulombWarning, match="zero vectors"):
        value, *grads = with_gradient(row.make(0.05), inputs)
    assert torch.isfinite(value)
    assert all(torch.isfinite(g).all() for g in grads)
    assert (grads[0][2] == 0).all()  # no direction, no gradient


@each_loss
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_values_that_are_not_finite_are_named(row, bad):
    inputs = drawn(row, 6, 4)
    with torch.no_grad():
        inputs[0].view(-1)[5] = bad
    with pytest.raises(ValueError, match=r"(query|view0|features) has 1 of .* rows with NaN"):
        row.make(0.1)(*inputs)


@each_loss
def test_wrong_arguments_are_named(row):
    inputs = drawn(row, 6, 4)
    with pytest.raises(TypeError, match=r"(query|view0|features) must be a floating"):
        row.make(0.1)(torch.ones_like(inputs[0], dtype=torch.long), *inputs[1:])
    with pytest.raises(ValueError, match=r"(query|view0|features) must have .* dimensions"):
        row.make(0.1)(inputs[0].flatten(), *inputs[1:])
    with pytest.raises(ValueError, match=r"(query|view0|features) is an empty batch"):
        row.make(0.1)(*drawn(row, 0, 4)) if row.paired and inputs[-1].dtype != torch.bool else row.make(0.1)(
            inputs[0][:0], *(t[:0] for t in inputs[1:])
        )
    with pytest.raises(ValueError, match=r"(query|view0|features) has no dimensions"):
        row.make(0.1)(inputs[0][..., :0], *inputs[1:])
    if len(inputs) > 1:
        with pytest.raises(ValueError, match=r"(positive|view1|labels|mask) "):
            row.make(0.1)(inputs[0], inputs[1][:-1], *inputs[2:])
    for temperature in (0, -1, math.nan, math.inf):
        with pytest.raises(ValueError, match="temperature"):
            row.make(temperature)
    with pytest.raises(TypeError, match="temperature"):
        row.make("hot")
    with pytest.raises(ValueError, match="reduction"):
        row.make(0.1, reduction="average")


@each_loss
def test_the_device_of_each_argument_is_checked(row):
    inputs = drawn(row, 6, 4)
    if len(inputs) > 1:
        with pytest.raises(ValueError, match=r"(positive|view1|labels|mask) is on meta"):
            row.make(0.1)(inputs[0], inputs[1].to("meta"), *inputs[2:])


@each_loss
def test_the_same_call_gives_the_same_bits(row, monkeypatch):
    monkeypatch.setattr(matrix, "DENSE_ELEMENTS", 0)
    inputs = drawn(row, 300, 16, torch.float32)
    first, second = (with_gradient(row.make(0.1), inputs) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@each_loss
def test_it_says_what_it_is(row):
    loss = row.make(0.125, reduction="sum")
    assert "temperature=0.125" in repr(loss)
    assert "reduction='sum'" in repr(loss)
    assert "log_scale" in "".join(row.make(LearnableTemperature()).state_dict())
