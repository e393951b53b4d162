"""The usual implementations, as a reader of the papers would write them: whole matrices, eager PyTorch.

They are what the losses are compared with for speed, and in fp64 what they are checked against. Each takes a loss's
call arguments and then its options.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, logsigmoid, normalize

from coulomb.losses import InfoNCELoss


def ntxent(view0: Tensor, view1: Tensor, temperature: float) -> Tensor:
    """Cross-entropy on the matrix of all views, self removed by −inf."""
    rows = normalize(torch.cat([view0, view1]))
    scores = rows @ rows.T / temperature
    scores.fill_diagonal_(-torch.inf)
    return cross_entropy(scores, torch.arange(len(rows), device=rows.device).roll(len(view0)))


def infonce(
    query: Tensor, positive: Tensor, negatives: Tensor | None = None, *, temperature: float, symmetric: bool = False
) -> Tensor:
    """Cross-entropy with the positive on the diagonal, or with negatives in column 0 (MoCo)."""
    query, positive = normalize(query), normalize(positive)
    if negatives is not None:
        own = (query * positive).sum(1, keepdim=True)
        scores = torch.cat([own, query @ normalize(negatives).T], 1) / temperature
        return cross_entropy(scores, torch.zeros(len(query), dtype=torch.long, device=query.device))
    scores = query @ positive.T / temperature
    target = torch.arange(len(query), device=query.device)
    if symmetric:
        return (cross_entropy(scores, target) + cross_entropy(scores.T, target)) / 2
    return cross_entropy(scores, target)


def infonce_ids(query: Tensor, positive: Tensor, ids: Tensor, temperature: float, symmetric: bool) -> Tensor:
    """InfoNCE whose other pairs of equal id are masked by −inf."""
    scores = normalize(query) @ normalize(positive).T / temperature
    equal = (ids[:, None] == ids) & ~torch.eye(len(ids), dtype=torch.bool, device=ids.device)
    return _pairs_without(scores, equal, equal, symmetric)


def infonce_guide(
    query: Tensor,
    positive: Tensor,
    guide_query: Tensor,
    guide_positive: Tensor,
    temperature: float,
    guide_margin: float,
    symmetric: bool,
) -> Tensor:
    """InfoNCE whose pairs a guide finds about as similar as the positive are masked by −inf."""
    scores = normalize(query) @ normalize(positive).T / temperature
    seen = normalize(guide_query) @ normalize(guide_positive).T
    limit = seen.diagonal() - guide_margin
    itself = torch.eye(len(seen), dtype=torch.bool, device=seen.device)
    return _pairs_without(scores, (seen >= limit[:, None]) & ~itself, (limit[:, None] <= seen.T) & ~itself, symmetric)


def _pairs_without(scores: Tensor, hidden: Tensor, hidden_back: Tensor, symmetric: bool) -> Tensor:
    target = torch.arange(len(scores), device=scores.device)
    there = cross_entropy(scores.masked_fill(hidden, -torch.inf), target)
    return (there + cross_entropy(scores.T.masked_fill(hidden_back, -torch.inf), target)) / 2 if symmetric else there


def joint_infonce(query: Tensor, positive: Tensor, temperature: float) -> Tensor:
    """One softmax over four directions: the query to all documents, its document to all queries, and each to its kind."""
    q, d = normalize(query), normalize(positive)
    itself = torch.eye(len(q), dtype=torch.bool, device=q.device)
    scores = q @ d.T / temperature
    within = [(rows @ rows.T / temperature).masked_fill(itself, -torch.inf) for rows in (q, d)]
    return (torch.cat([scores, scores.T, *within], 1).logsumexp(1) - scores.diagonal()).mean()


def matryoshka(query: Tensor, positive: Tensor, loss: InfoNCELoss, dims: Sequence[int]) -> Tensor:
    """Sum of InfoNCE over prefixes of the dimensions."""
    assert isinstance(loss.temperature, float)
    return torch.stack([infonce(query[:, :dim], positive[:, :dim], temperature=loss.temperature) for dim in dims]).sum()


def distillation(student: Tensor, teacher: Tensor, temperature: float, teacher_temperature: float) -> Tensor:
    """Cross-entropy between the softmaxes of two encoders over the other samples of the batch."""
    itself = torch.eye(len(student), dtype=torch.bool, device=student.device)
    s, t = (normalize(each) @ normalize(each).T for each in (student, teacher.detach()))
    log_q = (s / temperature).masked_fill(itself, -torch.inf).log_softmax(1).masked_fill(itself, 0)
    return -((t / teacher_temperature).masked_fill(itself, -torch.inf).softmax(1) * log_q).sum(1).mean()


def supcon(features: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The mean of log-probabilities over a mask of positives, of [B, V, D]."""
    rows = normalize(torch.cat(features.unbind(1)))
    ids = labels.repeat(features.shape[1])
    scores = rows @ rows.T / temperature
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    positive = (ids[:, None] == ids) & ~itself
    log_probability = scores - torch.logsumexp(scores.masked_fill(itself, -torch.inf), 1, keepdim=True)
    return -((log_probability * positive).sum(1) / positive.sum(1)).mean()


