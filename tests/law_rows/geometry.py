import math

import torch

from coulomb.losses import AlignmentLoss, NegativeCosineLoss, UniformityLoss
from law_rows import Row, log_sum_exp, unit


def pairs(n, d, draw):
    return draw(n, d), draw(n, d)


def alone(n, d, draw):
    return (draw(n, d),)


def cosine_loop(tau, prediction, target):
    return torch.stack([-(p @ z) for p, z in zip(unit(prediction), unit(target), strict=True)])


def alignment_loop(alpha, scaled=unit):
    def loop(tau, x, y):
        rows = zip(scaled(x), scaled(y), strict=True)
        return torch.stack([((a - b) ** 2).sum() ** (alpha / 2) for a, b in rows])

    return loop


def uniformity_loop(scaled=unit, t=2.0):
    def loop(tau, x):
        x = scaled(x)
        return torch.stack(
            [
                log_sum_exp([-t * ((x[i] - x[j]) ** 2).sum() for j in range(len(x)) if j != i]) - math.log(len(x) - 1)
                for i in range(len(x))
            ]
        )

    return loop


def as_is(x):
    return x


def log_mean_exp(rows):
    return rows.logsumexp(0) - math.log(len(rows))


ROWS = {
    "NegativeCosineLoss": Row(
        lambda temperature, **options: NegativeCosineLoss(stop_gradient=False, **options),
        pairs,
        cosine_loop,
        lambda n: -1.0,
        temperature=False,
        engine=False,
    ),
    "AlignmentLoss": Row(
        lambda temperature, **options: AlignmentLoss(**options),
        pairs,
        alignment_loop(2),
        lambda n: 0.0,
        temperature=False,
        engine=False,
    ),
    "AlignmentLoss alpha=1": Row(
        lambda temperature, **options: AlignmentLoss(1, **options),
        pairs,
        alignment_loop(1),
        lambda n: 0.0,
        temperature=False,
        engine=False,
    ),
    "AlignmentLoss as it is": Row(
        lambda temperature, **options: AlignmentLoss(3, normalize=False, **options),
        pairs,
        alignment_loop(3, as_is),
        lambda n: 0.0,
        temperature=False,
        engine=False,
        normalizes=False,
    ),
    "UniformityLoss": Row(
        lambda temperature, **options: UniformityLoss(**options),
        alone,
        uniformity_loop(),
        lambda n: 0.0,
        temperature=False,
        mean=log_mean_exp,
    ),
    "UniformityLoss as it is": Row(
        lambda temperature, **options: UniformityLoss(0.3, normalize=False, **options),
        alone,
        uniformity_loop(as_is, 0.3),
        lambda n: 0.0,
        temperature=False,
        mean=log_mean_exp,
        normalizes=False,
    ),
}
