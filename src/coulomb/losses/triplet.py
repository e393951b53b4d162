"""Triplet loss: each anchor is nearer to its positives than to its negatives by a margin."""

from dataclasses import KW_ONLY
from typing import Annotated

import torch
from torch import Tensor

from coulomb.ground.checked import check_shape, choice, readable, transformed
from coulomb.losses.inputs import class_ids, unit_rows, warn_counted
from coulomb.losses.negatives import local_rows, reduced_over
from coulomb.losses.options import Flag, Gather, Loss, NonNegative, Reduction
from coulomb.losses.triplet_terms import all_pairs, distances, hardest_columns, hardest_pairs, terms, triplet_terms
from coulomb.similarity.collectives import gather_group, gather_rows


class TripletLoss(Loss):
    """L = mean over the triplets that are not 0 of max(d_ap − d_an + m, 0)   (FaceNet, Schroff et al., 2015)

    A triplet is an anchor a, a sample p with the same label and a sample n with another. No list of triplets is stored:
    ``"hard"`` scans the distances in strips, with memory linear in the batch; the others need O(N² log N) time for sorting
    and a strip of anchors × N of memory (``soft`` takes time proportional to the number of triplets).

    When to use: retrieval with labels and few samples per class (re-identification), where only the order of distances
    matters.
    Needs: labels, and batches with at least two samples per class and two classes.
    Temperature: none. The margin m sets the distance that is enough; triplets beyond it give no gradient. A loss that stays
    at m means that all embeddings have collapsed to one point, which can happen with ``mining="hard"`` from a random
    initialization. ``soft`` weights triplets by σ(d_ap − d_an).
    Cost: ``"hard"``: 2u with u = N²·D, and memory linear in N; the others: 8u, and the time for sorting.
    Transforms of `torch.func` (grad, vmap, jvp) and second derivatives use a tensor of all triplets: N³ time and memory.
    Reference: Schroff, Kalenichenko & Philbin, FaceNet: A Unified Embedding for Face Recognition and Clustering, CVPR
    2015, arXiv:1503.03832; Hermans, Beyer & Leibe, In Defense of the Triplet Loss for Person Re-Identification, 2017,
    arXiv:1703.07737.

    Args:
        margin: m ≥ 0, 0.2 as in FaceNet.
        mining: ``"all"`` triplets; ``"semihard"``, those with 0 < d_an − d_ap ≤ m (FaceNet); or ``"hard"``, for each
            anchor its farthest positive and nearest negative (batch-hard, Hermans et al., 2017).
        soft: softplus(d_ap − d_an) instead of the hinge, without m (Hermans et al.'s soft margin; ``"semihard"`` still
            selects by m). It is never 0, so the mean is over all triplets that were mined.
        distance: ``"cosine"``, 1 − cos, or ``"euclidean"``, ‖x − y‖ (on the sphere unless ``normalize=False``).
        normalize: scale rows to unit length. If False, ``"cosine"`` is 1 − x·y and assumes unit rows.
        reduction: ``"mean"`` over triplets that are not 0, ``"sum"``, or ``"none"``: each anchor's sum over its triplets
            ([N]).
        gather: triplets over the batches of all processes: True, False, or ``"auto"``, if torch.distributed is initialized
            with several processes, which must then all call the loss. Each process gathers and mines all embeddings, to
            compute the terms of its anchors. See `coulomb.losses.negatives` for the convention.

    Shape:
        embeddings: [N, D].
        labels: [N].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: FaceNet's distance is squared; here it is not (Hermans et al.).
    Degenerate input: anchors without a positive or without a negative are left out, with a loss of 0; the loss is also 0 if
    no triplet is above 0. A `CoulombWarning` counts them (not in a compiled graph).

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite embeddings raise ValueError.

    >>> embeddings, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> TripletLoss(margin=0.2)(embeddings, labels)  # all distances are 1: only the margin is left
    tensor(0.2000)
    """

    margin: NonNegative = 0.2
    mining: Annotated[str, choice("all", "semihard", "hard")] = "all"
    soft: Flag = False
    distance: Annotated[str, choice("cosine", "euclidean")] = "cosine"
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"
    gather: Gather = "auto"

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            embeddings: embeddings of the samples.
            labels: class of each sample, −1 for unknown. Such a sample is not used, not even as a negative, since it may
                be of the anchor's class.
        """
        check_shape("embeddings", embeddings)
        labels = class_ids(labels, len(embeddings), embeddings)
        rows = unit_rows("embeddings", embeddings, normalize=self.normalize)
        group = gather_group(self.gather)
        local, rows, labels = local_rows(group, len(rows), rows), gather_rows(group, rows), gather_rows(group, labels)
        if not self.normalize and self.distance == "euclidean":
            rows = rows - rows.detach().mean(0)  # keeps the distances, with less cancellation
        if self.mining == "hard":
            sums, active = self._hardest(rows, labels)
        else:
            mine = all_pairs if transformed() else triplet_terms
            euclidean = self.distance == "euclidean"
            sums, active = mine(rows, labels, self.margin, self.mining == "semihard", self.soft, euclidean)
        if readable(active) and readable(labels):
            self._warn(labels, active)
        return reduced_over(group, sums[local], self.reduction, active.sum().clamp_min(1))

    def _hardest(self, rows: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Returns (term of each anchor with its farthest positive and nearest negative, whether this triplet counts)."""
        mine, euclidean = (
            hardest_pairs if torch.compiler.is_compiling() else hardest_columns,
            self.distance == "euclidean",
        )
        positive, negative = mine(rows.detach(), labels, euclidean)
        complete = (positive >= 0) & (negative >= 0)
        near, far = (rows.index_select(0, columns.clamp_min(0)) for columns in (positive, negative))
        gap = distances(rows, near) - distances(rows, far) if euclidean else (rows * (far - near)).sum(1)
        losses = terms(gap, self.margin, self.soft).masked_fill(~complete, 0)
        return losses, (complete if self.soft else losses > 0)

    def _warn(self, labels: Tensor, active: Tensor) -> None:
        """Counts anchors without a positive or a negative, and warns if no triplet gives a gradient."""
        _, which, sizes = labels.unique(return_inverse=True, return_counts=True)
        known, same = labels >= 0, sizes[which]
        lacking = int((~known | (same == 1) | (same == known.sum())).sum())
        if lacking:
            warn_counted(lacking, len(labels), "anchors have no positive or no negative and are left out")
        if lacking < len(labels) and not active.any():
            what = f"anchors have a triplet above 0 (mining={self.mining!r}): this batch gives no gradient"
            warn_counted(0, len(labels), what)
