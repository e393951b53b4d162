"""Hard negatives: the nearer a negative, the more it counts."""

from functools import partial
from typing import ClassVar

from torch import Tensor

from coulomb.checked import checked_number
from coulomb.losses.debiased import DebiasedLoss
from coulomb.losses.temperature import Temperature
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather


class HardNegativeLoss(DebiasedLoss):
    """L_i = softplus(log N_g − s⁺),  N_g = max((R − τ⁺M e^{s⁺})/(1−τ⁺), M e^{−1/τ})   (Robinson et al., 2021)

    R = M Σ_k e^{(1+β)s_ik} / Σ_k e^{βs_ik}, the debiased loss with negatives drawn in proportion to e^{βs}: log R =
    log M + LSE((1+β)s) − LSE(βs), both from one pass over the similarities.

    When to use: no labels, and most negatives are too easy: the near ones should count more, and false negatives be
    allowed for.
    Needs: two views of each sample, a guess of τ⁺, and β (begin with 1; too large a β rests on the false negatives).
    Temperature: as in `DebiasedLoss`, with β on top: a negative's push is (1+β)·softmax((1+β)s) − β·softmax(βs), which
    sums to 1; near ones get more than by NT-Xent, far ones may even be pulled. β → ∞ leaves the hardest alone.
    Cost: 4u, u = (2N)²·D, with two exponentials a pair; memory linear.
    Reference: Robinson et al., Contrastive Learning with Hard Negative Samples, ICLR 2021, arXiv:2010.04592.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.5 as in the authors' code.
        beta: β ≥ 0, how much nearer negatives are preferred; 1 as in the authors' code. 0 is `DebiasedLoss`, and with
            ``tau_plus=0`` NT-Xent. The attribute may be changed during training (annealing).
        tau_plus: τ⁺ in [0, 1), the chance that a random sample has the anchor's class. 0.1 as in the authors' code.
        normalize, reduction, diagnose, gather: as in `DebiasedLoss`.

    Call with view0 [N, D] and view1 [N, D].

    Deviation: none in value. The authors' exponentials overflow in fp32 when (1+β)/τ > 88; these do not.
    Degenerate input and Raises: as for `DebiasedLoss`.

    >>> view = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> HardNegativeLoss(1.0, beta=2.0, tau_plus=0.0)(view, view)  # all negatives alike: log(e + 2) − 1
    tensor(0.5514)
    """

    checks: ClassVar = {"beta": partial(checked_number, at_least=0)}

    def __init__(
        self,
        temperature: Temperature = 0.5,
        beta: float = 1.0,
        tau_plus: float = 0.1,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__(
            temperature, tau_plus, normalize=normalize, reduction=reduction, diagnose=diagnose, gather=gather
        )
        self.beta = beta

    def _log_negatives(self, similarity: Similarity, log_count: float) -> Tensor:
        """log R, [2N]."""
        if self.beta == 0 or log_count < 0:  # log_count: −∞ without negatives
            return super()._log_negatives(similarity, log_count)
        preference, preferred = similarity.lses((self.beta, 1 + self.beta), "negatives").unbind()
        return log_count + preferred - preference

    def _powers(self) -> tuple[float, ...]:
        return (self.beta, 1 + self.beta) if self.beta else super()._powers()

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return f"beta={self.beta:g}, {super().extra_repr()}"
