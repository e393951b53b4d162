import math

import pytest
import torch

from coulomb.losses import NTXentLoss
from coulomb.report.loss_floor import loss_floor


def simplex(n):
    """n unit vectors with cosines −1/(n − 1)."""
    centred = torch.eye(n, dtype=torch.float64) - 1 / n
    return centred / centred.norm(dim=1, keepdim=True)


@pytest.mark.parametrize("n", [2, 3, 8, 40])
@pytest.mark.parametrize("temperature", [0.07, 0.5, 2.0])
def test_the_floor_of_simclr_is_reached_by_a_simplex_and_by_nothing_random(n, temperature):
    floor = loss_floor({"method": "simclr", "temperature": temperature, "n_views": 2}, math.log(2 * n - 1))
    loss = NTXentLoss(temperature=temperature)
    corners = simplex(n)
    assert floor == pytest.approx(float(loss(torch.stack([corners, corners], dim=1))), rel=1e-9)
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 2, 5, generator=generator, dtype=torch.float64)
    assert float(loss(z)) > floor


@pytest.mark.parametrize(
    ("config", "no_signal"),
    [
        ({"method": "moco", "temperature": 0.2}, 8.3),
        ({"method": "simclr", "temperature": 0.2}, None),
        ({"method": "simclr", "temperature": None}, 6.2),
        ({"method": "simclr", "temperature": 0.2, "n_views": 4}, 6.2),
        ({"method": "simclr", "temperature": 0.2, "method_options": {"loss": "hard"}}, 6.2),
        ({"method": "simclr", "temperature": -1.0}, 6.2),
        ({"method": "simclr", "temperature": 0.2}, 1e9),
        ({"method": ["simclr"]}, 6.2),
        ({}, None),
    ],
)
def test_no_floor_is_drawn_where_none_is_known(config, no_signal):
    assert loss_floor(config, no_signal) is None


def test_losses_of_cosines_alone_have_theirs():
    assert loss_floor({"method": "byol"}, None) == 0
    assert loss_floor({"method": "simsiam"}, None) == -1
