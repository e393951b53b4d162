import math

import torch

from coulomb.losses import HardContrastiveLoss, HardSimpleLoss, SimpleContrastiveLoss
from law_rows import Row, log_sum_exp, unit


def top(query, positive, negatives, k):
    """Returns, for each anchor, its similarity to its positive and its k largest similarities to negatives."""
    query, positive = unit(query), unit(positive)
    for i in range(len(query)):
        if negatives is None:
            others = [query[i] @ positive[j] for j in range(len(query)) if j != i]
        else:
            others = [query[i] @ j for j in unit(negatives)]
        last = sorted(s.item() for s in others)[-k] if k <= len(others) else -math.inf
        yield query[i] @ positive[i], [s for s in others if s.item() >= last]


def hard_loop(tau, query, positive, negatives=None, k=3):
    pairs = top(query, positive, negatives, k)
    return torch.stack([log_sum_exp([own / tau, *(s / tau for s in best)]) - own / tau for own, best in pairs])


def simple_loop(tau, query, positive, negatives=None, k=10**6, weight=0.7):
    pairs = top(query, positive, negatives, k)
    return torch.stack([weight * torch.stack([*best, 0 * own]).sum() - own for own, best in pairs])


def hard(temperature, **options):
    return HardContrastiveLoss(temperature, top_k=3, **options)


def simple(temperature, **options):
    return SimpleContrastiveLoss(0.7, **options)


def hard_simple(temperature, **options):
    return HardSimpleLoss(0.7, top_k=3, **options)


def in_batch(n, d, draw):
    return draw(n, d), draw(n, d)


def queued(n, d, draw):
    return draw(n, d), draw(n, d), draw(2 * n + 1, d)


def hard_simple_loop(tau, *inputs):
    return simple_loop(tau, *inputs, *[None] * (3 - len(inputs)), 3)


# With equal features all negatives tie, so all of them count.
ROWS = {
    "HardContrastiveLoss": Row(hard, in_batch, hard_loop, math.log, sharp=True),
    "HardContrastiveLoss queue": Row(hard, queued, hard_loop, lambda n: math.log(2 * n + 2), paired=False, sharp=True),
    "SimpleContrastiveLoss": Row(simple, in_batch, simple_loop, lambda n: 0.7 * (n - 1) - 1, temperature=False),
    "SimpleContrastiveLoss queue": Row(
        simple, queued, simple_loop, lambda n: 0.7 * (2 * n + 1) - 1, temperature=False, paired=False
    ),
    "HardSimpleLoss": Row(hard_simple, in_batch, hard_simple_loop, lambda n: 0.7 * (n - 1) - 1, temperature=False),
    "HardSimpleLoss queue": Row(
        hard_simple, queued, hard_simple_loop, lambda n: 0.7 * (2 * n + 1) - 1, temperature=False, paired=False
    ),
}