def hard_negative(view0: Tensor, view1: Tensor, temperature: float, beta: float, tau_plus: float) -> Tensor:
    """In exponentials, as the authors of the hard and of the debiased (beta = 0) loss write it."""
    rows = normalize(torch.cat([view0, view1]))
    n, count = len(view0), 2 * len(view0) - 2
    scores = (rows @ rows.T / temperature).exp()
    index = torch.arange(2 * n, device=rows.device)
    own = scores[index, index.roll(n)]
    dropped = (index[:, None] - index) % n == 0
    negative = scores.masked_fill(dropped, 0)
    if beta:
        importance = negative**beta
        reweighted = (importance * negative).sum(1) / (importance.sum(1) / count)
    else:
        reweighted = negative.sum(1)
    others = (reweighted - tau_plus * count * own) / (1 - tau_plus)
    others = others.clamp_min(count * torch.exp(torch.tensor(-1 / temperature, dtype=rows.dtype)).item())
    return -(own / (own + others)).log().mean()


def debiased(view0: Tensor, view1: Tensor, temperature: float, tau_plus: float) -> Tensor:
    """`hard_negative` without hardness."""
    return hard_negative(view0, view1, temperature, 0.0, tau_plus)


def ntxent_in_strips(view0: Tensor, view1: Tensor, temperature: float, rows: int = 1024) -> tuple[Tensor, ...]:
    """(loss, gradient, gradient) of `ntxent`, one strip of the matrix at a time: the reference where it does not fit."""
    leaves = view0.detach().requires_grad_(), view1.detach().requires_grad_()
    unit = normalize(torch.cat(leaves))
    keys = unit.detach().requires_grad_()
    index = torch.arange(len(keys), device=keys.device)
    total = torch.zeros((), dtype=torch.float64, device=keys.device)
    for strip in index.split(rows):
        scores = keys[strip] @ keys.T / temperature
        scores[torch.arange(len(strip)), strip] = -torch.inf
        part = cross_entropy(scores, (strip + len(view0)) % len(keys), reduction="sum") / len(keys)
        part.backward()
        total += part.detach()
    return total, *torch.autograd.grad(unit, leaves, keys.grad)


IN_STRIPS: dict[str, Callable[..., tuple[Tensor, ...]]] = {"ntxent": ntxent_in_strips}

# Copies of the matrix that one step holds at its peak, generously; for what fits a machine.
COPIES = {"ntxent": 4, "infonce": 4, "supcon": 7, "hard_negative": 9, "debiased": 7}


def alignment(x: Tensor, y: Tensor, alpha: float) -> Tensor:
    """Mean distance of pairs, to the power alpha."""
    return (normalize(x) - normalize(y)).norm(dim=1).pow(alpha).mean()


def uniformity(x: Tensor, t: float) -> Tensor:
    """Log of the mean potential of all pairs."""
    return torch.pdist(normalize(x)).pow(2).mul(-t).exp().mean().log()


def negative_cosine(prediction: Tensor, target: Tensor) -> Tensor:
    """−cos, nothing flowing into the target."""
    return -(normalize(prediction) * normalize(target.detach())).sum(1).mean()


