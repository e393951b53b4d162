"""Negative cosine, for methods without negatives (BYOL, SimSiam)."""

from dataclasses import KW_ONLY

from torch import Tensor

from coulomb.losses.inputs import paired_rows, reduced
from coulomb.losses.options import Flag, Loss, Reduction


class NegativeCosineLoss(Loss):
    """L_i = −cos(p_i, sg(z_i))   (SimSiam, Chen & He, 2021; BYOL, Grill et al., 2020)

    SimSiam is ½(L(p1, z2) + L(p2, z1)). BYOL is (2 + 2 L(p1, z2)) + (2 + 2 L(p2, z1)), with z of the target network; its
    2 − 2cos is the squared distance of unit vectors. Nothing here keeps samples apart: the predictor, the stopped gradient
    and (BYOL) the slow target do; without stopping the gradient SimSiam collapses to L = −1.

    When to use: no negatives are wanted, or the batch is too small for them, and a predictor (SimSiam) or a predictor
    and a slow target network (BYOL) are at hand.
    Needs: the output of a predictor for one view, and the target for the other. No labels, no negatives.
    Temperature: none. The pull on p has size sin θ/‖p‖: strongest at a right angle, gone when the two agree.
    Cost: O(N·D).
    Reference: Grill et al., Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning, NeurIPS 2020,
    arXiv:2006.07733; Chen & He, Exploring Simple Siamese Representation Learning, CVPR 2021, arXiv:2011.10566.

    Args:
        stop_gradient: sg, the target gets no gradient.
        normalize: scale rows to unit length; without, L = −p·z.
        reduction: ``"mean"`` over samples, ``"sum"``, or ``"none"`` ([N]).

    Call with prediction [N, D] (of the predictor) and target [N, D].

    Deviation: none; the ½ of SimSiam and BYOL's 2 + 2L are left to the caller, who has both pairs.
    Degenerate input: a row of zeros has cosine 0 and no gradient, and is counted in a `CoulombWarning`.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> NegativeCosineLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 1.0]]))  # −cos 45°
    tensor(-0.7071)
    """

    stop_gradient: Flag = True
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss; see the class."""
        target = target.detach() if self.stop_gradient and isinstance(target, Tensor) else target
        rows = paired_rows(("prediction", "target"), prediction, target, normalize=self.normalize)
        prediction, target = rows.chunk(2)
        return reduced(-(prediction * target).sum(1), self.reduction)
