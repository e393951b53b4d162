"""Where SupCon and PaCo come to rest under imbalance: their minima over free logits, beside the formulas."""

from typing import Any

import torch
from torch import Tensor

from coulomb.losses import PaCoLoss, SupConLoss
from coulomb.metrics.loss_floor import free_logits, pull_optimum

OTHERS, CLASSES = 10, 5  # negatives and centres beside the anchor's own
PULL = 0.41  # αK of the paper's example


def optimum_table(alpha: float = 0.05, positives: tuple[int, ...] = (4, 20, 100)) -> list[dict[str, Any]]:
    """Rows {"what", "formula", "expected", "found", "error"} for classes with K other images in the batch or queue.

    The losses are those that train: a query whose similarity to key j is its j-th coordinate makes all their logits free.
    """
    rows = []
    for own in positives:
        rows.append(_row(f"SupCon, each of {own} positives", "1/K", 1 / own, supcon_share(own)))
    for own in positives:
        centre, sample = paco_shares(own, alpha)
        rows.append(_row(f"PaCo, α = {alpha:g}, centre, {own} positives", "1/(1+αK)", 1 / (1 + alpha * own), centre))
        rows.append(
            _row(f"PaCo, α = {alpha:g}, each of {own} positives", "α/(1+αK)", alpha / (1 + alpha * own), sample)
        )
    rows.append(_row(f"−log p − {PULL:g}·log(1−p), its minimum", "1/(1+a)", 1 / (1 + PULL), pull_optimum(PULL)))
    return rows


def supcon_share(own: int) -> float:
    """The probability that SupCon's minimum gives each of ``own`` positives: the mean over them."""
    loss = SupConLoss(temperature=1.0, normalize=False, reduction="none")
    labels = torch.tensor([0] * (own + 1) + [1] * OTHERS)
    logits = free_logits(lambda x: loss(_free_keys(x, own + OTHERS), labels)[0], own + OTHERS)
    return float(logits.softmax(0)[:own].mean())


def paco_shares(own: int, alpha: float) -> tuple[float, float]:
    """The probabilities that PaCo's minimum gives the own centre, and each of ``own`` positives (mean over them)."""
    loss = PaCoLoss(alpha=alpha, temperature=1.0, normalize=False)
    labels = torch.tensor([0] * (own + 1) + [1 + j % (CLASSES - 1) for j in range(OTHERS)])

    def value(x: Tensor) -> Tensor:
        return loss(_free_keys(x[CLASSES:], own + OTHERS), labels, x[None, :CLASSES])

    shares = free_logits(value, CLASSES + own + OTHERS).softmax(0)
    return float(shares[0]), float(shares[CLASSES : CLASSES + own].mean())


def _free_keys(query: Tensor, keys: int) -> Tensor:
    return torch.cat([query[None], torch.eye(keys, dtype=query.dtype)])


def _row(what: str, formula: str, expected: float, found: float) -> dict[str, Any]:
    return {"what": what, "formula": formula, "expected": expected, "found": found, "error": abs(found / expected - 1)}
