"""Inputs of the tests of losses."""

import torch


def waves(n=6, d=4):
    """Two similar views [N, D] in fp64, by a formula, so that reference values do not depend on a random generator."""
    at = torch.arange(n * d, dtype=torch.float64).view(n, d)
    first, second = torch.sin(at.square()), torch.sin(at.square() + 0.5 * torch.cos(3 * at))
    return first.requires_grad_(), second.requires_grad_()


def normal(*shape, seed=0):
    """Normal numbers in fp64."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
