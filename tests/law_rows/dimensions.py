"""Losses that compare dimensions. They have one value per dimension, not per sample."""

import torch

from coulomb.losses import BarlowTwinsLoss, VICRegLoss
from law_rows import Row


def views(n, d, draw):
    return draw(n, d), draw(n, d)


def deviations(column):
    return column - column.mean()


def vicreg_loop(invariance=25.0, variance=25.0, covariance=1.0):
    def loop(tau, x, y):
        n, dim = x.shape
        losses = []
        for d in range(dim):
            loss = invariance * sum((x[i, d] - y[i, d]) ** 2 for i in range(n)) / n
            for view in (x, y):
                column = deviations(view[:, d])
                std = ((column @ column) / max(n - 1, 1) + 1e-4).sqrt()
                loss = loss + variance / 2 * (1 - std).clamp_min(0)
                for e in range(dim):
                    if e != d:
                        loss = loss + covariance * ((column @ deviations(view[:, e])) / max(n - 1, 1)) ** 2
            losses.append(loss)
        return torch.stack(losses)

    return loop


def barlow_loop(weight=0.0051):
    def standard(column):
        column = deviations(column)
        return column / (column.square().mean() + 1e-5).sqrt()

    def loop(tau, x, y):
        n, dim = x.shape
        losses = []
        for d in range(dim):
            loss = 0
            for e in range(dim):
                correlation = standard(x[:, d]) @ standard(y[:, e]) / n
                loss = loss + ((1 - correlation) ** 2 if e == d else weight * correlation**2)
            losses.append(loss)
        return torch.stack(losses)

    return loop


ROWS = {
    "VICRegLoss": Row(
        lambda temperature, **options: VICRegLoss(**options),
        views,
        vicreg_loop(),
        lambda n: 25 * (1 - 1e-4**0.5),
        temperature=False,
        engine=False,
        normalizes=False,
    ),
    "VICRegLoss other weights": Row(
        lambda temperature, **options: VICRegLoss(0.5, 2.0, 3.0, **options),
        views,
        vicreg_loop(0.5, 2.0, 3.0),
        temperature=False,
        engine=False,
        normalizes=False,
    ),
    "BarlowTwinsLoss": Row(
        lambda temperature, **options: BarlowTwinsLoss(0.3, **options),
        views,
        barlow_loop(0.3),
        lambda n: 5.0,  # the number of dimensions
        temperature=False,
        mean=torch.sum,
        engine=False,
        normalizes=False,
    ),
}
