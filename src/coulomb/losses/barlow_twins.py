"""Barlow Twins: the cross-correlation of two views should be the identity."""

from dataclasses import KW_ONLY

from torch import Tensor

from coulomb.losses.inputs import reduced
from coulomb.losses.options import Gather, Loss, NonNegative, Reduction
from coulomb.losses.statistics import two_views
from coulomb.similarity.products import matmul

EPSILON = 1e-5  # added to the variance, as by the authors' BatchNorm1d


class BarlowTwinsLoss(Loss):
    """L = Σ_d [(1 − c_dd)² + λ Σ_{e≠d} c_de²],  c_de = corr_i(x_id, y_ie)   (Barlow Twins, Zbontar et al., 2021)

    The diagonal makes each dimension agree between the views; the rest makes different dimensions independent, which also
    prevents collapse. No sample is compared with another.

    When to use: training without labels, negatives, a predictor or a momentum encoder, even with small batches.
    Needs: two views of each sample, and embeddings of many dimensions (the authors: 8,192, from a projection head of three
    layers; fewer perform worse). No labels.
    Temperature: none. λ should fall with D, as each dimension has D − 1 others.
    Cost: 6u with u = N·D². Memory is linear in N, and D² for the statistics.
    Reference: Zbontar et al., Barlow Twins: Self-Supervised Learning via Redundancy Reduction, ICML 2021,
    arXiv:2103.03230.

    Args:
        weight: λ; 0.0051 as in the paper, for D = 8,192.
        reduction: ``"sum"`` over dimensions, L itself; ``"mean"``, or ``"none"`` ([D]).
        gather: compute the statistics over the batches of all processes. True, False, or ``"auto"``: True if
            torch.distributed is initialized with several processes, which must then all call the loss. L then covers all
            samples and is equal on every process.

    Shape:
        view0, view1: [N, D].
        output: scalar, or [D] with ``reduction="none"``.

    Views are standardized over the batch, so their scale does not matter.

    Deviation: none. As in the authors' code, 10⁻⁵ is added to the variance by which the views are standardized.
    Degenerate input: a dimension that is constant in a view has c_dd = 0, so equal features give D. N = 1 has no variance:
    the loss is D, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> BarlowTwinsLoss()(torch.ones(8, 3), torch.ones(8, 3))  # no correlation in 3 dimensions
    tensor(3.)
    """

    weight: NonNegative = 0.0051
    _: KW_ONLY
    reduction: Reduction = "sum"
    gather: Gather = "auto"

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            view0: embeddings of one view of each sample.
            view1: embeddings of another view of the same samples.
        """
        views = two_views(view0, view1, self.gather, degree=2)
        centered = views.centered()
        variance = views.sum(centered.square().sum(1, keepdim=True)) / views.samples
        x, y = (centered / (variance + EPSILON).sqrt()).unbind()
        correlation_DD = views.sum(matmul(x.T, y)) / views.samples
        own_D = correlation_DD.diagonal()
        others_D = (correlation_DD - own_D.diag_embed()).square().sum(1)
        return reduced((1 - own_D).square() + self.weight * others_D, self.reduction)
