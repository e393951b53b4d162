import math

import torch

from coulomb.losses import DecoupledLoss
from law_rows import Row, log_sum_exp, unit


def decoupled_loop(sigma=None):
    def loop(tau, view0, view1):
        z, n = unit(torch.cat([view0, view1])), len(view0)
        cosines = [z[i] @ z[i + n] for i in range(n)]
        scores = [0 * c if sigma is None else c / sigma for c in cosines]
        weights = [2 - s.exp() / (sum(t.exp() for t in scores) / n) for s in scores]
        losses = []
        for i in range(2 * n):
            negatives = [z[i] @ z[j] / tau for j in range(2 * n) if j % n != i % n]
            losses.append(log_sum_exp(negatives) - weights[i % n] * cosines[i % n] / tau)
        return torch.stack(losses)

    return loop


def views(n, d, draw):
    return draw(n, d), draw(n, d)


ROWS = {
    "DecoupledLoss": Row(DecoupledLoss, views, decoupled_loop(), lambda n: math.log(2 * n - 2)),
    "DecoupledLoss weighted": Row(
        lambda temperature, **options: DecoupledLoss(temperature, weighted=True, sigma=0.3, **options),
        views,
        decoupled_loop(0.3),
        lambda n: math.log(2 * n - 2),
    ),
}
