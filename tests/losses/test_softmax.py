import doctest

import pytest
import torch
from torch.nn.functional import cross_entropy, linear

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import BalancedSoftmaxLoss, SoftmaxLoss, softmax
from coulomb.similarity import policy
from step_memory import peak_mib

COUNTS = [100, 10, 1, 30]


def batch(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    draw = [torch.randn(*shape, generator=generator, dtype=dtype) for shape in ((9, 5), (4, 5), (4,))]
    return draw[0], torch.arange(9) % 4, *draw[1:]


def test_docstring_examples():
    assert doctest.testmod(softmax, extraglobs={"torch": torch}).failed == 0


@pytest.mark.parametrize("elements", [0, 10**6], ids=["streaming", "small"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_equals_torchs_cross_entropy(elements, smoothing):
    with policy.override(stored=elements):
        features, labels, centers, bias = batch()
        logits = linear(features, centers, bias)
        truth = cross_entropy(logits, labels, label_smoothing=smoothing)
        torch.testing.assert_close(SoftmaxLoss(smoothing)(features, labels, centers, bias), truth)
        adjusted = cross_entropy(logits + torch.tensor(COUNTS).double().log(), labels, label_smoothing=smoothing)
        torch.testing.assert_close(BalancedSoftmaxLoss(COUNTS, smoothing)(features, labels, centers, bias), adjusted)
        tempered = cross_entropy(linear(features, centers) / 0.5 + bias, labels, label_smoothing=smoothing)
        torch.testing.assert_close(SoftmaxLoss(smoothing, 0.5)(features, labels, centers, bias), tempered)


def test_unnormalized_features_of_any_length():
    features, labels, centers, _ = batch(torch.float32)
    features = (300 * features).requires_grad_()
    loss = SoftmaxLoss()(features, labels, centers)
    loss.backward()
    torch.testing.assert_close(loss, cross_entropy(linear(features, centers), labels))
    assert torch.isfinite(features.grad).all()


def test_unknown_labels_are_excluded_and_counted():
    features, labels, centers, bias = batch()
    labels[[1, 5]] = -1
    truth = cross_entropy(linear(features, centers, bias), labels, ignore_index=-1)
    with pytest.warns(CoulombWarning, match="2 of 9 labels"):
        torch.testing.assert_close(SoftmaxLoss()(features, labels, centers, bias), truth)
    with pytest.warns(CoulombWarning, match="9 of 9 labels"):
        loss = SoftmaxLoss()(features.requires_grad_(), torch.full_like(labels, -1), centers, bias)
    loss.backward()
    assert loss.item() == 0
    assert (features.grad == 0).all()


def test_a_single_class_warns():
    features, labels, centers, _ = batch()
    with pytest.warns(CoulombWarning, match="9 of 9 samples"):
        assert float(SoftmaxLoss()(features, torch.zeros_like(labels), centers[:1])) == 0


def test_losses_near_zero_keep_precision():
    loss = SoftmaxLoss()(torch.tensor([[1.0]]), torch.tensor([0]), torch.tensor([[40.0], [0.0]]))
    assert loss.item() == pytest.approx(4.248354e-18, rel=1e-4, abs=0)


def test_errors_name_the_argument():
    features, labels, centers, bias = batch()
    with pytest.raises(ValueError, match="^labels .* 4$"):
        SoftmaxLoss()(features, labels + 1, centers)
    with pytest.raises(ValueError, match=r"^bias .*\[4\]"):
        SoftmaxLoss()(features, labels, centers, bias[:3])
    with pytest.raises(ValueError, match="^centers .*4.*5"):
        SoftmaxLoss()(features, labels, centers[:, :4])
    with pytest.raises(ValueError, match="^centers .*4.*2"):
        BalancedSoftmaxLoss([1, 2])(features, labels, centers)
    for counts, message in [
        ([3, 0], "got 0 for class 1"),
        ([-1.0], "got -1.0 for class 0"),
        ([], "one count per class"),
    ]:
        with pytest.raises(ValueError, match=message):
            BalancedSoftmaxLoss(counts)
    for counts in (None, {}, "many", [1, None], [[1], [2, 3]], [10**400], [1j, 2j], [True], torch.eye(2).to_sparse()):
        with pytest.raises(TypeError, match="^class_counts "):
            BalancedSoftmaxLoss(counts)
    for wrong in ([0.0] * 4, bias.to_sparse(), bias.to(torch.complex64), 0.5):
        with pytest.raises(TypeError, match="^bias "):
            SoftmaxLoss()(features, labels, centers, wrong)
    for smoothing in (-0.1, 1.0):
        with pytest.raises(ValueError, match="label_smoothing"):
            SoftmaxLoss(smoothing)


def test_compiles_without_a_graph_break_after_an_eager_call():
    features, labels, centers, bias = batch(torch.float32)
    loss = BalancedSoftmaxLoss(COUNTS)
    eager = loss(features, labels, centers, bias)
    torch._dynamo.reset()
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(features, labels, centers, bias), eager)
    loss.class_counts[0] = 1  # modified in place: neither call may use the old frequencies
    changed = BalancedSoftmaxLoss(loss.class_counts)(features, labels, centers, bias)
    torch.testing.assert_close(compiled(features, labels, centers, bias), changed)
    torch.testing.assert_close(loss(features, labels, centers, bias), changed)


def test_class_counts_are_saved_exactly():
    state = BalancedSoftmaxLoss([10**9 + 1, 3]).half().state_dict()
    assert state["class_counts"].tolist() == [10**9 + 1, 3]


STEP = """
from coulomb.losses import {loss}
def step(classes):
    draw = torch.Generator().manual_seed(0)
    features = torch.randn(512, 64, generator=draw).requires_grad_()
    labels = torch.randint(0, classes, (512,), generator=draw)
    centers = torch.randn(classes, 64, generator=draw).requires_grad_()
    {call}.backward()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "loss, call, limit",
    [
        ("SoftmaxLoss", "SoftmaxLoss()(features, labels, centers)", 250),
        ("ArcFaceLoss", "ArcFaceLoss(classes, 64)(features, labels)", 380),
    ],
)
def test_logits_are_not_stored(loss, call, limit):
    # 512 × 200,000 logits take 391 MiB, three times in cross-entropy; centers and their gradient take 98 MiB.
    assert 90 < peak_mib(STEP.format(loss=loss, call=call), 5000, 200_000) < limit


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float64, 1e8), (torch.float64, 1e12), (torch.float32, 1e4)], ids=str
)
def test_gradients_of_giant_logits_are_bounded_by_the_rows_if_streamed(dtype, size):
    draw = torch.Generator().manual_seed(1)
    features, centers = (size * torch.randn(n, 8, generator=draw, dtype=torch.float64).to(dtype) for n in (40, 50))
    centers[25:] = centers[:25] * (1 + torch.finfo(dtype).eps)  # logits that differ by their rounding
    labels = torch.randint(0, 50, (40,), generator=draw)
    with policy.override(stored=0, tile=16):
        given = features.requires_grad_(), centers.requires_grad_()
        found = torch.autograd.grad(SoftmaxLoss(reduction="sum")(given[0], labels, given[1]), given)
    assert float(found[0].norm(dim=1).max()) <= 2.001 * float(centers.detach().norm(dim=1).max())
    assert float(found[1].norm(dim=1).max()) <= 2.001 * float(features.detach().norm(dim=1).sum())
