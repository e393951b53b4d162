import math

import torch
from torch.nn.functional import softplus

from coulomb.losses import TripletLoss
from law_rows import Row, unit

MARGIN = 0.7


def triplet_loop(_, embeddings, labels, mining="all", soft=False, euclidean=False):
    z, n = unit(embeddings), len(embeddings)

    def distance(i, j):
        return (z[i] - z[j]).norm() if euclidean else 1 - z[i] @ z[j]

    sums, active = [], 0
    for i in range(n):
        near = [distance(i, j) for j in range(n) if j != i and labels[j] == labels[i] and labels[i] >= 0]
        far = [distance(i, j) for j in range(n) if labels[j] != labels[i] and min(labels[i], labels[j]) >= 0]
        pairs = [(p, f) for p in near for f in far]
        if mining == "hard" and pairs:
            pairs = [(max(near), min(far))]
        if mining == "semihard":
            pairs = [(p, f) for p, f in pairs if 0 < f - p <= MARGIN]
        terms = [softplus(p - f) if soft else (p - f + MARGIN).clamp_min(0) for p, f in pairs]
        active += sum(bool(term > 0) for term in terms)
        sums.append(sum(terms, start=(z[i] * 0).sum()))
    out = torch.stack(sums)
    out.active = max(1, active)
    return out


def labeled(n, d, draw):
    return draw(n, d), torch.arange(n) % 2


def partly_labeled(n, d, draw):
    return draw(n, d), (torch.arange(n) % 4 - 1).clamp_max(1)


def row(inputs=labeled, constant=None, **options):
    named = {**options, "distance": "euclidean" if options.pop("euclidean", False) else "cosine"}
    loop = {**options, "euclidean": named["distance"] == "euclidean"}
    named.pop("euclidean", None)
    return Row(
        lambda tau, **k: TripletLoss(MARGIN, **named, **k),
        inputs,
        lambda *a: triplet_loop(*a, **loop),
        constant,
        temperature=False,
        mean=lambda sums: sums.sum() / sums.active,
        engine=options.get("mining") == "hard",
    )


ROWS = {
    "TripletLoss": row(constant=lambda n: MARGIN),
    "TripletLoss euclidean": row(constant=lambda n: MARGIN, euclidean=True),
    "TripletLoss soft": row(constant=lambda n: math.log(2), soft=True),
    "TripletLoss semihard": row(mining="semihard"),
    "TripletLoss semihard, soft, euclidean": row(mining="semihard", soft=True, euclidean=True),
    "TripletLoss hard": row(constant=lambda n: MARGIN, mining="hard"),
    "TripletLoss hard, soft, euclidean": row(constant=lambda n: math.log(2), mining="hard", soft=True, euclidean=True),
}
