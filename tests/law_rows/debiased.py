import math

import torch

from coulomb.losses import DebiasedLoss, HardNegativeLoss
from law_rows import Row, unit


def hard_loop(tau, x, y, beta=0.0, tau_plus=0.1):
    """Computes the authors' formula for each anchor."""
    n, z = len(x), unit(torch.cat([x, y]))
    losses = []
    for i in range(2 * n):
        pos = (z[i] @ z[(i + n) % (2 * n)] / tau).exp()
        s = torch.stack([z[i] @ z[k] / tau for k in range(2 * n) if k % n != i % n])
        m, importance = len(s), (beta * s).exp()
        reweighted = (importance * s.exp()).sum() / importance.mean()
        least = m * torch.as_tensor(-1 / tau, dtype=s.dtype).exp()
        negatives = torch.maximum((reweighted - tau_plus * m * pos) / (1 - tau_plus), least)
        losses.append(torch.log1p(negatives / pos))
    return torch.stack(losses)


def views(n, d, draw):
    return draw(n, d), draw(n, d)


def of(loss, **options):
    def make(temperature, **more):
        return loss(temperature, **options, **more)

    def loop(tau, x, y):
        return hard_loop(tau, x, y, **options)

    return Row(make, views, loop, lambda n: math.log(2 * n - 1), sharp=True)


ROWS = {
    "DebiasedLoss": of(DebiasedLoss),
    "DebiasedLoss tau_plus=.02": of(DebiasedLoss, tau_plus=0.02),
    "HardNegativeLoss": of(HardNegativeLoss, beta=1.0),
    "HardNegativeLoss beta=.5, tau_plus=0": of(HardNegativeLoss, beta=0.5, tau_plus=0.0),
}
