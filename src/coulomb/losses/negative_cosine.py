"""Negative cosine similarity, for methods without negatives (BYOL, SimSiam)."""

from dataclasses import KW_ONLY

from torch import Tensor

from coulomb.losses.inputs import paired_products, paired_rows, reduced
from coulomb.losses.options import Flag, Loss, Reduction


class NegativeCosineLoss(Loss):
    """L_i = −cos(p_i, sg(z_i))   (SimSiam, Chen & He, 2021; BYOL, Grill et al., 2020)

    SimSiam is ½(L(p1, z2) + L(p2, z1)). BYOL is (2 + 2 L(p1, z2)) + (2 + 2 L(p2, z1)) with z from the target network, since
    2 − 2cos is the squared distance of unit vectors. The loss itself does not prevent collapse; the predictor, the
    stop-gradient and (in BYOL) the slowly updated target do. Without the stop-gradient, SimSiam collapses to L = −1.

    When to use: training without negatives, or with batches too small for them, if the model has a predictor (SimSiam) or a
    predictor and a momentum target network (BYOL).
    Needs: the predictor's output for one view, and the target embedding of the other. No labels, no negatives.
    Temperature: none. The gradient with respect to p has length sin θ/‖p‖: largest at a right angle, 0 if the two agree.
    Cost: O(N·D).
    Reference: Grill et al., Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning, NeurIPS 2020,
    arXiv:2006.07733; Chen & He, Exploring Simple Siamese Representation Learning, CVPR 2021, arXiv:2011.10566.

    Args:
        stop_gradient: sg, detach the target.
        normalize: scale rows to unit length. If False, L = −p·z.
        reduction: ``"mean"`` over samples, ``"sum"``, or ``"none"`` ([N]).

    Shape:
        prediction, target: [N, D].
        output: scalar, or [N] with ``reduction="none"``.

    Deviation: none. The caller combines the two directions, with SimSiam's ½ or BYOL's 2 + 2L.
    Degenerate input: a row of zeros has cosine 0 and gets no gradient; a `CoulombWarning` counts such rows.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> NegativeCosineLoss()(torch.tensor([[2.0, 0.0]]), torch.tensor([[1.0, 1.0]]))  # −cos 45°
    tensor(-0.7071)
    """

    stop_gradient: Flag = True
    _: KW_ONLY
    normalize: Flag = True
    reduction: Reduction = "mean"

    def forward(self, prediction: Tensor, target: Tensor) -> Tensor:
        """Returns the loss.

        Args:
            prediction: outputs of the predictor.
            target: embeddings of the other view.
        """
        target = target.detach() if self.stop_gradient and isinstance(target, Tensor) else target
        rows = paired_rows(("prediction", "target"), prediction, target, normalize=self.normalize)
        return reduced(-paired_products(rows.view(2, len(prediction), -1)), self.reduction)
