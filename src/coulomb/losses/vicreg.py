"""VICReg: invariance between views, variance of each dimension, and no covariance between dimensions."""

from dataclasses import KW_ONLY

from torch import Tensor

from coulomb.losses.inputs import reduced
from coulomb.losses.options import Gather, Loss, NonNegative, Reduction
from coulomb.losses.statistics import two_views
from coulomb.similarity.products import matmul

EPSILON = 1e-4  # added to the variance, as in the authors' code


class VICRegLoss(Loss):
    """L = mean_d [λ mean_i (x_id − y_id)² + μ/2 Σ max(1 − std_d, 0) + ν Σ Σ_{e≠d} cov_de²]   (VICReg, Bardes et al., 2022)

    Σ is over the two views; std and cov are their standard deviations and covariances over the batch. The variance term
    prevents collapse to a point, the covariance term collapse to a few dimensions. No sample is compared with another.

    When to use: training without labels, negatives, a predictor or a momentum encoder, even with small batches.
    Needs: two views of each sample, and embeddings that are not normalized, of many dimensions (the authors: 8,192, from
    a projection head of three layers). No labels.
    Temperature: none. λ and μ should be equal and above ν; with λ > 0 and μ = 0 all embeddings collapse.
    Cost: 12u with u = N·D². Memory is linear in N, and D² for the statistics.
    Reference: Bardes, Ponce & LeCun, VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning,
    ICLR 2022, arXiv:2105.04906.

    Args:
        invariance: λ; 25 as in the paper.
        variance: μ; 25 as in the paper.
        covariance: ν; 1 as in the paper.
        reduction: ``"mean"`` over dimensions, L itself; ``"sum"``, or ``"none"`` ([D]).
        gather: compute the statistics over the batches of all processes. True, False, or ``"auto"``: True if
            torch.distributed is initialized with several processes, which must then all call the loss. L then covers all
            samples and is equal on every process.

    Shape:
        view0, view1: [N, D].
        output: scalar, or [D] with ``reduction="none"``.

    Deviation: none from the authors' code, which halves the sum of both views' variance terms and divides the invariance by
    D, unlike the paper. It takes N from the configuration, so that a smaller last batch is divided by a different
    number.
    Degenerate input: equal features give 0.99·μ. N = 1 has no variance or covariance, and a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> VICRegLoss()(torch.ones(8, 3), torch.ones(8, 3))  # 25 (1 − √0.0001)
    tensor(24.7500)
    """

    invariance: NonNegative = 25.0
    variance: NonNegative = 25.0
    covariance: NonNegative = 1.0
    _: KW_ONLY
    reduction: Reduction = "mean"
    gather: Gather = "auto"

    def forward(self, view0: Tensor, view1: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            view0: embeddings of one view of each sample.
            view1: embeddings of another view of the same samples.
        """
        views = two_views(view0, view1, self.gather, degree=4)
        n, centered = views.samples, views.centered()
        distance_D = views.sum((views.rows[0] - views.rows[1]).square().sum(0)) / n
        covariance_2DD = views.sum(matmul(centered.mT, centered)) / max(n - 1, 1)
        variance_2D = covariance_2DD.diagonal(dim1=1, dim2=2)
        hinge_D = (1 - (variance_2D + EPSILON).sqrt()).relu().mean(0)
        others_D = (covariance_2DD - variance_2D.diag_embed()).square().sum((0, 1))
        loss_D = self.invariance * distance_D + self.variance * hinge_D + self.covariance * others_D
        return reduced(loss_D, self.reduction)
