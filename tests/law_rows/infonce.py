import math

import torch

from coulomb.ground.checked import check_shape
from coulomb.losses import InfoNCELoss
from coulomb.losses.inputs import pair_ids
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


class WithIds(InfoNCELoss):
    def forward(self, query, positive, ids):
        return super().forward(query, positive, ids=ids)


class WithHardNegatives(InfoNCELoss):
    def forward(self, query, positive, negatives, ids, negative_ids):
        return super().forward(query, positive, negatives, ids=ids, negative_ids=negative_ids)


def equal(ids, others):
    return any(int(one) == int(other) != -1 for one, other in zip(ids.view(-1), others.view(-1), strict=True))


def ids_loop(tau, query, positive, ids, negatives=None, negative_ids=None):
    query, positive = unit(query), unit(positive)
    losses = []
    for i in range(len(query)):
        own = query[i] @ positive[i] / tau
        others = [query[i] @ positive[j] / tau for j in range(len(query)) if j != i and not equal(ids[i], ids[j])]
        if negatives is not None:
            known = zip(unit(negatives), negative_ids, strict=True)
            others += [query[i] @ key / tau for key, its in known if not equal(ids[i], its)]
        losses.append(log_sum_exp([own, *others]) - own)
    return torch.stack(losses)


def symmetric_ids_loop(tau, query, positive, ids):
    return (ids_loop(tau, query, positive, ids) + ids_loop(tau, positive, query, ids)) / 2


def positive_ids_loop(tau, query, positive, ids):
    query, positive = unit(query), unit(positive)
    losses = []
    for i in range(len(query)):
        scores = [query[i] @ positive[j] / tau for j in range(len(query))]
        mine = [scores[j] for j in range(len(query)) if j == i or equal(ids[i], ids[j])]
        losses.append(log_sum_exp(scores) - torch.stack(mine).mean())
    return torch.stack(losses)


def one_id(n, d, draw):
    return draw(n, d), draw(n, d), torch.tensor([0, 1, 0, 2, -1, 1, 2, -1, 0, 3]).repeat(-(-n // 10))[:n]


def two_ids(n, d, draw):
    query, positive, first = one_id(n, d, draw)
    return query, positive, torch.stack([first, torch.arange(n) // 2 % 3 + 4], 1)


def hard_negatives(n, d, draw):
    query, positive, ids = two_ids(n, d, draw)
    return query, positive, draw(2 * n + 1, d), ids, torch.cat([ids.flip(0), ids.flip(1), ids[:1]])


class WithGuide(InfoNCELoss):
    """The guide is on circles, at angles given as whole numbers, which have no gradient."""

    def forward(self, query, positive, codes):
        check_shape("query", query)
        codes = pair_ids("codes", codes, len(query), query).to(torch.float64)
        return super().forward(query, positive, guide=(circle(codes, 1.0), circle(codes, 1.02)))


def circle(codes, frequency):
    return torch.stack([(frequency * codes).cos(), (frequency * codes).sin()], -1)


def guide_loop(margin, relative, symmetric=False):
    def direction(tau, query, positive, a, b):
        losses = []
        for i in range(len(query)):
            own, true = query[i] @ positive[i] / tau, a[i] @ b[i]
            limit = true - margin * (abs(true) if relative else 1) - 1e-9
            others = [query[i] @ positive[j] / tau for j in range(len(query)) if j != i and a[i] @ b[j] < limit]
            losses.append(log_sum_exp([own, *others]) - own)
        return torch.stack(losses)

    def loop(tau, query, positive, codes):
        query, positive, codes = unit(query), unit(positive), codes.double()
        a, b = circle(codes, 1.0), circle(codes, 1.02)
        there = direction(tau, query, positive, a, b)
        return (there + direction(tau, positive, query, b, a)) / 2 if symmetric else there

    return loop


def with_codes(n, d, draw):
    return draw(n, d), draw(n, d), 7 * torch.arange(n) % 23


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
    "InfoNCELoss ids": Row(WithIds, one_id, ids_loop),
    "InfoNCELoss two ids": Row(lambda *a, **k: WithIds(*a, symmetric=True, **k), two_ids, symmetric_ids_loop),
    "InfoNCELoss equal ids are positives": Row(
        lambda *a, **k: WithIds(*a, same_id="positive", **k), one_id, positive_ids_loop
    ),
    "InfoNCELoss guide": Row(lambda *a, **k: WithGuide(*a, guide_margin=0.1, **k), with_codes, guide_loop(0.1, False)),
    "InfoNCELoss symmetric guide": Row(
        lambda *a, **k: WithGuide(*a, symmetric=True, guide_margin=0.2, guide_margin_kind="relative", **k),
        with_codes,
        guide_loop(0.2, True, symmetric=True),
    ),
    "InfoNCELoss hard negatives": Row(
        lambda *a, **k: WithHardNegatives(*a, in_batch=True, **k),
        hard_negatives,
        lambda tau, query, positive, negatives, ids, negative_ids: ids_loop(
            tau, query, positive, ids, negatives, negative_ids
        ),
        paired=False,
        shuffle=lambda inputs, order: (*(part[order] for part in inputs[:2]), inputs[2], inputs[3][order], inputs[4]),
    ),
}
