"""Triplet loss: each anchor nearer to its positives than to its negatives, by a margin."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import relu, softplus

from coulomb.checked import checked_flag, checked_number, readable
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_shape,
    checked_choice,
    checked_labels,
    embeddings,
    reduced,
    require_batch,
    warn_counted,
)
from coulomb.losses.gathering import own_rows, processes_in
from coulomb.losses.options import Loss
from coulomb.losses.triplet_terms import (
    TripletTerms,
    distances,
    hardest_columns,
    hardest_pairs,
    triplet_terms,
    written_out,
)
from coulomb.similarity import Similarity, use_backend
from coulomb.similarity.collectives import Gather, group_of, rows_in
from coulomb.similarity.problem import transformed
from coulomb.similarity.products import product

APART = 4.0  # more than two cosines differ; small, since it costs their last digits where it is subtracted


class TripletLoss(Loss):
    """L = mean over the triplets that are not 0 of max(d_ap − d_an + m, 0)   (FaceNet, Schroff et al., 2015)

    A triplet is an anchor a, a sample p of its label and a sample n of another. No list of triplets is formed: ``"hard"``
    finds its pairs by streaming, with memory linear in the batch; the others take O(N² log N) time by sorting and a strip
    of anchors × N of memory (``soft`` takes the time of all triplets).

    When to use: retrieval with labels, few samples a class (re-identification), where an order of distances is all that
    is asked.
    Needs: labels, and batches with at least two samples a class and two classes.
    Temperature: none. The margin m says how far apart is enough; triplets beyond it teach nothing. A loss that stays at
    m means that all embeddings fell together, which ``mining="hard"`` can do from a cold start. ``soft`` weighs
    triplets by σ(d_ap − d_an).
    Cost: ``"hard"``: 4u, u = N²·D, and memory linear; the others: 8u and the sorting.
    Reference: Schroff, Kalenichenko & Philbin, FaceNet: A Unified Embedding for Face Recognition and Clustering, CVPR
    2015, arXiv:1503.03832; Hermans, Beyer & Leibe, In Defense of the Triplet Loss for Person Re-Identification, 2017,
    arXiv:1703.07737.

    Args:
        margin: m, 0.2 as in FaceNet; not negative.
        mining: ``"all"`` triplets; ``"semihard"``, those with 0 < d_an − d_ap ≤ m (FaceNet); or ``"hard"``, for each
            anchor its farthest positive and nearest negative (batch-hard, Hermans et al., 2017).
        soft: softplus(d_ap − d_an) instead of the hinge, without m (Hermans et al.'s soft margin; ``"semihard"`` still
            selects by m). It is never 0, so the mean is over all triplets that were mined.
        distance: ``"cosine"``, 1 − cos, or ``"euclidean"``, ‖x − y‖ (on the sphere unless ``normalize=False``).
        normalize: scale rows to unit length. Without, ``"cosine"`` means 1 − x·y and promises unit rows.
        reduction: ``"mean"`` over triplets that are not 0, ``"sum"``, or ``"none"``: each anchor's sum over its triplets
            ([N]).
        gather: triplets over the batches of all processes: True, False, or ``"auto"``, when torch.distributed is initialised
            with several processes, which must then all call the loss. Each gathers and mines the embeddings of all, for the
            terms of its own anchors. See `coulomb.losses.gathering` for the convention.

    Transforms of `torch.func` (grad, vmap, jvp) take the triplets in plain PyTorch: N³ time, and as much memory for gradients.

    Call with embeddings [N, D] and labels [N] (−1: unknown, takes no part, not as a negative either: it may well be of
    the anchor's class).

    Deviation: FaceNet's distance is squared; here it is not (Hermans et al.).
    Degenerate input: anchors without a positive or without a negative are left out, with a loss of 0; so it is when no
    triplet is above 0. A `CoulombWarning` counts them (not in a compiled graph).

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite embeddings are a ValueError.

    >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> TripletLoss(margin=0.2)(embeddings, labels)  # all distances are 1: only the margin is left
    tensor(0.2000)
    """

    checks: ClassVar = {
        "margin": partial(checked_number, at_least=0),
        "mining": partial(checked_choice, choices=("all", "semihard", "hard")),
        "soft": checked_flag,
        "distance": partial(checked_choice, choices=("cosine", "euclidean")),
    }

    def __init__(
        self,
        margin: float = 0.2,
        mining: str = "all",
        soft: bool = False,
        distance: str = "cosine",
        *,
        normalize: bool = True,
        reduction: str = "mean",
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.margin = margin
        self.mining = mining
        self.soft = soft
        self.distance = distance
        self.normalize = normalize
        self.reduction = reduction
        self.gather = gather

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """The loss; see the class."""
        check_shape("embeddings", embeddings)
        require_batch("embeddings", embeddings)
        labels = checked_labels(labels, len(embeddings), embeddings)
        plainly = (
            self.mining == "hard" and self.distance == "cosine" and self.normalize and group_of(self.gather) is None
        )
        if at_once.fits(len(labels), len(labels), embeddings, reduction=self.reduction, plainly=plainly):
            general = partial(self._streamed, labels)
            loss = at_once.attempted(partial(self._at_once, embeddings, labels), general, embeddings)
            if loss is not None:
                return loss
        return self._streamed(labels, embeddings)

    def _at_once(self, embeddings: Tensor, labels: Tensor, learning: bool) -> at_once.Found | None:
        """None where an anchor lacks a positive or a negative: that is to be said."""
        if not at_once.numbers(labels):
            return None
        same = at_once.same(labels, labels, embeddings.dtype)
        fewest, most = same.sum(1).aminmax()  # with the anchor itself
        if fewest < 2 or most == len(labels):  # before the rows, which would be warned of twice
            return None
        rows = at_once.Rows(("embeddings",), (embeddings,), normalize=True)
        unit = rows.unit
        cosines = product(unit, unit)
        nearest, negative = torch.sub(cosines, same, alpha=APART).max(1)
        positive = torch.sub(cosines, same.fill_diagonal_(0), alpha=APART).argmin(1)
        gap = nearest.sub_(cosines.gather(1, positive[:, None]).squeeze(1))
        terms = softplus(gap, threshold=50) if self.soft else relu(gap + self.margin)
        pull = gap.sigmoid() if self.soft else torch.gt(terms, 0, out=torch.empty_like(terms))
        active = len(terms) if self.soft else int(pull.sum())
        if active == 0:
            self._warn(unit, labels, pull)
        factor = at_once.factor_of(self.reduction, max(1, active))
        loss = terms.sum().mul_(factor)
        if not learning:
            return loss, ()
        moved = unit * pull[:, None]
        grad = unit.index_select(0, negative).sub_(unit.index_select(0, positive)).mul_(pull[:, None])
        grad.index_add_(0, negative, moved).index_add_(0, positive, moved, alpha=-1)
        return loss, rows.back(grad, factor)

    def _streamed(self, labels: Tensor, embeddings: Tensor) -> Tensor:
        rows = _rows(embeddings, normalize=self.normalize)
        group = group_of(self.gather)
        own, rows, labels = own_rows(group, len(rows), rows), rows_in(group, rows), rows_in(group, labels)
        if not self.normalize and self.distance == "euclidean":
            rows = rows - rows.detach().mean(0)  # distances stay, and products lose fewer digits
        if self.mining == "hard":
            terms, active = self._hardest(rows, labels)
        else:
            function = triplet_terms if torch.compiler.is_compiling() else TripletTerms.apply
            function = written_out if transformed() else function
            options = self.margin, self.mining == "semihard", self.soft, self.distance == "euclidean"
            terms, active = function(rows, labels, *options)
        self._warn(rows, labels, active)
        if self.reduction == "mean":
            return terms[own].sum() * processes_in(group) / active.sum().clamp_min(1)
        return reduced(terms[own], self.reduction)

    def _hardest(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        if transformed():
            with use_backend("dense"):
                positive, negative = hardest_columns(rows.detach(), labels, self.distance == "euclidean")
        else:
            positive, negative = hardest_pairs(rows.detach(), labels, self.distance == "euclidean")
        complete = (positive >= 0) & (negative >= 0)
        positive, negative = (rows.index_select(0, columns.clamp_min(0)) for columns in (positive, negative))
        if self.distance == "euclidean":
            gap = distances(rows, positive) - distances(rows, negative)
        else:
            gap = (rows * (negative - positive)).sum(1)
        terms = softplus(gap, threshold=50) if self.soft else relu(gap + self.margin)
        terms = terms.masked_fill(~complete, 0)
        return terms, (complete if self.soft else terms > 0)

    def _warn(self, rows: Tensor, labels: Tensor, active: Tensor) -> None:
        if not (readable(active) and readable(labels)):
            return
        same = Similarity(rows, query_ids=labels).count("positives")
        known = labels >= 0
        complete = known & (same > 0) & (known.sum() - 1 - same > 0)
        lacking = int((~complete).sum())
        if lacking:
            warn_counted(lacking, len(labels), "anchors have no positive or no negative and are left out")
        if lacking < len(labels) and not active.any():
            warn_counted(
                0, len(labels), f"anchors have a triplet above 0 (mining={self.mining!r}): nothing to learn here"
            )

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"margin={self.margin:g}, mining={self.mining!r}, soft={self.soft}, distance={self.distance!r}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}, gather={self.gather!r}"
        )


def _rows(value: Tensor, *, normalize: bool) -> Tensor:
    return embeddings("embeddings", value, normalize=normalize)
