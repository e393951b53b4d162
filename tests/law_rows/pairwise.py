import math

import torch

from coulomb.losses import SigmoidLoss
from law_rows import Row, unit

LEARNED = torch.tensor(10.0).log().exp().item()  # 10, rounded like the parameter


def sigmoid_loop(scale, bias, left_out=False):
    def loop(tau, query, positive, ids=None):
        query, positive = unit(query), unit(positive)
        ids = torch.full((len(query),), -1) if ids is None else ids
        losses = []
        for i in range(len(query)):
            terms = []
            for j in range(len(query)):
                alike = i == j or bool(((ids[i] == ids[j]) & (ids[i] >= 0)).any())
                if left_out and alike and i != j:
                    continue
                score = scale(tau) * (query[i] @ positive[j]) + bias(tau)
                terms.append(-torch.nn.functional.logsigmoid(score if alike else -score))
            losses.append(torch.stack(terms).sum())
        return torch.stack(losses)

    return loop


def softplus(x):
    return math.log1p(math.exp(x))


def fixed(temperature, **options):
    return SigmoidLoss(2 / temperature, -1 / temperature, learnable=False, **options)


def pairs(n, d, draw):
    return draw(n, d), draw(n, d)


def pairs_and_ids(n, d, draw):
    return *pairs(n, d, draw), torch.tensor([0, 1, 0, 2, -1, 1, 2, -1, 0]).repeat(-(-n // 9))[:n]


def pairs_and_two_ids(n, d, draw):
    query, positive, ids = pairs_and_ids(n, d, draw)
    return query, positive, torch.stack([ids, torch.arange(n) // 2 % 4], 1)


ROWS = {
    "SigmoidLoss": Row(
        lambda temperature, **options: SigmoidLoss(**options),
        pairs,
        sigmoid_loop(lambda tau: LEARNED, lambda tau: -10.0),
        lambda n: softplus(10 - LEARNED) + (n - 1) * softplus(LEARNED - 10),
        temperature=False,
    ),
    "SigmoidLoss fixed": Row(
        fixed,
        pairs,
        sigmoid_loop(lambda tau: 2 / tau, lambda tau: -1 / tau),
        lambda n: softplus(-1 / 0.2) + (n - 1) * softplus(1 / 0.2),
        temperature=False,
        sharp=True,
    ),
    "SigmoidLoss ids": Row(
        fixed, pairs_and_ids, sigmoid_loop(lambda tau: 2 / tau, lambda tau: -1 / tau), temperature=False
    ),
    # With so many positives, half the scale keeps the sums of a row below 200, as the law of accuracy has them.
    "SigmoidLoss two ids": Row(
        lambda temperature, **options: fixed(2 * temperature, **options),
        pairs_and_two_ids,
        sigmoid_loop(lambda tau: 1 / tau, lambda tau: -0.5 / tau),
        temperature=False,
    ),
    "SigmoidLoss two ids left out": Row(
        lambda *a, **k: fixed(*a, same_id="left_out", **k),
        pairs_and_two_ids,
        sigmoid_loop(lambda tau: 2 / tau, lambda tau: -1 / tau, left_out=True),
        temperature=False,
    ),
}
