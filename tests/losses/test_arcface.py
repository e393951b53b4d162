import doctest
import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import ArcFaceLoss, arcface


def made(classes=4, dim=5, **options):
    return ArcFaceLoss(classes, dim, generator=torch.Generator().manual_seed(1), **options).double()


def batch():
    return torch.randn(9, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64), torch.arange(9) % 4


def at_angle(theta, **options):
    """Returns the target logit t and dt/dθ for one feature at angle θ from its center."""
    loss = ArcFaceLoss(2, 2, **options).double()
    angle = torch.tensor(theta, dtype=torch.float64, requires_grad=True)
    target = loss._with_margin(angle.cos())
    return target.item(), torch.autograd.grad(target, angle)[0].item()


def test_docstring_example():
    assert doctest.testmod(arcface, extraglobs={"torch": torch}).failed == 0


def test_equals_cross_entropy_of_the_logits_with_margin():
    features, labels = batch()
    loss = made()
    cos = loss.logits(features) / 64
    theta = cos.gather(1, labels[:, None]).acos()
    logits = 64 * cos.scatter(1, labels[:, None], (theta + 0.5).cos())
    assert (theta + 0.5 < math.pi).all()
    torch.testing.assert_close(loss(features, labels), cross_entropy(logits, labels))


def test_zero_margin_equals_a_cosine_classifier():
    features, labels = batch()
    loss = made(margin=0.0, label_smoothing=0.1)
    truth = cross_entropy(loss.logits(features), labels, label_smoothing=0.1)
    torch.testing.assert_close(loss(features, labels), truth)


def test_the_margin_rotates_the_target_and_its_gradient_is_exact():
    for theta in (0.3, 1.5, 2.6):
        value, slope = at_angle(theta)
        assert value == pytest.approx(math.cos(theta + 0.5), abs=1e-9)
        assert slope == pytest.approx(-math.sin(theta + 0.5), abs=1e-9)
    value, slope = at_angle(2.8)  # beyond π − m: cos θ − m·sin m, below −1 and still decreasing
    assert value == pytest.approx(math.cos(2.8) - 0.5 * math.sin(0.5), abs=1e-9)
    assert slope == pytest.approx(-math.sin(2.8), abs=1e-9)
    assert at_angle(1.5, easy_margin=True)[0] == pytest.approx(math.cos(2.0), abs=1e-9)
    assert at_angle(1.6, easy_margin=True)[0] == pytest.approx(math.cos(1.6), abs=1e-9)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradients_are_finite_at_the_center_and_opposite_to_it(sign):
    loss = ArcFaceLoss(3, 4)
    features = (sign * loss.centers.detach()).requires_grad_()
    loss(features, torch.arange(3)).backward()
    assert torch.isfinite(features.grad).all()
    assert torch.isfinite(loss.centers.grad).all()


def test_training_separates_classes_by_the_margin():
    features, labels = batch()
    features.requires_grad_()
    loss = made(scale=8.0)
    optimizer = torch.optim.Adam([features, *loss.parameters()], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss(features, labels).backward()
        optimizer.step()
    theta = (loss.logits(features.detach()).detach() / 8).acos()
    others = theta.scatter(1, labels[:, None], math.pi).amin(1)
    assert (theta[torch.arange(9), labels] + 0.5 < others).all()


def test_diagnosis_compares_the_class_center_with_the_others():
    features, labels = batch()
    loss = made(diagnose=True)
    value, diagnosis = loss(features, labels)
    cos = loss.logits(features).detach() / 64
    torch.testing.assert_close(value, made()(features, labels))
    torch.testing.assert_close(diagnosis.positive, cos[torch.arange(9), labels])
    rest = cos.scatter(1, labels[:, None], -2.0)
    torch.testing.assert_close(diagnosis.hardest_negative, rest.amax(1))
    assert diagnosis.without_positive == 0


def test_degenerate_input():
    features, labels = batch()
    labels[2] = -1
    with pytest.warns(CoulombWarning, match="1 of 9 labels"):
        each = made(reduction="none")(features, labels)
    with pytest.warns(CoulombWarning, match="1 of 9 labels"):
        torch.testing.assert_close(made()(features, labels), each.sum() / 8)
    assert each[2] == 0
    with pytest.warns(CoulombWarning, match="belong to the only class"):
        assert made(1)(features, torch.zeros_like(labels)).item() == 0


def test_errors_name_the_argument():
    features, labels = batch()
    with pytest.raises(ValueError, match="^centers .*3"):
        made(dim=3)(features, labels)
    with pytest.raises(ValueError, match="^labels "):
        made(3)(features, labels)
    for options, message in [
        ({"num_classes": 0, "dim": 2}, "num_classes"),
        ({"num_classes": 2, "dim": 2, "scale": 0}, "scale"),
        ({"num_classes": 2, "dim": 2, "margin": 4}, "margin"),
        ({"num_classes": 2, "dim": 2, "label_smoothing": 2}, "label_smoothing"),
    ]:
        with pytest.raises(ValueError, match=message):
            ArcFaceLoss(**options)


def test_the_same_generator_gives_the_same_centers():
    assert torch.equal(made().centers, made().centers)
    assert len(list(made().parameters())) == 1
