"""Small batches, whose matrix is stored as one tile: results equal the streamed ones, and gradients behave as in autograd."""

import warnings
from pathlib import Path

import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import (
    ArcFaceLoss,
    DebiasedLoss,
    DecoupledLoss,
    HardContrastiveLoss,
    HardNegativeLoss,
    HardSimpleLoss,
    InfoNCELoss,
    LearnableTemperature,
    NCELoss,
    NegativeCosineLoss,
    NTXentLoss,
    PaCoLoss,
    SigmoidLoss,
    SimpleContrastiveLoss,
    SoftmaxLoss,
    SupConLoss,
    TripletLoss,
    UniformityLoss,
)
from coulomb.similarity import policy

N, D, C = 12, 6, 3
LABELS = torch.arange(N) % C


def drawn(*shapes, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*s, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for s in shapes]


NOISE = drawn((N, 9, D), dtype=torch.bfloat16, seed=1)[0].detach()


def pair(**options):
    return drawn((N, D), (N, D), **options)


def queue(**options):
    return drawn((N, D), (N, D), (7, D), **options)


CASES = {
    "NTXent": (lambda **o: NTXentLoss(**o), pair),
    "NTXent stacked": (lambda **o: NTXentLoss(**o), lambda **o: drawn((N, 2, D), **o)),
    "InfoNCE": (lambda **o: InfoNCELoss(**o), pair),
    "InfoNCE symmetric": (lambda **o: InfoNCELoss(symmetric=True, **o), pair),
    "InfoNCE queue": (lambda **o: InfoNCELoss(**o), queue),
    "Debiased": (lambda **o: DebiasedLoss(**o), pair),
    "Decoupled": (lambda **o: DecoupledLoss(**o), pair),
    "Decoupled weighted": (lambda **o: DecoupledLoss(weighted=True, **o), pair),
    "HardNegative": (lambda **o: HardNegativeLoss(**o), pair),
    "HardNegative beta=.5": (lambda **o: HardNegativeLoss(beta=0.5, **o), pair),
    "Hard": (lambda **o: HardContrastiveLoss(top_k=3, **o), pair),
    "Hard queue": (lambda **o: HardContrastiveLoss(top_k=3, **o), queue),
    "SupCon": (
        lambda **o: lambda x, loss=SupConLoss(**o): loss(x, LABELS),
        lambda **o: drawn((N, 2, D), **o),
    ),
    "SupCon [B, D], no labels' views": (
        lambda **o: lambda x, loss=SupConLoss(**o): loss(x),
        lambda **o: drawn((N, 3, D), **o),
    ),
    "PaCo": (
        lambda **o: lambda x, c, loss=PaCoLoss([5, 3, 1], gamma=0.7, **o): loss(x, LABELS, c),
        lambda **o: drawn((N, D), (5, C), **o),
    ),
    "NCE": (
        lambda **o: lambda q, p, loss=NCELoss(50, normalizer=40.0, **o): loss(q, p, NOISE.to(q.dtype)),
        pair,
    ),
}
COLD = {
    "Simple": (lambda **o: SimpleContrastiveLoss(0.3, **o), pair),
    "Simple queue": (lambda **o: SimpleContrastiveLoss(0.3, **o), queue),
    "HardSimple": (lambda **o: HardSimpleLoss(0.3, top_k=3, **o), pair),
    "HardSimple queue": (lambda **o: HardSimpleLoss(0.3, top_k=3, **o), queue),
    "Sigmoid": (lambda **o: SigmoidLoss(**o), pair),
    "NegativeCosine": (lambda **o: NegativeCosineLoss(stop_gradient=False, **o), pair),
}
NORMALIZED = {
    "Uniformity": (lambda **o: UniformityLoss(**o), lambda **o: drawn((N, D), **o)),
    "Triplet": (
        lambda **o: lambda x, loss=TripletLoss(mining="hard", **o): loss(x, LABELS),
        lambda **o: drawn((N, D), **o),
    ),
    "Triplet soft": (
        lambda **o: lambda x, loss=TripletLoss(mining="hard", soft=True, **o): loss(x, LABELS),
        lambda **o: drawn((N, D), **o),
    ),
    "ArcFace": (lambda **o: arcface(**o), lambda **o: drawn((N, D), (C, D), **o)),
    "ArcFace easy": (lambda **o: arcface(easy_margin=True, **o), lambda **o: drawn((N, D), (C, D), **o)),
}
ALL = CASES | COLD | NORMALIZED
each_case = pytest.mark.parametrize("name", ALL)


