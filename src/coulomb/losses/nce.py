"""NCE: distinguish each sample's entry in a memory bank from noise by binary classification."""

import math
from dataclasses import KW_ONLY, InitVar
from typing import Annotated, Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.ground.checked import check_shape, check_tensor, checked_number, readable
from coulomb.losses.diagnosis import Diagnosis, Result
from coulomb.losses.inputs import lengths, paired_products, paired_rows, reduced, unit_rows
from coulomb.losses.options import Flag, Loss, Reduction, Share, Tau, Whole
from coulomb.losses.temperature import scale_of
from coulomb.similarity.products import matmul

CHUNK = 512  # noise samples per product with the query


def _checked_normalizer(name: str, normalizer: Any) -> float | str | None:
    if normalizer is None or (isinstance(normalizer, str) and normalizer == "ema"):
        return normalizer
    if isinstance(normalizer, str):
        raise ValueError(f"{name} must be None, 'ema' or a positive number, got {normalizer!r}")
    return checked_number(name, normalizer, above=0)


class NCELoss(Loss):
    """L_i = −log P⁺/(P⁺ + mPₙ⁺) − Σ_k log mPₙₖ/(Pₖ + mPₙₖ),  P = e^{cos/τ}/Z   (instance discrimination, Wu et al., 2018)

    Noise-contrastive estimation of a softmax over n instances: k runs over m noise samples drawn from Pₙ, and Z replaces
    the normalizer of the softmax. Sum over noise samples, mean over anchors. P = Pₙ = 1/n with m = 4096 gives 9.3179.

    When to use: a memory bank with so many instances that a softmax over all of them is too slow. Otherwise `SoftmaxLoss`
    with the bank as its (normalized) centers is exact and needs no Z.
    Needs: the instance of each sample, and a bank from which the caller draws noise (m = 4096, uniform, with replacement)
    and which it updates after the step: v ← normalized (v + f)/2. No labels.
    Temperature: noise sample k is pushed by P_k/(P_k + mPₙ)/τ: close to 0 if it is distant, 1/τ if it is near. Z depends on τ:
    with a `LearnableTemperature` use ``normalizer="ema"``.
    Cost: 6u with u = B·m·D; 4u if the noise has no gradient. Memory: the noise, which the caller gathers.
    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018,
    arXiv:1805.01978; Gutmann & Hyvärinen, Noise-Contrastive Estimation: A New Estimation Principle for Unnormalized
    Statistical Models, AISTATS 2010.

    Args:
        num_instances: n, the number of instances in the memory bank.
        temperature: τ, or a `LearnableTemperature`. 0.07 as in the authors' code.
        normalizer: Z. None: estimated as the mean of e^{cos/τ}/Pₙ over the noise of the first batch, then fixed, as the
            authors do; ``"ema"``: exponential moving average over the estimates of all training batches; a number: fixed.
            log Z is the buffer ``log_normalizer``, NaN before the first estimate, and saved with the model.
        noise_log_prob: log Pₙ of each instance, [n]. None: uniform, log 1/n.
        momentum: weight of the old Z in the moving average, in [0, 1).
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([B]).
        diagnose: return (loss, `Diagnosis`), with the noise as negatives.

    Shape:
        query, positive: [B, D].
        noise: [B, m, D].
        noise_index: [B, 1+m].
        output: scalar, or [B] with ``reduction="none"``.

    Deviation: the authors add 1e-7 to both denominators (not needed in log space), and include the positive in the mean
    that estimates Z.
    Degenerate input: m = 0 is an error. In ``eval()`` Z is not updated; before the first estimate, the batch's estimate
    is used. Transforms of `torch.func` need a number for Z, since an estimate is written to a buffer.

    Raises:
        ValueError, TypeError: an argument is invalid; the message names it. NaN or infinite features raise ValueError.

    >>> NCELoss(1000)(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4096, 3))
    tensor(9.3179)
    """

    num_instances: Whole
    temperature: Tau = 0.07
    normalizer: Annotated[float | str | None, _checked_normalizer] = None
    noise_log_prob: InitVar[Tensor | None] = None
    _: KW_ONLY
    momentum: Share = 0.9
    normalize: Flag = True
    reduction: Reduction = "mean"
    diagnose: Flag = False

    def __post_init__(self, noise_log_prob: Tensor | None) -> None:
        self.log_normalizer: Tensor
        self.register_buffer("log_normalizer", torch.tensor(torch.nan))
        self.register_buffer("noise_log_prob", _checked_log_prob(noise_log_prob, self.num_instances))

    def forward(self, query: Tensor, positive: Tensor, noise: Tensor, noise_index: Tensor | None = None) -> Result:
        """Returns the loss, with its `Diagnosis` if ``diagnose``.

        Args:
            query: embeddings of the anchors.
            positive: the bank's entries of the same instances.
            noise: the bank's entries of the drawn instances; may contain the positive, as in the authors' code.
            noise_index: instances of the positive, then of each noise entry; needed if ``noise_log_prob`` is set.
        """
        rows = paired_rows(("query", "positive"), query, positive, normalize=self.normalize)
        check_shape("noise", noise, ndim=(3,), like=query, least=0)
        batch, m = noise.shape[:2]
        if batch != len(query) or m == 0:
            raise ValueError(f"noise must have shape [{len(query)}, m, D] with m at least 1, got {tuple(noise.shape)}")
        scale, log_m = scale_of(self.temperature), math.log(m)
        positive = scale * paired_products(rows.view(2, batch, -1))
        others = scale * _cosines(rows[:batch], noise, normalize=self.normalize)
        positive_noise, others_noise = self._log_noise(noise_index, others)
        log_z = self._log_z(others - others_noise)
        # softplus of the log odds of mPₙ⁺ : P⁺ and of Pₖ : mPₙₖ
        losses = softplus(log_z + log_m + positive_noise - positive, threshold=50)
        losses = losses + softplus(others - (log_z + log_m + others_noise), threshold=50).sum(1)
        loss = reduced(losses, self.reduction)
        return (loss, _diagnosis(positive.detach(), others.detach(), scale)) if self.diagnose else loss

    def _log_noise(self, index: Tensor | None, others: Tensor) -> tuple[float | Tensor, float | Tensor]:
        """Returns log Pₙ of the positives [B] and of the noise [B, m]."""
        batch, m = others.shape
        if index is not None:
            check_tensor("noise_index", index, "an integer", (batch, 1 + m), others, ", with the positive first")
            least, greatest = (int(one) for one in index.aminmax()) if readable(index) else (0, 0)
            if least < 0 or greatest >= self.num_instances:
                raise ValueError(
                    f"noise_index must be from 0 to {self.num_instances - 1}, got values from {least} to {greatest}"
                )
        log_prob = self.get_buffer("noise_log_prob")
        if log_prob is None:
            return -math.log(self.num_instances), -math.log(self.num_instances)
        if index is None:
            raise ValueError(
                f"noise_index [{batch}, {1 + m}] is required with noise_log_prob: the positive's instance first"
            )
        log_prob = log_prob.to(others.dtype)[index.long()]
        return log_prob[:, 0], log_prob[:, 1:]

    @torch.no_grad()
    def _log_z(self, log_weights: Tensor) -> float | Tensor:
        """Returns log Z. ``log_weights`` [B, m] are log e^s/Pₙ of the noise; the mean of e^s/Pₙ estimates Z."""
        if isinstance(self.normalizer, float):
            return math.log(self.normalizer)
        old = self.log_normalizer
        new = (log_weights.detach().flatten().logsumexp(0) - math.log(log_weights.numel())).to(old.dtype)
        kept = old
        if self.normalizer == "ema" and self.training:
            log_momentum = math.log(self.momentum) if self.momentum else -math.inf
            kept = torch.logaddexp(old + log_momentum, new + math.log1p(-self.momentum))
        updated = torch.where(old.isnan(), new, kept)
        if self.training:
            old.copy_(updated)
        return updated.clone()


