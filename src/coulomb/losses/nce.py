"""NCE: tell each sample's own memory from noise, one yes-or-no question at a time."""

import math
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import softplus

from coulomb.checked import ZERO, checked_number, checked_whole, readable
from coulomb.losses import at_once
from coulomb.losses.arguments import (
    WHOLE,
    check_pair,
    check_shape,
    embeddings,
    paired_embeddings,
    reduced,
    require_dense,
)
from coulomb.losses.diagnosis import Diagnosis
from coulomb.losses.options import Loss
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.losses.unit_rows import check_norms, lengths_of
from coulomb.similarity.exact import matmul

AT_ONCE = 512  # noise samples whose products with the anchors are stored at a time


def _checked_normalizer(name: str, normalizer: Any) -> float | str | None:
    if normalizer is None or (isinstance(normalizer, str) and normalizer == "ema"):
        return normalizer
    if isinstance(normalizer, str):
        raise ValueError(f"{name} must be None, 'ema' or a positive number, got {normalizer!r}")
    return checked_number(name, normalizer, above=0)


class NCELoss(Loss):
    """L_i = −log P⁺/(P⁺ + mPₙ⁺) − Σ_k log mPₙₖ/(Pₖ + mPₙₖ),  P = e^{cos/τ}/Z   (instance discrimination, Wu et al., 2018)

    Noise-contrastive estimation of a softmax over n instances: k runs over m noise samples drawn from Pₙ, and Z stands in
    for the softmax's normaliser. A sum over noise samples; mean over anchors. P = Pₙ = 1/n with m = 4096 gives 9.3179.

    When to use: a memory bank of so many instances that a softmax over all of them is too slow. Where it is not,
    `SoftmaxLoss` with the bank as its (normalised) centres is exact, and needs no Z.
    Needs: the instance of each sample, and a bank that the caller draws noise from (m = 4096, uniform, with
    replacement) and updates after the step: v ← normalised (v + f)/2. No labels.
    Temperature: noise sample k is pushed by P_k/(P_k + mPₙ)/τ: hardly at all where it is far, by 1/τ where it is near.
    Z depends on τ: with a `LearnableTemperature` take ``normalizer="ema"``.
    Cost: 6u with u = B·m·D; 4u where the noise has no gradient. Memory is that of the noise, which the caller gathers.
    Reference: Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination, CVPR 2018,
    arXiv:1805.01978; Gutmann & Hyvärinen, Noise-Contrastive Estimation: A New Estimation Principle for Unnormalized
    Statistical Models, AISTATS 2010.

    Args:
        num_instances: n, how many instances the memory bank holds.
        temperature: τ, or a `LearnableTemperature`. 0.07 as in the authors' code.
        normalizer: Z. None: estimated as the mean of e^{cos/τ}/Pₙ over the noise of the first batch, then fixed, as the
            authors do; ``"ema"``: estimated on every training batch, exponential moving average; a number: fixed.
            log Z is the buffer ``log_normalizer``, NaN until it is known, and saved with the model.
        noise_log_prob: log Pₙ of each instance, [n]. None: uniform, log 1/n.
        momentum: share of the old Z in the moving average.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([B]).
        diagnose: return (loss, `Diagnosis`), with the noise as negatives.

    Call with query [B, D], positive [B, D] (the memory of the same instances), noise [B, m, D] (the memory of the drawn
    instances) and, where ``noise_log_prob`` is given, noise_index [B, 1+m]: the instance of the positive, then those of the
    noise. Noise may happen to contain the positive, as in the authors' code.

    Deviation: the authors add 1e-7 to both denominators (here log space needs no such guard), and count the positive in
    the mean that estimates Z.
    Degenerate input: m = 0 is an error. In ``eval()`` Z is not updated; one not known yet is taken from the batch.
    `torch.func` transforms need a number for Z: an estimate is written to a buffer.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> NCELoss(1000)(torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 4096, 3))
    tensor(9.3179)
    """

    log_normalizer: Tensor
    noise_log_prob: Tensor | None

    checks: ClassVar = {
        "num_instances": checked_whole,
        "temperature": checked_temperature,
        "normalizer": _checked_normalizer,
        "momentum": partial(checked_number, at_least=0, below=1),
    }

    def __init__(
        self,
        num_instances: int,
        temperature: Temperature = 0.07,
        normalizer: float | str | None = None,
        noise_log_prob: Tensor | None = None,
        *,
        momentum: float = 0.9,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
    ) -> None:
        super().__init__()
        self.num_instances = num_instances
        self.temperature = temperature
        self.normalizer = normalizer
        self.register_buffer("log_normalizer", torch.tensor(torch.nan))
        self.register_buffer("noise_log_prob", _checked_log_prob(noise_log_prob, self.num_instances))
        self.momentum = momentum
        self.normalize = normalize
        self.reduction = reduction
        self.diagnose = diagnose

    def forward(
        self, query: Tensor, positive: Tensor, noise: Tensor, noise_index: Tensor | None = None
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        check_pair(("query", "positive"), query, positive)
        check_shape("noise", noise, ndim=(3,), like=query)
        batch, m = noise.shape[:2]
        if batch != len(query) or m == 0:
            raise ValueError(f"noise must have shape [{len(query)}, m, D] with m at least 1, got {tuple(noise.shape)}")
        scale = scale_of(self.temperature)
        plainly = isinstance(self.normalizer, float) and self.noise_log_prob is None and noise_index is None
        plainly = plainly and m <= AT_ONCE and not (noise.requires_grad or self.diagnose)
        if at_once.fits(batch, m, query, reduction=self.reduction, plainly=plainly):
            find = partial(self._at_once, query, positive, noise, scale)
            return at_once.known(find, self._streamed, query, positive, noise, scale)
        return self._streamed(query, positive, noise, scale, noise_index)

    def _at_once(
        self, query: Tensor, positive: Tensor, noise: Tensor, scale: float | Tensor, learning: bool
    ) -> at_once.Found:
        batch, m = noise.shape[:2]
        rows = at_once.Rows(("query", "positive"), (query, positive), normalize=self.normalize)
        first, second, noise = rows.unit[:batch], rows.unit[batch:], noise.to(rows.unit.dtype)
        length = torch.linalg.vector_norm(noise, dim=-1)
        if check_norms(length, ("noise",), self.normalize):
            length.masked_fill_(length < ZERO, torch.inf)
        length = length if self.normalize else torch.ones_like(length)
        # log of P : mPₙ, of the positive negated
        assert isinstance(self.normalizer, float)
        offset = math.log(self.normalizer) + math.log(m) - math.log(self.num_instances)
        own = (first * second).sum(1).mul_(scale).neg_().add_(offset)
        others = torch.bmm(noise, first[:, :, None]).squeeze(2).div_(length).mul_(scale).sub_(offset)
        loss = softplus(own, threshold=50).sum().add_(softplus(others, threshold=50).sum())
        factor = at_once.factor_of(self.reduction, batch)
        if not learning:
            return loss.mul_(factor), ()
        grad, pull = torch.empty_like(rows.unit), own.sigmoid_().neg_()[:, None]
        pushed = torch.bmm(others.sigmoid_().div_(length)[:, None], noise).squeeze(1)
        torch.addcmul(pushed, second, pull, out=grad[:batch])
        torch.mul(first, pull, out=grad[batch:])
        grad_scale = (first * grad[:batch]).sum().mul_(factor) if isinstance(scale, Tensor) else None
        return loss.mul_(factor), (*rows.back(grad, scale * factor), None, grad_scale)

    def _streamed(
        self,
        query: Tensor,
        positive: Tensor,
        noise: Tensor,
        scale: float | Tensor,
        noise_index: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        both = paired_embeddings(("query", "positive"), query, positive, normalize=self.normalize)
        batch, m = noise.shape[:2]
        query, positive = both.view(2, batch, -1).unbind()
        own = scale * (query * positive).sum(1)
        others = scale * _cosines(query, noise, normalize=self.normalize)
        own_noise, others_noise = self._log_noise(noise_index, batch, m, others)
        log_z = self._log_z(others - others_noise)
        own_odds = own - log_z - (math.log(m) + own_noise)  # log of P⁺ : mPₙ⁺
        other_odds = others - log_z - (math.log(m) + others_noise)
        loss = softplus(-own_odds, threshold=50) + softplus(other_odds, threshold=50).sum(1)
        loss = reduced(loss, self.reduction)
        return (loss, _diagnosis(own.detach(), others.detach(), scale)) if self.diagnose else loss

    def _log_noise(
        self, index: Tensor | None, batch: int, m: int, like: Tensor
    ) -> tuple[float | Tensor, float | Tensor]:
        """Log Pₙ of the positives [B] and of the noise [B, m]."""
        if index is not None:
            _check_index(index, (batch, 1 + m), self.num_instances, like)
        if self.noise_log_prob is None:
            return -math.log(self.num_instances), -math.log(self.num_instances)
        if index is None:
            raise ValueError(
                f"noise_index is needed with noise_log_prob: [{batch}, {1 + m}], the positive's instance, then the noise's"
            )
        log_prob = self.noise_log_prob.to(like.dtype)[index.long()]
        return log_prob[:, 0], log_prob[:, 1:]

    @torch.no_grad()
    def _log_z(self, log_weights: Tensor) -> float | Tensor:
        """Log Z; ``log_weights`` are the log of e^s/Pₙ of the noise, whose mean estimates Z."""
        if isinstance(self.normalizer, float):
            return math.log(self.normalizer)
        known, now = self.log_normalizer, (log_weights.detach().flatten().logsumexp(0) - math.log(log_weights.numel()))
        now = now.to(known.dtype)
        if self.normalizer == "ema" and self.training and self.momentum > 0:
            moved = torch.logaddexp(known + math.log(self.momentum), now + math.log1p(-self.momentum))
            updated = torch.where(known.isnan(), now, moved)
        elif self.normalizer == "ema" and self.training:
            updated = now
        else:
            updated = torch.where(known.isnan(), now, known)
        if self.training:
            self.log_normalizer.copy_(updated)
        return updated.clone()

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"num_instances={self.num_instances}, {describe_temperature(self.temperature)}, normalizer={self.normalizer!r}, "
            f"normalize={self.normalize}, reduction={self.reduction!r}"
        )


def _cosines(query: Tensor, noise: Tensor, *, normalize: bool) -> Tensor:
    """q·n/‖n‖ [B, m]: the noise is by far the largest thing here, and is not written once more to have unit length.

    In portions, because a batched product adds one term after the other: over 65,536 noise samples its gradient would
    lose digits.
    """
    noise = noise.to(query.dtype)
    if not normalize:
        embeddings("noise", noise, normalize=False, ndim=(3,))
    length = lengths_of("noise", noise).squeeze(2) if normalize else None
    products = torch.cat([matmul(part, query[:, :, None]).squeeze(2) for part in noise.split(AT_ONCE, 1)], 1)
    return products if length is None else products / length


def _checked_log_prob(log_prob: Tensor | None, num_instances: int) -> Tensor | None:
    if log_prob is None:
        return None
    if not isinstance(log_prob, Tensor) or not log_prob.is_floating_point():
        raise TypeError("noise_log_prob must be a floating tensor [num_instances]")
    require_dense("noise_log_prob", log_prob)
    if log_prob.shape != (num_instances,):
        raise ValueError(f"noise_log_prob must have shape [{num_instances}], got {tuple(log_prob.shape)}")
    log_prob = log_prob.detach().to(torch.promote_types(log_prob.dtype, torch.float32))
    if not readable(log_prob):
        return log_prob.clone()
    total = float(log_prob.logsumexp(0))
    if not bool(torch.isfinite(log_prob).all()) or abs(total) > 1e-3:
        raise ValueError(
            f"noise_log_prob must be finite log probabilities whose exponentials sum to 1, got log sum {total:.4g}: "
            "subtract its logsumexp"
        )
    return log_prob.clone()


def _check_index(index: Tensor, shape: tuple[int, int], num_instances: int, like: Tensor) -> None:
    """Instances, the positive's first (values are checked only where they are `readable`)."""
    if not isinstance(index, Tensor) or index.dtype not in WHOLE:
        raise TypeError(f"noise_index must be an integer tensor, got {getattr(index, 'dtype', type(index).__name__)}")
    require_dense("noise_index", index)
    if index.shape != shape:
        raise ValueError(f"noise_index must have shape {list(shape)}, the positive's first, got {tuple(index.shape)}")
    if index.device != like.device:
        raise ValueError(f"noise_index is on {index.device}, query on {like.device}")
    if readable(index) and not (int(index.min()) >= 0 and int(index.max()) < num_instances):
        raise ValueError(
            f"noise_index must be from 0 to {num_instances - 1}, got {int(index.min())}…{int(index.max())}"
        )


@torch.no_grad()
def _diagnosis(own: Tensor, others: Tensor, scale: float | Tensor) -> Diagnosis:
    log_p = others.log_softmax(1)
    return Diagnosis(
        positive=own / scale,
        hardest_negative=others.amax(1) / scale,
        effective_negatives=(-(log_p.exp() * log_p).sum(1)).exp(),
        without_positive=torch.zeros((), dtype=torch.long, device=own.device),
    )
