import math

import torch

from coulomb.losses import NCELoss
from law_rows import Row, unit

INSTANCES = 50


def log_z(temperature):
    """Returns log Z for a temperature: with the same Z, most e^(cos/τ)/Z would be far above 1 at τ = 0.01."""
    return 95.0 if isinstance(temperature, float) and temperature < 0.02 else math.log(40.0)


def nce_loop(tau, query, positive, noise, index=None):
    query, positive, noise = unit(query), unit(positive), unit(noise)
    noise_prob = noise_probabilities(query.dtype)
    losses = []
    for i in range(len(query)):
        m, total = noise.shape[1], 0.0
        for k in range(m + 1):
            vector = positive[i] if k == 0 else noise[i, k - 1]
            log_p = query[i] @ vector / tau - log_z(tau)
            pn = 1 / INSTANCES if index is None else noise_prob[index[i, k]]
            log_odds = log_p - math.log(m * pn)  # log(P / mPₙ)
            # −log σ(±log odds), because P/(P + mPₙ) is a sigmoid
            total = total - torch.nn.functional.logsigmoid(log_odds if k == 0 else -log_odds)
        losses.append(total)
    return torch.stack(losses)


def noise_probabilities(dtype=torch.float64):
    return torch.arange(1, INSTANCES + 1).double().softmax(0).add(0.01).div(1 + 0.01 * INSTANCES).to(dtype)


def inputs(n, d, draw):
    return draw(n, d), draw(n, d), draw(n, 4, d)


def inputs_with_index(n, d, draw):
    return *inputs(n, d, draw), torch.arange(5 * n).view(n, 5) * 7 % INSTANCES


def crowd(draw):
    return draw(2, 8), draw(2, 8), draw(2, 65536, 8)


def crowded(tau, query, positive, noise):
    query, positive, noise = unit(query), unit(positive), unit(noise)
    odds = torch.cat([query * positive, (query[:, None] * noise).flatten(0, 1)]).sum(-1) / tau - log_z(tau)
    own, others = odds[:2], odds[2:].view(2, -1)
    prior = math.log(others.shape[1] / INSTANCES)
    logsigmoid = torch.nn.functional.logsigmoid
    return -logsigmoid(own - prior) - logsigmoid(prior - others).sum(1)


def constant(tau=0.2, m=4):
    odds = 1 / tau - math.log(40.0) - math.log(m / INSTANCES)
    return math.log1p(math.exp(-odds)) + m * math.log1p(math.exp(odds))


ROWS = {
    "NCELoss": Row(
        lambda temperature, **options: NCELoss(INSTANCES, temperature, math.exp(log_z(temperature)), **options),
        inputs,
        nce_loop,
        lambda n: constant(),
        engine=False,
        crowd=crowd,
        crowded=crowded,
    ),
    "NCELoss unigram": Row(
        lambda temperature, **options: NCELoss(
            INSTANCES, temperature, math.exp(log_z(temperature)), noise_probabilities().log(), **options
        ),
        inputs_with_index,
        nce_loop,
        engine=False,
    ),
}