def _cosines(query: Tensor, noise: Tensor, *, normalize: bool) -> Tensor:
    """Returns q·n/‖n‖, [B, m], without a normalized copy of the noise, by far the largest tensor.

    Computed in chunks, since the gradient of one batched product over 65,536 noise samples loses precision.
    """
    noise = noise.to(query.dtype)
    length = lengths(("noise",), noise).squeeze(2) if normalize else None
    if not normalize:
        unit_rows("noise", noise, normalize=False, ndim=(3,), least=0)
    products = torch.cat([matmul(chunk, query[:, :, None]).squeeze(2) for chunk in noise.split(CHUNK, 1)], 1)
    return products if length is None else products / length


def _checked_log_prob(log_prob: Tensor | None, num_instances: int) -> Tensor | None:
    if log_prob is None:
        return None
    check_tensor("noise_log_prob", log_prob, "a floating", (num_instances,), log_prob)
    log_prob = log_prob.detach().to(torch.promote_types(log_prob.dtype, torch.float32)).clone()
    total = float(log_prob.logsumexp(0)) if readable(log_prob) else 0.0
    if not abs(total) <= 1e-3 or (readable(log_prob) and log_prob.isinf().any()):
        raise ValueError(
            f"noise_log_prob must be finite log probabilities whose exponentials sum to 1, got log sum {total:.4g}: "
            "subtract its logsumexp"
        )
    return log_prob


@torch.no_grad()
def _diagnosis(positive: Tensor, others: Tensor, scale: float | Tensor) -> Diagnosis:
    log_p = others.log_softmax(1)
    return Diagnosis(
        positive=positive / scale,
        hardest_negative=others.amax(1) / scale,
        effective_negatives=(-(log_p.exp() * log_p).sum(1)).exp(),
        without_positive=torch.zeros((), dtype=torch.long, device=positive.device),
    )
