import pytest
import torch
from torch import nn

from coulomb.ground.errors import InputError
from coulomb.models import predictor, projection_head


def kinds(head):
    return [type(part).__name__ for part in head]


def test_simclr_as_in_the_paper():
    head = projection_head(512)
    assert kinds(head) == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert (head[0].in_features, head[0].out_features, head[3].out_features) == (512, 512, 128)
    assert head[0].bias is None and head[3].bias is not None
    assert head(torch.rand(4, 512)).shape == (4, 128)


def test_simclr_as_in_the_code():
    head = projection_head(8, layers=3, last_batch_norm=True)
    assert kinds(head) == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert not head[-1].bias.requires_grad and head[-1].weight.requires_grad
    out = head(torch.rand(64, 8))
    torch.testing.assert_close(out.mean(0), torch.zeros(128), atol=1e-5, rtol=0)


def test_supcon():
    head = projection_head(2048, hidden_dim=2048, batch_norm=False)
    assert kinds(head) == ["Linear", "ReLU", "Linear"]
    assert sum(p.numel() for p in head.parameters()) == 2048 * 2048 + 2048 + 2048 * 128 + 128


def test_simsiam():
    head = projection_head(8, layers=3, last_batch_norm=True, last_scale=False)
    assert kinds(head) == ["Linear", "BatchNorm1d", "ReLU"] * 2 + ["Linear", "BatchNorm1d"]
    assert head[-1].weight is None and head[-1].bias is None and head[-2].bias is None


def test_predictor():
    made = predictor(8, hidden_dim=2)
    assert kinds(made) == ["Linear", "BatchNorm1d", "ReLU", "Linear"]
    assert made(torch.rand(4, 8)).shape == (4, 8) and made[0].out_features == 2
    assert kinds(predictor(8, hidden_dim=2, batch_norm=False)) == ["Linear", "ReLU", "Linear"]
    assert not torch.equal(made[0].weight, predictor(8, hidden_dim=2, seed=1)[0].weight)
    with pytest.raises(InputError, match="hidden_dim=0"):
        predictor(8, hidden_dim=0)


def test_linear_head():
    assert kinds(projection_head(8, layers=1, out_dim=3)) == ["Linear"]


def test_no_layers_are_the_identity():
    made, x = projection_head(8, layers=0, out_dim=8), torch.rand(2, 8)
    assert made(x) is x and not list(made.parameters())


def test_weights_come_from_the_seed():
    state = torch.get_rng_state()
    first, again, other = (projection_head(8, seed=seed)[0].weight for seed in (1, 1, 2))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(state, torch.get_rng_state())


@pytest.mark.parametrize("bad", [{"layers": 0}, {"out_dim": 0}, {"hidden_dim": -1}])
def test_sizes_below_one_are_refused(bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        projection_head(8, **bad)


def test_projection_head_is_a_plain_module():
    assert isinstance(projection_head(4), nn.Sequential)
