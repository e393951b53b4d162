import math

import torch

from coulomb.losses import InfoNCELoss
from law_rows import Row, log_sum_exp, unit


def infonce_loop(tau, query, positive, negatives=None):
    query, positive = unit(query), unit(positive)
    losses = []
    for i in range(len(query)):
        own = query[i] @ positive[i] / tau
        if negatives is None:
            others = [query[i] @ positive[j] / tau for j in range(len(query)) if j != i]
        else:
            others = [query[i] @ k / tau for k in unit(negatives)]
        losses.append(log_sum_exp([own, *others]) - own)
    return torch.stack(losses)


def symmetric_loop(tau, query, positive):
    return (infonce_loop(tau, query, positive) + infonce_loop(tau, positive, query)) / 2


def crowd(draw):
    return draw(2, 8), draw(2, 8), draw(65536, 8)


def crowded(tau, query, positive, negatives):
    query, positive = unit(query), unit(positive)
    own = (query * positive).sum(1, keepdim=True)
    return torch.nn.functional.cross_entropy(
        torch.cat([own, query @ unit(negatives).T], 1) / tau, torch.zeros(2, dtype=torch.long), reduction="none"
    )


ROWS = {
    "InfoNCELoss": Row(InfoNCELoss, lambda n, d, draw: (draw(n, d), draw(n, d)), infonce_loop, math.log, sharp=True),
    "InfoNCELoss symmetric": Row(
        lambda *a, **k: InfoNCELoss(*a, symmetric=True, **k),
        lambda n, d, draw: (draw(n, d), draw(n, d)),
        symmetric_loop,
        math.log,
        sharp=True,
    ),
    "InfoNCELoss queue": Row(
        InfoNCELoss,
        lambda n, d, draw: (draw(n, d), draw(n, d), draw(2 * n + 1, d)),
        infonce_loop,
        lambda n: math.log(2 * n + 2),
        paired=False,
        sharp=True,
        crowd=crowd,
        crowded=crowded,
    ),
}
