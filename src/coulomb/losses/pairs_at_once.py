"""Small batches of (query, positive) pairs: what their losses share, forth and back. See `coulomb.losses.at_once`."""

import torch
from torch import Tensor

from coulomb.losses import at_once
from coulomb.similarity.problem import LOG2E, below
from coulomb.similarity.products import product, transposed_product


class PairsAtOnce:
    """Similarities of queries with their positives and with their negatives, which are the others' positives unless given.

    Attributes:
        t: [N, M], with `at_once.HIDDEN` where the key is the own positive.
        own: t⁺, [N].
        within: no 2^t leaves the range of its type.
    """

    def __init__(
        self,
        query: Tensor,
        positive: Tensor,
        negatives: Tensor | None,
        scale: float | Tensor,
        *,
        normalize: bool,
    ) -> None:
        n = len(query)
        self.scale, self.negatives = scale, negatives
        self.rows = at_once.Rows(("query", "positive"), (query, positive), normalize=normalize)
        self.queries, self.positives = self.rows.unit[:n], self.rows.unit[n:]
        if negatives is None:
            self.keys, self.others = None, self.positives
            self.t = at_once.exponents(self.queries, self.positives, scale)
            self.within = at_once.within_range(self.t, scale, self.rows)
            self.own = self.t.diagonal().clone()
            self.t.fill_diagonal_(at_once.HIDDEN)
        else:
            self.keys = at_once.Rows(("negatives",), (negatives,), normalize=normalize)
            self.queries, self.others = at_once.alike(self.queries, self.keys.unit)
            self.t = at_once.exponents(self.queries, self.others, scale)
            self.within = at_once.within_range(self.t, scale, self.rows, self.keys)
            self.own = (self.queries * self.positives).sum(1).mul_(scale * LOG2E)

    def top(self, k: int) -> Tensor | None:
        """1.0 for the k largest t of each row and what equals the last of them to rounding, else 0.0; None if all count."""
        negatives = self.t.shape[1] - (self.keys is None)
        if k >= negatives:
            return None
        last = below(self.t.topk(k, dim=1).values[:, -1:], self.scale * LOG2E)
        return torch.ge(self.t, last, out=torch.empty_like(self.t))

    def back(self, gradient_NM: Tensor, pull: Tensor, factor: float) -> at_once.Gradients:
        """Gradients of query, positive, negatives and scale from those by s and, negated, by s⁺ [N], times ``factor``."""
        n, grad, grad_negatives = len(self.own), torch.empty_like(self.rows.unit), None
        factors = self.scale * factor
        if self.keys is None:
            gradient_NM.diagonal().copy_(pull.neg())
            grad[:n] = product(gradient_NM, self.others.T)
            grad[n:] = transposed_product(gradient_NM, self.queries)
        else:
            if self.negatives is not None and self.negatives.requires_grad:
                (grad_negatives,) = self.keys.back(transposed_product(gradient_NM, self.queries), factors)
            push = pull.neg()[:, None]
            torch.addcmul(product(gradient_NM, self.others.T), self.positives, push, out=grad[:n])
            torch.mul(self.queries, push, out=grad[n:])
        learned = isinstance(self.scale, Tensor)
        grad_scale = (self.queries * grad[:n]).sum().mul_(factor) if learned else None
        return *self.rows.back(grad, factors), grad_negatives, grad_scale
