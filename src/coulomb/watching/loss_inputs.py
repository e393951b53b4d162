"""What a loss received in one call, as anchors and negatives."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from coulomb.losses import (
    DebiasedLoss,
    HardContrastiveLoss,
    HardNegativeLoss,
    InfoNCELoss,
    NCELoss,
    NTXentLoss,
    PaCoLoss,
    SoftmaxLoss,
    SupConLoss,
)
from coulomb.metrics.hardness import Hardness, hardness_of
from coulomb.negatives import MemoryBank, Queue

ELEMENTS = 2**16  # cosines that are looked at: of so many anchors as fit, evenly spread over the batch
FEWEST = 8  # anchors


@dataclass(frozen=True)
class Seen:
    """One call of a loss: how its negatives share the gradient, and the mean cosine of its positive pairs.

    None where the loss has no negatives or no temperature, or does not say which pairs are positive.
    """

    hardness: Hardness | None = None
    positive: float | None = None


@dataclass(frozen=True)
class Labels:
    """Labels of the batch's images [B] and of the training images by position, −1 unknown; None without labels."""

    batch: Tensor | None = None
    by_position: Tensor | None = None

    def of_rows(self, rows: int) -> Tensor | None:
        """Of rows that repeat the order of the batch."""
        if self.batch is None or not len(self.batch) or rows % len(self.batch):
            return None
        return self.batch.repeat(rows // len(self.batch))

    def of_positions(self, positions: Tensor) -> Tensor | None:
        """Of training images by their position; −1 where that is −1."""
        if self.by_position is None:
            return None
        at = positions.to(self.by_position.device)
        return self.by_position[at.clamp_min(0)].masked_fill(at < 0, -1)


@torch.no_grad()
def look(loss: nn.Module, given: tuple[Any, ...], named: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    """What ``loss`` saw when it was called with ``given`` and ``named``; nothing for a loss that is none of these.

    The shares of the gradient are InfoNCE's, by e^{s/τ}; the hard-negative loss's by e^{(1+β)s/τ}. SupCon's and PaCo's
    negatives are those of another class, NCE's are its noise, and a memory bank's all slots but the own.
    """
    looking: Any = next((by for kind, by in LOOKING.items() if isinstance(loss, kind)), None)
    if looking is None:
        return Seen()
    call = inspect.signature(loss.forward).bind(*given, **named).arguments
    try:
        found: Seen = looking(loss, call, method, labels)
    except KeyError:  # a loss derived from one of these that takes other arguments
        return Seen()
    return found


def _pair_of_views(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    """Two or more views of one batch: all other images' views are negatives."""
    view0, view1 = call["view0"], call.get("view1")
    return _views(loss, view0 if view1 is None else torch.stack([view0, view1], dim=1), labels)


def _supcon(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    features, classes = call["features"], call.get("labels")
    if call.get("mask") is not None or features.ndim != 3 or (classes is not None and classes.ndim != 1):
        return Seen()
    return _views(loss, features, labels) if classes is None else _views(loss, features, Labels(), classes)


def _views(loss: nn.Module, stacked: Tensor, labels: Labels, classes: Tensor | None = None) -> Seen:
    n, views = stacked.shape[:2]
    rows = _rows(loss, stacked.transpose(0, 1).reshape(n * views, -1))
    image = torch.arange(n, device=rows.device).repeat(views)
    some = _some(len(rows), len(rows))
    counts = image[some, None] != image
    if classes is not None:
        known = classes.to(rows.device).repeat(views)
        counts &= (known[some, None] != known) | (known < 0)
    own = labels.of_rows(len(rows))
    found = hardness_of(rows[some] @ rows.T, _temperature(loss), counts, *_both(own, some, own))
    return Seen(found, _mean_cosine(rows[:n], rows[n : 2 * n]) if views > 1 else None)


def _queries(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    """Queries against a queue's keys, or in the batch against the other queries' positives."""
    query, positive, keys = call["query"], call["positive"], call.get("negatives")
    near, own = _mean_cosine(query, positive), labels.of_rows(len(query))
    of_keys, counts = own, None
    some = _some(len(query), len(positive if keys is None else keys))
    if keys is None:
        keys = positive
        counts = some[:, None].to(query.device) != torch.arange(len(keys), device=query.device)
    else:
        queue = next((part for part in method.modules() if isinstance(part, Queue)), None)
        of_keys = labels.of_positions(queue.ids()) if queue is not None and len(queue) == len(keys) else None
        if (asked := call.get("query_ids")) is not None:
            counts = (asked[some, None] != call["negative_ids"]) | (asked[some, None] < 0)
    if not len(keys):
        return Seen(None, near)
    cosines = _rows(loss, query[some]) @ _rows(loss, keys).T
    return Seen(hardness_of(cosines, _temperature(loss), counts, *_both(own, some, of_keys)), near)


def _paco(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    """The first rows are anchors, against all that are of another class; keys of the same images follow the queries."""
    rows, known = _rows(loss, call["features"]), call["labels"].to(call["features"].device)
    some, near, own = _some(len(call["center_logits"]), len(rows)), None, labels.batch
    if own is not None and len(rows) >= 2 * len(own):
        # The method puts queries with a label first, then those without; keys are in the order of the batch.
        order = torch.cat([(own >= 0).nonzero().squeeze(1), (own < 0).nonzero().squeeze(1)]).to(rows.device)
        near = _mean_cosine(rows[: len(own)], rows[len(own) : 2 * len(own)][order])
    counts = (known[some, None] != known) | (known < 0)
    counts[torch.arange(len(some)), some] = False
    return Seen(hardness_of(rows[some] @ rows.T, _temperature(loss), counts), near)


def _noise(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    """Each query has negatives of its own."""
    query, noise = call["query"], call["noise"]
    some = _some(len(query), noise.shape[1])
    cosines = (_rows(loss, query[some])[:, None] * _rows(loss, noise[some])).sum(2)
    return Seen(hardness_of(cosines, _temperature(loss)))


def _bank(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> Seen:
    """All slots of a memory bank but the own. The centres of classes are no negatives."""
    features, slots, centers = call["features"], call["labels"], call["centers"]
    bank = next((part for part in method.modules() if isinstance(part, MemoryBank)), None)
    if bank is None or len(bank) != len(centers):
        return Seen()
    some = _some(len(features), len(centers))
    cosines = _rows(loss, features[some]) @ _rows(loss, centers).T
    counts = torch.ones_like(cosines, dtype=torch.bool)
    counts[torch.arange(len(some)), slots[some]] = False
    every = labels.of_positions(torch.arange(len(centers)))
    return Seen(hardness_of(cosines, _temperature(loss), counts, *_both(labels.of_rows(len(features)), some, every)))


LOOKING = {
    NTXentLoss: _pair_of_views,
    DebiasedLoss: _pair_of_views,  # and HardNegativeLoss, which is one
    SupConLoss: _supcon,
    InfoNCELoss: _queries,
    HardContrastiveLoss: _queries,
    PaCoLoss: _paco,
    NCELoss: _noise,
    SoftmaxLoss: _bank,
}


def _both(own: Tensor | None, some: Tensor, of_keys: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    if own is None or of_keys is None or not bool((of_keys >= 0).any()):
        return None, None
    return own[some], of_keys.to(own.device)


def _some(anchors: int, keys: int) -> Tensor:
    """Rows of so many anchors that there are about `ELEMENTS` cosines."""
    number = min(anchors, max(FEWEST, ELEMENTS // max(keys, 1)))
    return torch.arange(number) * anchors // max(number, 1)


def _rows(loss: nn.Module, x: Tensor) -> Tensor:
    rows = x.detach().float()
    return normalize(rows, dim=-1) if getattr(loss, "normalize", True) else rows


def _mean_cosine(x: Tensor, y: Tensor) -> float:
    return float(cosine_similarity(x.detach().float(), y.detach().float()).mean())


def _temperature(loss: nn.Module) -> float:
    given: Any = loss.temperature
    tau = float(given() if callable(given) else given)
    return tau / (1 + loss.beta) if isinstance(loss, HardNegativeLoss) else tau