def _cosines(query: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """Own cosines [N], and all with −∞ on the diagonal [N, N]."""
    cosines = normalize(query) @ normalize(positive).T
    itself = torch.eye(len(query), dtype=torch.bool, device=query.device)
    return cosines.diagonal(), cosines.masked_fill(itself, -torch.inf)


def simple(query: Tensor, positive: Tensor, weight: float) -> Tensor:
    """−s⁺ + weight · sum of the others."""
    cosines = normalize(query) @ normalize(positive).T
    own = cosines.diagonal()
    return (-own + weight * (cosines.sum(1) - own)).mean()


def hard_simple(query: Tensor, positive: Tensor, weight: float, top_k: int) -> Tensor:
    """The same with the top_k largest."""
    own, others = _cosines(query, positive)
    return (-own + weight * others.topk(top_k, 1).values.sum(1)).mean()


def hard_contrastive(query: Tensor, positive: Tensor, temperature: float, top_k: int) -> Tensor:
    """Cross-entropy among the positive and the top_k largest others."""
    own, others = _cosines(query, positive)
    scores = torch.cat([own[:, None], others.topk(top_k, 1).values], 1) / temperature
    return cross_entropy(scores, torch.zeros(len(query), dtype=torch.long, device=query.device))


def softmax(features: Tensor, labels: Tensor, centers: Tensor) -> Tensor:
    """Cross-entropy of a linear layer."""
    return cross_entropy(linear(features, centers), labels)


def balanced_softmax(features: Tensor, labels: Tensor, centers: Tensor, class_counts: list[float]) -> Tensor:
    """With the log of the class counts added."""
    counts = torch.tensor(class_counts, dtype=features.dtype, device=features.device)
    return cross_entropy(linear(features, centers) + counts.log(), labels)


def arcface(
    features: Tensor, labels: Tensor, centers: Tensor, num_classes: int, dim: int, scale: float, margin: float
) -> Tensor:
    """A margin on the angle to the own center."""
    assert centers.shape == (num_classes, dim)
    cosines = linear(normalize(features), normalize(centers)).clamp(-1 + 1e-7, 1 - 1e-7)
    own = torch.zeros_like(cosines, dtype=torch.bool).scatter_(1, labels[:, None], True)
    logits = torch.where(own, torch.cos(torch.acos(cosines) + margin), cosines)
    return cross_entropy(scale * logits, labels)


def paco(
    features: Tensor, labels: Tensor, center_logits: Tensor, class_counts: list[float], alpha: float, temperature: float
) -> Tensor:
    """As in the authors' code: logits of centers and features side by side, and a matrix of weights."""
    anchors, classes = center_logits.shape
    prior = torch.tensor(class_counts, dtype=features.dtype, device=features.device)
    rows = normalize(features)
    scores = rows[:anchors] @ rows.T / temperature
    itself = torch.eye(anchors, len(rows), dtype=torch.bool, device=rows.device)
    logits = torch.cat([center_logits + (prior / prior.sum()).log(), scores], 1)
    hidden = torch.cat([torch.zeros_like(center_logits, dtype=torch.bool), itself], 1)
    log_probability = logits - logits.masked_fill(hidden, -torch.inf).logsumexp(1, keepdim=True)
    own = labels[:anchors, None] == torch.arange(classes, device=rows.device)
    same = (labels[:anchors, None] == labels) & ~itself
    weights = torch.cat([own.to(logits.dtype), alpha * same.to(logits.dtype)], 1)
    return -((weights * log_probability).sum(1) / weights.sum(1)).mean()


def nce(
    query: Tensor, positive: Tensor, noise: Tensor, num_instances: int, temperature: float, normalizer: float
) -> Tensor:
    """Each sample against the noise, as a binary question."""
    query = normalize(query)
    own = (query * normalize(positive)).sum(1) / temperature
    others = (normalize(noise, dim=2) @ query[:, :, None]).squeeze(2) / temperature
    offset = torch.tensor(normalizer * noise.shape[1] / num_instances, dtype=query.dtype, device=query.device).log()
    return -(logsigmoid(own - offset) + logsigmoid(offset - others).sum(1)).mean()


def triplet_hard(embeddings: Tensor, labels: Tensor, margin: float, mining: str) -> Tensor:
    """Batch-hard: the farthest positive and the nearest negative of each anchor; the mean of those above 0."""
    assert mining == "hard"
    rows = normalize(embeddings)
    distances = 1 - rows @ rows.T
    same = labels[:, None] == labels
    itself = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
    farthest = distances.masked_fill(~same | itself, -torch.inf).amax(1)
    nearest = distances.masked_fill(same, torch.inf).amin(1)
    terms = (farthest - nearest + margin).clamp_min(0)
    return terms.sum() / (terms > 0).sum().clamp_min(1)


def sigmoid(query: Tensor, positive: Tensor, scale: float, bias: float, learnable: bool) -> Tensor:
    """SigLIP: a binary classification of every pair."""
    assert not learnable
    logits = scale * normalize(query) @ normalize(positive).T + bias
    signs = 2 * torch.eye(len(logits), dtype=logits.dtype, device=logits.device) - 1
    return -logsigmoid(signs * logits).sum(1).mean()


def decoupled(view0: Tensor, view1: Tensor, temperature: float) -> Tensor:
    """NT-Xent without the positive in the denominator."""
    rows = normalize(torch.cat([view0, view1]))
    scores = rows @ rows.T / temperature
    index = torch.arange(len(rows), device=rows.device)
    own = scores[index, index.roll(len(view0))]
    negatives = scores.masked_fill((index[:, None] - index) % len(view0) == 0, -torch.inf)
    return (negatives.logsumexp(1) - own).mean()


def vicreg(view0: Tensor, view1: Tensor, invariance: float, variance: float, covariance: float) -> Tensor:
    """As in the authors' code."""
    dim, total = view0.shape[1], invariance * (view0 - view1).square().mean()
    for view in (view0, view1):
        centered = view - view.mean(0)
        total = total + variance / 2 * (1 - (view.var(0) + 1e-4).sqrt()).clamp_min(0).mean()
        products = centered.T @ centered / (len(view) - 1)
        total = total + covariance * (products.square().sum() - products.diagonal().square().sum()) / dim
    return total


def barlow_twins(view0: Tensor, view1: Tensor, weight: float) -> Tensor:
    """As in the authors' code, with batch normalization."""
    x, y = ((view - view.mean(0)) / (view.var(0, correction=0) + 1e-5).sqrt() for view in (view0, view1))
    correlation = x.T @ y / len(view0)
    own = correlation.diagonal()
    return (own - 1).square().sum() + weight * (correlation.square().sum() - own.square().sum())
