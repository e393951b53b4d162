"""NumPy's word on what is measured: plain loops in fp64."""

import numpy as np
import torch


def normal(n, d, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_labels(n, classes, seed=0, unknown=True):
    """Random labels, some of them −1."""
    low = -1 if unknown else 0
    return torch.randint(low, classes, (n,), generator=torch.Generator().manual_seed(seed))


def two_views(n, d, seed=0, noise=0.7):
    x = normal(n, d, seed)
    return x, x + noise * normal(n, d, seed + 1)


def unit(x):
    x = x.numpy()
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def cosines(x, y):
    return unit(x) @ unit(y).T
