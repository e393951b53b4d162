import math

import torch

from coulomb.losses import ArcFaceLoss, BalancedSoftmaxLoss, SoftmaxLoss
from law_rows import Row, log_sum_exp, unit

COUNTS = [50, 7, 1, 30, 12, 4]
CLASSES = len(COUNTS)


def softmax_loop(tau, features, labels, centers, bias=None, smoothing=0.0, counts=None):
    z, w = unit(features), unit(centers)
    losses = []
    for i, y in enumerate(labels):
        logits = [z[i] @ w[c] / tau for c in range(CLASSES)]
        if bias is not None:
            logits = [logit + b for logit, b in zip(logits, bias, strict=True)]
        if counts is not None:
            logits = [logit + math.log(n) for logit, n in zip(logits, counts, strict=True)]
        losses.append(log_sum_exp(logits) - (1 - smoothing) * logits[y] - smoothing * torch.stack(logits).mean())
    return torch.stack(losses)


def arcface_loop(tau, features, labels, centers, smoothing=0.0, easy=False, margin=0.5):
    z, w = unit(features), unit(centers)
    losses = []
    for i, y in enumerate(labels):
        cosines = [z[i] @ w[c] for c in range(CLASSES)]
        theta = cosines[y].clamp(-1, 1).acos()
        if easy:
            cosines[y] = (theta + margin).cos() if cosines[y] > 0 else cosines[y]
        else:
            straight = cosines[y] - margin * math.sin(margin)
            cosines[y] = (theta + margin).cos() if theta + margin < math.pi else straight
        logits = [cosine / tau for cosine in cosines]
        losses.append(log_sum_exp(logits) - (1 - smoothing) * logits[y] - smoothing * torch.stack(logits).mean())
    return torch.stack(losses)


def labels_and_centers(n, d, draw):
    return draw(n, d), torch.arange(n) % CLASSES, draw(CLASSES, d)


def with_bias(n, d, draw):
    return *labels_and_centers(n, d, draw), draw(CLASSES)


class _centers_as_argument(torch.nn.Module):
    def __init__(self, tau, **options):
        super().__init__()
        self.loss = ArcFaceLoss(CLASSES, 1, 1 / tau, **options)

    def forward(self, features, labels, centers):
        return torch.func.functional_call(self.loss, {"centers": centers}, (features, labels))


def unit_softmax(cls, *first, **fixed):
    return lambda tau, **k: cls(*first, temperature=tau, normalize=True, **fixed, **k)


ROWS = {
    "SoftmaxLoss": Row(
        unit_softmax(SoftmaxLoss), labels_and_centers, softmax_loop, lambda n: math.log(CLASSES), paired=False
    ),
    "SoftmaxLoss smoothed, bias": Row(
        unit_softmax(SoftmaxLoss, label_smoothing=0.2),
        with_bias,
        lambda *a: softmax_loop(*a, smoothing=0.2),
        lambda n: math.log(CLASSES),
        paired=False,
    ),
    "BalancedSoftmaxLoss": Row(
        unit_softmax(BalancedSoftmaxLoss, COUNTS, label_smoothing=0.1),
        with_bias,
        lambda *a: softmax_loop(*a, smoothing=0.1, counts=COUNTS),
        paired=False,
    ),
    "ArcFaceLoss": Row(_centers_as_argument, labels_and_centers, arcface_loop, paired=False, temperature=False),
    "ArcFaceLoss easy, smoothed": Row(
        lambda *a, **k: _centers_as_argument(*a, easy_margin=True, label_smoothing=0.1, **k),
        labels_and_centers,
        lambda *a: arcface_loop(*a, smoothing=0.1, easy=True),
        paired=False,
        temperature=False,
    ),
}
