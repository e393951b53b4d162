"""Seeds of layers that draw from the global generator."""

import torch

from coulomb.ground.randomness import derive_seed, seed_layers


def test_layers_draw_as_after_manual_seed():
    with torch.random.fork_rng(devices=[]):
        seed_layers(torch.device("cpu"), 5, "step", 3)
        drawn = torch.nn.functional.dropout(torch.ones(100), 0.5)
        torch.manual_seed(derive_seed(5, "step", 3))
        assert torch.equal(drawn, torch.nn.functional.dropout(torch.ones(100), 0.5))
