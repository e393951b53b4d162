import math

import torch

from coulomb.losses import NTXentLoss, SupConLoss
from law_rows import Row, log_sum_exp, unit


def supcon_loop(tau, views, is_positive, anchors=None, inside=False):
    z = unit(views)
    losses = []
    for i in range(len(z) if anchors is None else anchors):
        everyone = log_sum_exp([z[i] @ z[a] / tau for a in range(len(z)) if a != i])
        mine = [z[i] @ z[p] / tau for p in range(len(z)) if p != i and is_positive(i, p)]
        if not mine:
            losses.append(everyone * 0)
        elif inside:
            losses.append(everyone - log_sum_exp(mine) + math.log(len(mine)))
        else:
            losses.append(everyone - torch.stack(mine).mean())
    return torch.stack(losses)


def view_major(features):
    return torch.cat(features.unbind(1)) if features.ndim == 3 else features


def same_label(labels, batch):
    def is_positive(i, p):
        i, p = i % batch, p % batch
        return i == p or (labels is not None and bool(labels[i] == labels[p]) and int(labels[i]) >= 0)

    return is_positive


def labeled_loop(tau, features, labels=None, **options):
    return supcon_loop(tau, view_major(features), same_label(labels, len(features)), **options)


def masked_loop(tau, features, mask):
    batch = len(features)
    return supcon_loop(tau, view_major(features), lambda i, p: bool(mask[i % batch, p % batch]))


def views_and_labels(n, d, draw):
    return draw(n, 2, d), torch.arange(n) % 3 - 1


def one_vector_each(n, d, draw):
    return draw(n, d), torch.arange(n) % 2


def views_and_mask(n, d, draw):
    mask = torch.eye(n, dtype=torch.bool)
    mask[:, 0] = True  # asymmetric: sample 0 is a positive of all samples
    return draw(n, 2, d), mask


def overlap_of(a, b, kind):
    common = int((a * b).sum())
    if kind == "jaccard":
        return common / max(1, int(((a + b) > 0).sum()))
    return common if kind == "count" else int(common > 0)


def multi_hot_loop(tau, features, labels, kind="any", inside=False, anchors=None):
    z, batch = unit(view_major(features)), len(features)
    losses = []
    for i in range(len(z) if anchors is None else anchors):
        scores = {p: z[i] @ z[p] / tau for p in range(len(z)) if p != i}
        weights = {
            p: overlap_of(labels[i % batch], labels[p % batch], kind)
            if labels[i % batch].any()
            else p % batch == i % batch
            for p in scores
        }
        total = sum(weights.values())
        everyone = log_sum_exp(list(scores.values()))
        if inside:
            mine = [scores[p] + math.log(w / total) for p, w in weights.items() if w]
            losses.append(everyone - log_sum_exp(mine))
        else:
            losses.append(everyone - sum(w * scores[p] for p, w in weights.items()) / total)
    return torch.stack(losses)


def views_and_multi_hot(n, d, draw):
    several = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 1, 0], [0, 1, 0, 0], [0, 1, 0, 1]])
    return draw(n, 2, d), several[torch.arange(n) % 5]


class _mask_as_keyword(torch.nn.Module):
    def __init__(self, loss):
        super().__init__()
        self.loss = loss

    def forward(self, features, mask):
        return self.loss(features, mask=mask)


ROWS = {
    "NTXentLoss": Row(
        NTXentLoss,
        lambda n, d, draw: (draw(n, d), draw(n, d)),
        lambda tau, x, y: labeled_loop(tau, torch.stack([x, y], 1)),
        lambda n: math.log(2 * n - 1),
        sharp=True,
    ),
    "NTXentLoss 3 views": Row(
        NTXentLoss, lambda n, d, draw: (draw(n, 3, d),), labeled_loop, lambda n: math.log(3 * n - 1)
    ),
    "SupConLoss": Row(SupConLoss, views_and_labels, labeled_loop, lambda n: math.log(2 * n - 1)),
    "SupConLoss [B, D]": Row(SupConLoss, one_vector_each, labeled_loop, lambda n: math.log(n - 1)),
    "SupConLoss one": Row(
        lambda *a, **k: SupConLoss(*a, contrast_mode="one", **k),
        views_and_labels,
        lambda tau, f, l: labeled_loop(tau, f, l, anchors=len(f)),
        lambda n: math.log(2 * n - 1),
    ),
    "SupConLoss in": Row(
        lambda *a, **k: SupConLoss(*a, positives="in", **k),
        views_and_labels,
        lambda tau, f, l: labeled_loop(tau, f, l, inside=True),
        lambda n: math.log(2 * n - 1),
    ),
    "SupConLoss mask": Row(
        lambda *a, **k: _mask_as_keyword(SupConLoss(*a, **k)),
        views_and_mask,
        masked_loop,
        lambda n: math.log(2 * n - 1),
    ),
    "SupConLoss multi-hot": Row(SupConLoss, views_and_multi_hot, multi_hot_loop, lambda n: math.log(2 * n - 1)),
    "SupConLoss multi-hot count, one": Row(
        lambda *a, **k: SupConLoss(*a, overlap="count", contrast_mode="one", **k),
        views_and_multi_hot,
        lambda *a: multi_hot_loop(*a, kind="count", anchors=len(a[1])),
        lambda n: math.log(2 * n - 1),
    ),
    "SupConLoss multi-hot jaccard": Row(
        lambda *a, **k: SupConLoss(*a, overlap="jaccard", **k),
        views_and_multi_hot,
        lambda *a: multi_hot_loop(*a, kind="jaccard"),
        lambda n: math.log(2 * n - 1),
    ),
    "SupConLoss multi-hot count, in": Row(
        lambda *a, **k: SupConLoss(*a, overlap="count", positives="in", **k),
        views_and_multi_hot,
        lambda *a: multi_hot_loop(*a, kind="count", inside=True),
        lambda n: math.log(2 * n - 1),
    ),
}
