import math

import torch

from coulomb.losses import InfoNCELoss, MatryoshkaLoss, NTXentLoss, SupConLoss
from law_rows import Row
from law_rows.infonce import infonce_loop, symmetric_loop
from law_rows.supcon import labeled_loop

WEIGHTS = (0.5, 2.0, 1.0)


def lengths(width):
    """One to three prefixes of embeddings of any width, the last of which is the embedding."""
    return sorted({max(1, width // 3), max(1, width - 2), max(1, width)})


class Nested(torch.nn.Module):
    """Prefixes that suit the width of the first argument, which the laws choose."""

    def __init__(self, loss):
        super().__init__()
        self.loss = loss
        dims = {width: lengths(width) for width in (*range(1, 17), 64, 257, 512, 2048)}
        self.by_width = {width: MatryoshkaLoss(loss, these, WEIGHTS[: len(these)]) for width, these in dims.items()}

    def nested(self, first, *others):
        width = first.shape[-1] if isinstance(first, torch.Tensor) and first.ndim else 1
        return self.by_width.get(max(1, width), self.by_width[1])(first, *others)


class Pairs(Nested):
    def forward(self, query, positive):
        return self.nested(query, positive)


class Views(Nested):
    def forward(self, view0, view1):
        return self.nested(view0, view1)


class Labeled(Nested):
    def forward(self, features, labels):
        return self.nested(features, labels)


def loop(of_one):
    def sum_of_prefixes(tau, first, *others):
        dims = lengths(first.shape[-1])
        parts = [
            weight * of_one(tau, *(t[..., :dim] if t.is_floating_point() else t for t in (first, *others)))
            for dim, weight in zip(dims, WEIGHTS, strict=False)
        ]
        return torch.stack(parts).sum(0)

    return sum_of_prefixes


def views_loop(tau, view0, view1):
    return labeled_loop(tau, torch.stack([view0, view1], 1))


def pairs(n, d, draw):
    return draw(n, d), draw(n, d)


ROWS = {
    "MatryoshkaLoss": Row(
        lambda *a, **k: Pairs(InfoNCELoss(*a, **k)), pairs, loop(infonce_loop), lambda n: 3.5 * math.log(n)
    ),
    "MatryoshkaLoss symmetric": Row(
        lambda *a, **k: Pairs(InfoNCELoss(*a, symmetric=True, **k)), pairs, loop(symmetric_loop)
    ),
    "MatryoshkaLoss NTXent": Row(
        lambda *a, **k: Views(NTXentLoss(*a, **k)), pairs, loop(views_loop), lambda n: 3.5 * math.log(2 * n - 1)
    ),
    "MatryoshkaLoss SupCon": Row(
        lambda *a, **k: Labeled(SupConLoss(*a, **k)),
        lambda n, d, draw: (draw(n, d), torch.arange(n) % 2),
        loop(labeled_loop),
    ),
}
