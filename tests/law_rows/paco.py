import math

import torch

from coulomb.losses import PaCoLoss
from law_rows import Row, unit

COUNTS = [50, 7, 20]


def paco_loop(tau, features, labels, center_logits, counts=None, alpha=0.05, beta=1.0, gamma=1.0, supt=1.0, **options):
    normalized, smoothing = options.get("normalized", True), options.get("smoothing", 0.0)
    z, classes = unit(features), center_logits.shape[1]
    losses = []
    for i in range(len(center_logits)):
        prior = [0.0] * classes if counts is None else [math.log(n / sum(counts)) for n in counts]
        centers = [(center_logits[i, c] + prior[c]) / supt for c in range(classes)]
        scores = {j: z[i] @ z[j] / tau for j in range(len(z)) if j != i}
        terms = [*centers, *(s + math.log(gamma) for s in scores.values())]
        lse = torch.logsumexp(torch.stack(terms), 0)
        weighted = [
            (beta * (1 - smoothing if c == labels[i] else smoothing / (classes - 1)), centers[c])
            for c in range(classes)
        ]
        weighted += [(alpha, s) for j, s in scores.items() if labels[j] == labels[i]]
        total = sum(float(w) for w, _ in weighted)
        loss = sum(w * (lse - logit) for w, logit in weighted)
        losses.append(loss / total if normalized else loss)
    return torch.stack(losses)


def two_views(n, d, draw):
    return draw(2 * n, d), (torch.arange(n) % 3).repeat(2), draw(n, 3)


def two_views_and_queue(n, d, draw):
    features, labels, centers = two_views(n, d, draw)
    queue = torch.arange(n) % 4 - 1  # some entries are not filled
    return torch.cat([features, draw(n, d)]), torch.cat([labels, queue]), centers


def both_views_anchor(n, d, draw):
    return draw(2 * n, d), (torch.arange(n) % 3).repeat(2), draw(2 * n, 3)


def reordered(inputs, order):
    features, labels, centers = inputs
    n = len(order)
    rows = torch.cat([order + start for start in range(0, len(features), n)])
    return features[rows], labels[rows], centers[rows[: len(centers)]]


ROWS = {
    "PaCoLoss": Row(
        lambda tau, **k: PaCoLoss(COUNTS, temperature=tau, **k),
        two_views_and_queue,
        lambda *a: paco_loop(*a, counts=COUNTS),
        shuffle=reordered,
    ),
    "PaCoLoss plain sum": Row(
        lambda tau, **k: PaCoLoss(None, 0.3, 0.7, 0.5, 2.0, tau, normalized=False, label_smoothing=0.2, **k),
        two_views,
        lambda *a: paco_loop(*a, None, 0.3, 0.7, 0.5, 2.0, normalized=False, smoothing=0.2),
        shuffle=reordered,
    ),
    "PaCoLoss both views anchor": Row(
        lambda tau, **k: PaCoLoss(temperature=tau, **k),
        both_views_anchor,
        paco_loop,
        shuffle=reordered,
    ),
}