def arcface(**options):
    loss = ArcFaceLoss(C, D, scale=8.0, **options)
    del loss.centers

    def call(features, centers):
        loss.centers = centers
        return loss(features, LABELS)

    return call


def step(loss, inputs, **options):
    value = loss(*inputs)
    return value, *torch.autograd.grad(value, inputs, **options)


def streamed(loss, inputs):
    with policy.override(stored=0, tile=5):
        return step(loss, inputs)


def assert_alike(mine, true, **tolerances):
    for a, b in zip(mine, true, strict=True):
        torch.testing.assert_close(a, b, **tolerances)


@each_case
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_equals_the_streamed_loss(name, reduction):
    make, inputs = ALL[name]
    loss, given = make(reduction=reduction), inputs()
    mine = step(loss, given)
    assert_alike(mine, streamed(loss, given), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_learned_temperature_equals_the_streamed_loss(name):
    make, inputs = CASES[name]
    temperature = LearnableTemperature(0.4).double()
    loss, given = make(temperature=temperature), [*inputs(), temperature.log_scale]
    call = lambda *x: loss(*x[:-1])  # noqa: E731
    mine = step(call, given)
    assert_alike(mine, streamed(call, given), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in CASES | COLD if name not in ("Debiased", "NegativeCosine")])
def test_unnormalized_rows_equal_the_streamed_loss(name):
    make, inputs = (CASES | COLD)[name]
    loss, given = make(normalize=False), inputs()
    assert_alike(step(loss, given), streamed(loss, given), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_exponentials_out_of_range_are_accurate(name):
    make, inputs = CASES[name]  # in fp32, where the maximum must be subtracted; the reference is in fp64
    loss, given = make(temperature=0.004), inputs(dtype=torch.float32)
    true = streamed(loss, [one.detach().double().requires_grad_() for one in given])
    for mine, right in zip(step(loss, given), true, strict=True):
        assert (mine - right).abs().max() <= 2e-5 * right.abs().max()


@each_case
def test_gradients_have_the_precision_of_their_inputs(name):
    make, inputs = ALL[name]
    given = inputs(dtype=torch.bfloat16)
    value, *grads = step(make(), given)
    assert value.dtype == torch.float32
    assert [g.dtype for g in grads] == [torch.bfloat16] * len(given)
    assert_alike(
        grads, step(make(), [one.detach().float().requires_grad_() for one in given])[1:], rtol=0.01, atol=1e-3,
        check_dtype=False,
    )  # fmt: skip


@each_case
def test_no_grad_computes_only_the_value(name):
    make, inputs = ALL[name]
    given = inputs()
    with torch.no_grad():
        value = make()(*given)
    assert not value.requires_grad
    torch.testing.assert_close(value, make()(*given).detach())


def test_only_inputs_that_require_grad_get_a_gradient():
    query, positive, negatives = queue()
    value = InfoNCELoss()(query, positive.detach(), negatives.detach())
    value.backward()
    assert query.grad is not None and positive.grad is None and negatives.grad is None


def test_upstream_factors_and_repeated_backward_are_correct():
    first, second = pair()
    value = NTXentLoss()(first, second)
    once = torch.autograd.grad(value, first, retain_graph=True)[0]
    torch.testing.assert_close(torch.autograd.grad(value * 3, first, retain_graph=True)[0], 3 * once)
    assert torch.equal(torch.autograd.grad(value, first)[0], once)


def test_modifying_a_gradient_in_place_does_not_affect_others():
    first, second = pair()
    value = NTXentLoss()(first, second)
    before = torch.autograd.grad(value, first, retain_graph=True)[0]
    expected = before.clone()
    before.zero_()
    assert torch.equal(torch.autograd.grad(value, first)[0], expected)


def test_the_queue_may_be_updated_before_backward():
    query, positive, negatives = queue()
    negatives = negatives.detach()
    value = InfoNCELoss()(query, positive, negatives)
    right = torch.autograd.grad(value, query, retain_graph=True)[0]
    negatives.zero_()
    assert torch.equal(torch.autograd.grad(value, query, retain_graph=True)[0], right)


def test_warnings_point_to_the_callers_line():
    first, second = pair()
    with torch.no_grad():
        first[1] = 0
    features = torch.zeros(3, 2, D)
    features[0] = 1
    for loss, inputs in (
        (NTXentLoss(), (first, second)),
        (NTXentLoss(reduction="none"), (first, second)),
        (InfoNCELoss(), (first, second)),
        (SupConLoss(), (features, torch.tensor([0, 0, 0]))),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss(*inputs)
        assert {Path(one.filename).name for one in caught} == {Path(__file__).name}
        assert {one.category for one in caught} == {CoulombWarning}


def test_anchors_without_a_positive_are_counted():
    (features,) = drawn((3, D))
    with pytest.warns(CoulombWarning, match="1 of 3 anchors"):
        SupConLoss()(features, torch.tensor([0, 0, 1]))
    with pytest.warns(CoulombWarning, match="1 of 3 anchors"):
        TripletLoss(mining="hard")(features, torch.tensor([0, 0, 1]))


def test_each_warning_is_issued_once():
    (features,) = drawn((4, D))
    with torch.no_grad():
        features[0] = 0
    zero = "1 of 4 rows"
    alone = torch.tensor([0, 0, 0, 1])
    pairs = torch.tensor([0, 0, 1, 1])
    for loss, labels, messages in (
        (SupConLoss(), alone, ["1 of 4 anchors", zero]),
        (SupConLoss(), pairs, [zero]),
        (TripletLoss(mining="hard"), alone, ["1 of 4 anchors", zero]),
        (TripletLoss(mining="hard", margin=2.0), pairs, [zero]),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loss(features, labels)
        assert sorted(" ".join(str(one.message).split()[:4]) for one in caught) == messages


def test_no_active_triplet_warns_and_gives_no_gradient():
    rows = torch.eye(4)[[0, 0, 1, 1]].requires_grad_()
    with pytest.warns(CoulombWarning, match="0 of 4 anchors") as caught:
        loss = TripletLoss(mining="hard")(rows, torch.tensor([0, 0, 1, 1]))
    assert len(caught) == 1
    assert loss.item() == 0
    assert not torch.autograd.grad(loss, rows)[0].any()


def test_large_labels_that_floats_cannot_represent_are_distinct():
    (features,) = drawn((4, D), dtype=torch.float32)
    large = torch.tensor([0, 0, 1, 1]) + 2**24
    for loss in (SupConLoss(), TripletLoss(mining="hard", margin=2.0)):
        torch.testing.assert_close(loss(features, large), loss(features, large - 2**24))


def test_softmax_losses_near_zero_are_accurate_and_invalid_labels_raise():
    features, labels = 30 * torch.eye(4), torch.arange(4)
    near_zero = SoftmaxLoss()(features, labels, torch.eye(4))
    assert near_zero.item() == pytest.approx(3 * torch.exp(torch.tensor(-30.0).double()).item(), rel=1e-5)
    for bad in (-2, 4, -100):  # torch's cross_entropy ignores −100 silently
        with pytest.raises(ValueError, match="^labels "):
            SoftmaxLoss()(features, torch.tensor([0, 1, 2, bad]), torch.eye(4))


@pytest.mark.parametrize(
    "loss", [InfoNCELoss(), HardContrastiveLoss(top_k=3), SimpleContrastiveLoss(), HardSimpleLoss(top_k=3)]
)
@pytest.mark.parametrize("wide", [0, 1, 2])
def test_inputs_may_differ_in_dtype(wide, loss):
    given = queue(dtype=torch.float32)
    given[wide] = given[wide].detach().double().requires_grad_()
    right = step(loss, [one.detach().double().requires_grad_() for one in given])
    mine = step(loss, given)
    assert [g.dtype for g in mine[1:]] == [one.dtype for one in given]
    assert_alike(mine, right, rtol=1e-4, atol=1e-6, check_dtype=False)
