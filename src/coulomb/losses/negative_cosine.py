"""Negative cosine: methods without negatives (BYOL, SimSiam)."""

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from coulomb.checked import ZERO, checked_flag
from coulomb.losses import at_once
from coulomb.losses.arguments import check_pair, paired_embeddings, reduced
from coulomb.losses.options import Loss
from coulomb.losses.unit_rows import check_norms


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

    checks: ClassVar = {"stop_gradient": checked_flag}

    def __init__(self, stop_gradient: bool = True, *, normalize: bool = True, reduction: str = "mean") -> None:
        super().__init__()
        self.stop_gradient = stop_gradient
        self.normalize = normalize
        self.reduction = reduction

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """The loss; see the class."""
        check_pair(("prediction", "target"), prediction, target)
        if self.stop_gradient:
            target = target.detach()
        if at_once.fits(len(target), 1, target, reduction=self.reduction, plainly=self.normalize):
            return at_once.known(partial(self._at_once, prediction, target), self._plain, prediction, target)
        return self._plain(prediction, target)

    def _at_once(self, prediction: Tensor, target: Tensor, learning: bool) -> at_once.Found:
        x, y = at_once.alike(prediction, target)
        norm = torch.cat([torch.linalg.vector_norm(one, dim=1) for one in (x, y)])
        if check_norms(norm, ("prediction", "target"), True):
            norm.masked_fill_(norm < ZERO, torch.inf)
        inverse = norm.reciprocal_().view(2, -1, 1)
        cos = (x * inverse[0]).mul_(y).sum(1, keepdim=True).mul_(inverse[1])  # x·y itself may overflow
        factor = at_once.factor_of(self.reduction, len(x))
        loss = cos.sum().mul_(-factor)
        if not learning:
            return loss, ()
        across = (inverse[0] * inverse[1]).mul_(-factor)
        grads: list[Tensor | None] = [None, None]
        for i, (own, other, given) in enumerate(((x, y, prediction), (y, x, target))):
            if given.requires_grad:  # −(ŷ − cos·x̂)/‖x‖
                along = (cos * inverse[i].square()).mul_(factor)
                grads[i] = torch.addcmul(other * across, own, along).to(given.dtype)
        return loss, grads

    def _plain(self, prediction: Tensor, target: Tensor) -> Tensor:
        rows = paired_embeddings(("prediction", "target"), prediction, target, normalize=self.normalize)
        prediction, target = rows.view(2, len(prediction), -1).unbind()
        return reduced(-(prediction * target).sum(1), self.reduction)

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return f"stop_gradient={self.stop_gradient}, normalize={self.normalize}, reduction={self.reduction!r}"
