"""NT-Xent: identify the other view of the same sample among all views of the batch."""

from torch import Tensor

from coulomb.ground.checked import check_shape
from coulomb.losses.diagnosis import Result, diagnose_rows
from coulomb.losses.inputs import normalized, warn_counted
from coulomb.losses.negatives import ContrastiveLoss, reduced_over
from coulomb.losses.options import Tau
from coulomb.losses.temperature import scale_of
from coulomb.similarity.collectives import gather_group


class NTXentLoss(ContrastiveLoss):
    """L_i = LSE_{j≠i} s_ij − s_i⁺,  s = cos/τ, mean over all 2N anchors   (SimCLR, Chen et al., 2020)

    Two views: computed as softplus(LSE over the negatives − s⁺), which is equal but does not cancel near 0.
    V views: the mean over an anchor's V−1 positives, L_i = LSE_{j≠i} s_ij − mean s_ip (SupCon without labels).
    If all features are equal, the loss is ln(2N−1), its value for constant embeddings.

    When to use: unlabeled images, or other data that can be augmented, with two or more views per sample and batches of
    several hundred samples or more.
    Needs: two or more views of each sample. No labels. More samples per batch give more negatives.
    Temperature: a negative is pushed in proportion to its softmax e^{s_ij} among all other views: as τ → 0 only the hardest
    is pushed, as τ → ∞ all are pushed equally. A low τ spreads the samples evenly, but also separates similar ones.
    Cost: 4u with u = (V·N)²·D. Memory is linear in V·N.
    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020,
    arXiv:2002.05709.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.5 as in SimCLR on CIFAR; 0.1 on ImageNet.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([V·N]: all of view 0, then all of view 1, …).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: use the samples of all processes as negatives. True, False, or ``"auto"``: True if torch.distributed is
            initialized with several processes, which must then all call the loss. See `coulomb.losses.negatives` for the
            convention.

    Shape:
        view0: [N, D], or [N, V, D] without view1.
        view1: [N, D].
        scale: a number or a 0-dim tensor.
        output: scalar, or [V·N] with ``reduction="none"``.

    Deviation: the authors' TPU code returns twice the paper's value; this loss returns the paper's value.
    Degenerate input: N = 1 has no negatives; a `CoulombWarning` is issued.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> NTXentLoss()(torch.ones(8, 3), torch.ones(8, 3))  # ln 15
    tensor(2.7081)
    """

    temperature: Tau = 0.5

    def forward(self, view0: Tensor, view1: Tensor | None = None, *, scale: float | Tensor | None = None) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            view0: embeddings of one view of each sample, or of all V views.
            view1: embeddings of another view of the same samples; None if ``view0`` holds all views.
            scale: 1/τ of this call in place of ``temperature``; a tensor gets its gradient.
        """
        scale = scale_of(self.temperature, scale)
        if view1 is None:
            check_shape("view0", view0, ndim=(3,))
            if view0.shape[1] != 2:
                return self._more_views(view0, scale)
            view0, view1 = view0.unbind(1)
        contrast = self._views(view0, view1, scale)
        return self._result(contrast, contrast.similarity.contrast(contrast.positives))

    def _more_views(self, views: Tensor, scale: float | Tensor) -> Result:
        n, v, dim = views.shape
        if v < 2:
            raise ValueError(f"view0 must hold at least 2 views [N, V, D], got shape {tuple(views.shape)}")
        group = gather_group(self.gather)
        rows = normalized(("view0",), views.transpose(0, 1).reshape(n * v, dim), normalize=self.normalize)
        factors = self._factors("view0", rows), None
        similarity = self._similarity(rows, None, factors, scale=scale, instances=n, half=views.dtype, group=group)
        anchors = similarity.number_of_keys
        if anchors == v:
            warn_counted(v, v, "anchors have no negative (N = 1): the loss gives no gradient")
        loss_N = self._weighted(similarity.lse("others") - similarity.mean("positives"))
        loss = reduced_over(group, loss_N, self.reduction, anchors)
        return (loss, diagnose_rows(similarity)) if self.diagnose else loss
