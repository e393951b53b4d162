"""Hard negatives: weight negatives by their similarity to the anchor."""

import math

from torch import Tensor
from torch.nn.functional import softplus

from coulomb.losses.debiased import debiased, with_bounded
from coulomb.losses.diagnosis import Result
from coulomb.losses.negatives import ContrastiveLoss
from coulomb.losses.options import NonNegative, Share, Tau
from coulomb.losses.temperature import scale_of


class HardNegativeLoss(ContrastiveLoss):
    """L_i = softplus(log N_g − s⁺),  N_g = max((R − τ⁺M e^{s⁺})/(1−τ⁺), M e^{−1/τ})   (Robinson et al., 2021)

    The debiased loss with negatives drawn in proportion to e^{βs}: R = M Σ_k e^{(1+β)s_ik} / Σ_k e^{βs_ik}, computed as
    log R = log M + LSE((1+β)s) − LSE(βs) in one pass over the similarities.

    When to use: unlabeled data in which most negatives are too easy. Near negatives get more weight, and τ⁺ corrects for
    false negatives.
    Needs: two views of each sample, an estimate of τ⁺, and β (start with 1; a large β concentrates on false negatives).
    Temperature: as in `DebiasedLoss`, and in addition β: the push on a negative is (1+β)·softmax((1+β)s) − β·softmax(βs),
    which sums to 1. Near negatives get more of it than in NT-Xent; distant ones may even be pulled. As β → ∞, only the
    hardest negative is pushed.
    Cost: 4u with u = (2N)²·D, and two exponentials per pair. Memory is linear in N.
    Reference: Robinson et al., Contrastive Learning with Hard Negative Samples, ICLR 2021, arXiv:2010.04592.

    Args:
        temperature: τ, or a `LearnableTemperature`; 0.5 as in the authors' code.
        beta: β ≥ 0, how strongly near negatives are preferred; 1 as in the authors' code. 0 gives `DebiasedLoss`, and with
            ``tau_plus=0`` NT-Xent. The attribute may be changed during training (annealing).
        tau_plus: τ⁺ in [0, 1), the probability that a random sample has the anchor's class; 0.1 as in the authors' code.
        normalize, reduction, diagnose, gather: as in `DebiasedLoss`.

    Shape:
        view0, view1: [N, D].
        output: scalar, or [2N] with ``reduction="none"``.

    Deviation: none in value. The authors' exponentials overflow in fp32 if (1+β)/τ > 88; this implementation does not.
    Degenerate input and Raises: as for `DebiasedLoss`.

    >>> view = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> HardNegativeLoss(1.0, beta=2.0, tau_plus=0.0)(view, view)  # equal negatives: log(e + 2) − 1
    tensor(0.5514)
    """

    temperature: Tau = 0.5
    beta: NonNegative = 1.0
    tau_plus: Share = 0.1

    def forward(self, view0: Tensor, view1: Tensor) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            view0: embeddings of one view of each sample.
            view1: embeddings of another view of the same samples.
        """
        contrast = self._views(view0, view1, scale_of(self.temperature))
        if self.beta == 0 or contrast.count == 0:
            log_negatives = contrast.similarity.lse("negatives")
        else:
            preference, preferred = contrast.similarity.lses((self.beta, 1 + self.beta), "negatives").unbind()
            log_negatives = math.log(contrast.count) + preferred - preference
        excess, bounded = debiased(contrast, log_negatives - contrast.positives, self.tau_plus)
        return with_bounded(self._result(contrast, softplus(excess, threshold=50)), bounded)
