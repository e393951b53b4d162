import math

import pytest
import torch

from coulomb.ground.errors import CoulombWarning
from coulomb.losses import SigmoidLoss
from view_cases import normal, waves


@pytest.mark.parametrize(
    ("scale", "bias", "loss", "squares", "scale_gradient", "bias_gradient"),
    [  # loss and sums of the squared gradients, computed by SigLipLoss of open_clip in fp64
        (
            10,
            -10,
            1.2711282441511595,
            (1.2039499690992206, 1.2684176641571732),
            -5.828043884481222,
            -0.6404732943719836,
        ),
        (4, -1, 2.545013297553915, (0.6060573824223261, 0.4321467984503158), 1.6116282923455794, 1.4814523573579612),
    ],
)
def test_value_and_gradients_equal_open_clips(scale, bias, loss, squares, scale_gradient, bias_gradient):
    query, positive = waves()
    sigmoid = SigmoidLoss(scale, bias).double()
    with torch.no_grad():
        sigmoid.log_scale.fill_(math.log(scale))  # the parameter is rounded to fp32 otherwise
    value = sigmoid(query, positive)
    value.backward()
    assert value.item() == pytest.approx(loss, rel=1e-13)
    assert [t.grad.square().sum().item() for t in (query, positive)] == pytest.approx(squares, rel=1e-12)
    assert sigmoid.log_scale.grad.item() == pytest.approx(scale_gradient, rel=1e-12)
    assert sigmoid.learned_bias.grad.item() == pytest.approx(bias_gradient, rel=1e-12)


def test_distinct_ids_do_not_change_the_loss():
    query, positive = normal(6, 4), normal(6, 4, seed=1)
    loss = SigmoidLoss(learnable=False)
    for ids in (torch.arange(6), torch.full((6,), -1), torch.tensor([5, -1, 3, -1, 0, 1])):
        torch.testing.assert_close(loss(query, positive, ids), loss(query, positive), rtol=0, atol=1e-13)


def test_losses_near_zero_keep_precision():
    x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    for ids in (None, torch.arange(2)):
        loss = SigmoidLoss(scale=40.0, bias=0.0, learnable=False)(x, x, ids)
        assert loss.item() == pytest.approx(2 * math.exp(-40), rel=1e-5)


def test_has_parameters_only_if_learnable():
    assert {name for name, _ in SigmoidLoss().named_parameters()} == {"log_scale", "learned_bias"}
    fixed = SigmoidLoss(learnable=False)
    assert not list(fixed.parameters())
    fixed.scale, fixed.bias = 4.0, -1.0
    x, y = normal(5, 3), normal(5, 3, seed=1)
    torch.testing.assert_close(fixed(x, y), SigmoidLoss(4.0, -1.0, learnable=False)(x, y))


def test_normalize_false_uses_dot_products():
    query, positive = normal(5, 3), normal(5, 3, seed=1)
    scores = 0.5 * query @ positive.T + 0.2
    truth = torch.nn.functional.softplus(scores * (1 - 2 * torch.eye(5))).sum(1).mean()
    torch.testing.assert_close(SigmoidLoss(0.5, 0.2, learnable=False, normalize=False)(query, positive), truth)


def test_training_separates_pairs():
    query, positive = normal(8, 8).requires_grad_(), normal(8, 8, seed=1)
    sigmoid = SigmoidLoss()
    optimizer = torch.optim.Adam([query, *sigmoid.parameters()], lr=0.05)
    before = sigmoid(query, positive).item()
    for _ in range(100):
        optimizer.zero_grad()
        sigmoid(query, positive).backward()
        optimizer.step()
    cosines = torch.nn.functional.normalize(query.detach()) @ torch.nn.functional.normalize(positive).T
    assert sigmoid(query, positive).item() < before / 2
    assert torch.equal(cosines.argmax(1), torch.arange(8))


def test_invalid_ids_raise():
    x = normal(4, 3)
    with pytest.raises(ValueError, match=r"^ids .*\[4\]"):
        SigmoidLoss()(x, x, torch.arange(3))
    with pytest.raises(ValueError, match="^ids .* -2$"):
        SigmoidLoss()(x, x, torch.tensor([0, 1, 2, -2]))


def test_a_single_pair_warns():
    with pytest.warns(CoulombWarning, match="1 of 1 anchors"):
        loss = SigmoidLoss(2.0, -1.0, learnable=False)(torch.ones(1, 2), torch.ones(1, 2))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-1)))
