"""The inputs of a loss in one call: how its negatives share the gradient."""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from coulomb.losses import (
    DebiasedLoss,
    DecoupledLoss,
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

ELEMENTS = 2**16  # cosines that are computed, for anchors evenly spaced in the batch
FEWEST = 8  # anchors, however many keys there are


@dataclass(frozen=True)
class LossInputs:
    """How the negatives of one call of a loss share the gradient, and the mean cosine of its positive pairs.

    None if the loss has no negatives or no temperature, or if its positive pairs are unknown.
    """

    hardness: Hardness | None = None
    positive: float | None = None


@dataclass(frozen=True)
class Labels:
    """Labels of the batch [B], and of the training samples by train_row; −1 unknown, None without labels."""

    batch: Tensor | None = None
    by_train_row: Tensor | None = None

    def for_rows(self, rows: int) -> Tensor | None:
        """Returns the labels of rows that repeat the order of the batch."""
        if self.batch is None or not len(self.batch) or rows % len(self.batch):
            return None
        return self.batch.repeat(rows // len(self.batch))

    def of_train_rows(self, train_row: Tensor) -> Tensor | None:
        """Returns the labels of training samples; −1 for train_row −1."""
        if self.by_train_row is None:
            return None
        at = train_row.to(self.by_train_row.device)
        return self.by_train_row[at.clamp_min(0)].masked_fill(at < 0, -1)


@torch.no_grad()
def read_inputs(
    loss: nn.Module, given: tuple[Any, ...], named: dict[str, Any], method: nn.Module, labels: Labels
) -> LossInputs:
    """Analyses the arguments ``given`` and ``named`` of a call of ``loss``; the result is empty for an unknown loss.

    A negative's share of the gradient is proportional to e^{s/τ}, as in InfoNCE; for the hard-negative loss to e^{(1+β)s/τ}.
    Negatives of SupCon and PaCo have another class, of NCE are its noise, of a memory bank all other slots.
    """
    reader: Any = next((read for kind, read in READERS.items() if isinstance(loss, kind)), None)
    if reader is None:
        return LossInputs()
    call = inspect.signature(loss.forward).bind(*given, **named).arguments
    try:
        inputs: LossInputs = reader(loss, call, method, labels)
    except KeyError:  # a subclass with other arguments
        return LossInputs()
    return inputs


def _pair_of_views(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> LossInputs:
    """Views of one batch: the views of all other images are negatives."""
    view0, view1 = call["view0"], call.get("view1")
    return _views(loss, call, view0 if view1 is None else torch.stack([view0, view1], dim=1), labels)


def _supcon(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> LossInputs:
    features, classes = call["features"], call.get("labels")
    if call.get("mask") is not None or features.ndim != 3 or (classes is not None and classes.ndim != 1):
        return LossInputs()
    return _views(loss, call, features, *((labels,) if classes is None else (Labels(), classes)))


def _views(
    loss: nn.Module, call: dict[str, Any], stacked: Tensor, labels: Labels, classes: Tensor | None = None
) -> LossInputs:
    n, views = stacked.shape[:2]
    rows = _rows(loss, stacked.transpose(0, 1).reshape(n * views, -1))
    image = torch.arange(n, device=rows.device).repeat(views)
    some = _sample_anchors(len(rows), len(rows))
    counts = image[some, None] != image
    if classes is not None:
        repeated = classes.to(rows.device).repeat(views)
        counts &= (repeated[some, None] != repeated) | (repeated < 0)
    own = labels.for_rows(len(rows))
    hardness = hardness_of(rows[some] @ rows.T, _temperature(loss, call), counts, *_both(own, some, own))
    return LossInputs(hardness, _mean_cosine(rows[:n], rows[n : 2 * n]) if views > 1 else None)


def _queries(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> LossInputs:
    """Queries against the keys of a queue, or against the positives of the other queries in the batch."""
    query, positive, keys = call["query"], call["positive"], call.get("negatives")
    near, own = _mean_cosine(query, positive), labels.for_rows(len(query))
    of_keys, counts = own, None
    some = _sample_anchors(len(query), len(positive if keys is None else keys))
    ids, key_ids = call.get("ids"), call.get("negative_ids")
    if keys is None or getattr(loss, "in_batch", False):
        keys, of_keys = (positive, own) if keys is None else (torch.cat([positive, keys]), None)
        counts = some[:, None].to(query.device) != torch.arange(len(keys), device=query.device)
        if ids is not None:
            key_ids = ids if key_ids is None else torch.cat([ids, key_ids])
            key_ids = torch.cat([key_ids, ids.new_full((len(keys) - len(key_ids), *ids.shape[1:]), -1)])
    else:
        queue = next((part for part in method.modules() if isinstance(part, Queue)), None)
        of_keys = labels.of_train_rows(queue.ids()) if queue is not None and len(queue) == len(keys) else None
    if ids is not None:
        equal = (ids[some, None] == key_ids) & (ids[some, None] >= 0)
        different = ~(equal if equal.ndim == 2 else equal.any(2))
        counts = different if counts is None else counts & different
    if not len(keys):
        return LossInputs(None, near)
    cosines = _rows(loss, query[some]) @ _rows(loss, keys).T
    return LossInputs(hardness_of(cosines, _temperature(loss, call), counts, *_both(own, some, of_keys)), near)


def _paco(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> LossInputs:
    """The first rows are anchors, against all rows of another class, those of the queue included."""
    rows, classes, near, own = (
        _rows(loss, call["features"]),
        call["labels"].to(call["features"].device),
        None,
        labels.batch,
    )
    if own is not None and len(rows) >= 2 * len(own):
        # The method puts queries with a label first, then those without; keys are in the order of the batch.
        order = torch.cat([(own >= 0).nonzero().squeeze(1), (own < 0).nonzero().squeeze(1)]).to(rows.device)
        near = _mean_cosine(rows[: len(own)], rows[len(own) : 2 * len(own)][order])
    if (queue := call.get("queue")) is not None:
        rows = torch.cat([rows, _rows(loss, queue)])
        classes = torch.cat([classes, call["queue_labels"].to(classes.device)])
    some = _sample_anchors(len(call["center_logits"]), len(rows))
    counts = (classes[some, None] != classes) | (classes < 0)
    counts[torch.arange(len(some)), some] = False
    return LossInputs(hardness_of(rows[some] @ rows.T, _temperature(loss, call), counts), near)


def _noise(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> LossInputs:
    """Each query has separate negatives."""
    query, noise = call["query"], call["noise"]
    some = _sample_anchors(len(query), noise.shape[1])
    cosines = (_rows(loss, query[some])[:, None] * _rows(loss, noise[some])).sum(2)
    return LossInputs(hardness_of(cosines, _temperature(loss, call)))


def _bank(loss: nn.Module, call: dict[str, Any], method: nn.Module, labels: Labels) -> LossInputs:
    """All slots of a memory bank except the query's own. Class centers are not negatives."""
    features, slots, centers = call["features"], call["labels"], call["centers"]
    bank = next((part for part in method.modules() if isinstance(part, MemoryBank)), None)
    if bank is None or len(bank) != len(centers):
        return LossInputs()
    some = _sample_anchors(len(features), len(centers))
    cosines = _rows(loss, features[some]) @ _rows(loss, centers).T
    counts = torch.ones_like(cosines, dtype=torch.bool)
    counts[torch.arange(len(some)), slots[some]] = False
    every = labels.of_train_rows(torch.arange(len(centers)))
    return LossInputs(
        hardness_of(cosines, _temperature(loss, call), counts, *_both(labels.for_rows(len(features)), some, every))
    )


READERS = {
    NTXentLoss: _pair_of_views,
    DecoupledLoss: _pair_of_views,
    DebiasedLoss: _pair_of_views,
    HardNegativeLoss: _pair_of_views,
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


def _sample_anchors(anchors: int, keys: int) -> Tensor:
    """Returns the rows of evenly spaced anchors, for about `ELEMENTS` cosines."""
    number = min(anchors, max(FEWEST, ELEMENTS // max(keys, 1)))
    return torch.arange(number) * anchors // max(number, 1)


def _rows(loss: nn.Module, x: Tensor) -> Tensor:
    rows = x.detach().float()
    return normalize(rows, dim=-1) if getattr(loss, "normalize", True) else rows


def _mean_cosine(x: Tensor, y: Tensor) -> float:
    return float(cosine_similarity(x.detach().float(), y.detach().float()).mean())


def _temperature(loss: nn.Module, call: dict[str, Any]) -> float:
    if (scale := call.get("scale")) is not None:
        return 1 / float(scale.detach() if isinstance(scale, Tensor) else scale)
    given: Any = loss.temperature
    tau = float(given() if callable(given) else given)
    return tau / (1 + loss.beta) if isinstance(loss, HardNegativeLoss) else tau
