"""Decoupled: NT-Xent without the positive in the denominator."""

from torch import Tensor

from coulomb.losses.diagnosis import Result
from coulomb.losses.negatives import Contrast, ContrastiveLoss
from coulomb.losses.options import Flag, Positive, Tau
from coulomb.losses.temperature import scale_of
from coulomb.similarity.collectives import gather_rows


class DecoupledLoss(ContrastiveLoss):
    """L_i = −w_i·s_i⁺ + LSE_k s_ik,  s = cos/τ,  w = 1   (DCL, Yeh et al., 2022)

    k runs over the 2N − 2 views of other samples; mean over all 2N anchors. NT-Xent is softplus(L_i): there, the gradient
    of an anchor is multiplied by 1 − p_i⁺, which is small for easy positives and small batches. Here it is not. L_i has
    no lower bound of 0.

    When to use: no labels and a small batch (256 or fewer), where NT-Xent learns slowly.
    Needs: two views of each sample. No labels.
    Temperature: a negative is pushed in proportion to its softmax e^{s_ik} among the negatives, as in NT-Xent; the pull
    of the positive is 1/τ, regardless of its similarity.
    Cost: 4u with u = (2N)²·D. Memory is linear in N.
    Reference: Yeh et al., Decoupled Contrastive Learning, ECCV 2022, arXiv:2110.06848.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.1 as in the paper.
        weighted: DCLW, which pulls distant positives more: w_i = 2 − e^{cos_i⁺/σ} / mean_j e^{cos_j⁺/σ}, the mean over the
            samples of the batch.
        sigma: σ of the weights; 0.5 as in the paper.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([2N]: all of view 0, then all of view 1).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: use the samples of all processes as negatives (and for the mean of the weights). True, False, or ``"auto"``:
            True if torch.distributed is initialized with several processes, which must then all call the loss. See
            `coulomb.losses.negatives` for the convention.

    Shape:
        view0, view1: [N, D].
        scale: a number or a 0-dim tensor.
        output: scalar, or [2N] with ``reduction="none"``.

    Deviation: none in value from raminnakhli/Decoupled-Contrastive-Learning on unit rows, both directions averaged; it adds
    −103 to masked similarities where this loss leaves them out. lightly's DCLWLoss passes no gradient through the weights.
    Degenerate input: N = 1 has no negatives: the loss is 0, and a `CoulombWarning` is issued. Equal features give ln(2N − 2).

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> DecoupledLoss()(torch.ones(8, 3), torch.ones(8, 3))  # ln 14
    tensor(2.6391)
    """

    temperature: Tau = 0.1
    weighted: Flag = False
    sigma: Positive = 0.5

    def forward(self, view0: Tensor, view1: Tensor, *, scale: float | Tensor | None = None) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            view0: embeddings of one view of each sample.
            view1: embeddings of another view of the same samples.
            scale: 1/τ of this call in place of ``temperature``; a tensor gets its gradient.
        """
        contrast = self._views(view0, view1, scale_of(self.temperature, scale))
        if contrast.count == 0:
            return self._result(contrast, 0 * contrast.positives)
        positives = contrast.positives * self._weights(contrast) if self.weighted else contrast.positives
        return self._result(contrast, contrast.similarity.lse("negatives") - positives)

    def _weights(self, contrast: Contrast) -> Tensor:
        """Returns 2 − N·softmax(cos⁺/σ) over the samples of all processes, [2N]."""
        scores = contrast.positives / (contrast.similarity.scale * self.sigma)  # each of the N samples twice
        log_sum = gather_rows(contrast.group, scores).logsumexp(0)
        return 2 - contrast.anchors * (scores - log_sum).exp()
