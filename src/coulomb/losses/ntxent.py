"""NT-Xent: among all other views of the batch, recognise your own other view."""

from functools import partial
from typing import ClassVar

from torch import Tensor

from coulomb.losses import at_once
from coulomb.losses.arguments import (
    check_pair,
    check_shape,
    paired_embeddings,
    require_batch,
    warn_counted,
)
from coulomb.losses.diagnosis import Diagnosis, diagnose_rows
from coulomb.losses.gathering import reduced_in
from coulomb.losses.options import Loss
from coulomb.losses.temperature import Temperature, checked_temperature, describe_temperature, scale_of
from coulomb.losses.unit_rows import rows_of
from coulomb.similarity import Similarity
from coulomb.similarity.collectives import Gather, group_of
from coulomb.similarity.products import product


class NTXentLoss(Loss):
    """L_i = LSE_{j≠i} s_ij − s_i⁺,  s = cos/τ, mean over all 2N anchors   (SimCLR, Chen et al., 2020)

    Two views: computed as softplus(LSE over the negatives − s⁺), which is the same and does not cancel near 0.
    V views: the mean over an anchor's V−1 positives, L_i = LSE_{j≠i} s_ij − mean s_ip (SupCon without labels).
    Features that are all equal give ln(2N−1), the value of "no signal".

    When to use: images (or anything that can be augmented) without labels, two or more views each, in batches of some
    hundreds or more.
    Needs: the views alone. No labels; more samples in the batch are more negatives.
    Temperature: a negative is pushed in proportion to its softmax e^{s_ij} among all others: τ → 0 pushes the hardest
    alone, τ → ∞ all alike. A low τ spreads the samples evenly, but drives apart those that are alike as well.
    Cost: 4u, u = (V·N)²·D; memory linear.
    Reference: Chen et al., A Simple Framework for Contrastive Learning of Visual Representations, ICML 2020,
    arXiv:2002.05709.

    Args:
        temperature: τ, or a `LearnableTemperature`. 0.5 as in SimCLR on CIFAR; 0.1 on ImageNet.
        normalize: scale rows to unit length.
        reduction: ``"mean"`` over anchors, ``"sum"``, or ``"none"`` ([V·N]: all of view 0, then all of view 1, …).
        diagnose: return (loss, `Diagnosis`) instead of the loss, at the cost of one more pass over the similarities.
        gather: negatives from all processes' batches: True, False, or ``"auto"``, when torch.distributed is initialised with
            several processes, which must then all call the loss. See `coulomb.losses.gathering` for the convention.

    Call with view0 [N, D] and view1 [N, D], or with all views as one tensor [N, V, D].

    Deviation: the authors' TPU code returns twice the paper's value; this is the paper's.
    Degenerate input: N = 1 has no negatives; a `CoulombWarning` says so.

    Raises:
        ValueError, TypeError: naming the argument; NaN or infinite features are a ValueError.

    >>> NTXentLoss()(torch.ones(8, 3), torch.ones(8, 3))  # ln 15
    tensor(2.7081)
    """

    checks: ClassVar = {"temperature": checked_temperature}

    def __init__(
        self,
        temperature: Temperature = 0.5,
        *,
        normalize: bool = True,
        reduction: str = "mean",
        diagnose: bool = False,
        gather: Gather = "auto",
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.normalize = normalize
        self.reduction = reduction
        self.diagnose = diagnose
        self.gather = gather

    def forward(self, view0: Tensor, view1: Tensor | None = None) -> Tensor | tuple[Tensor, Diagnosis]:
        """The loss; see the class."""
        scale = scale_of(self.temperature)
        if view1 is None:
            check_shape("view0", view0, ndim=(3,))
            if view0.shape[1] != 2:
                return self._streamed(view0, None, scale)
            view0, view1 = view0.unbind(1)
        check_pair(("view0", "view1"), view0, view1)
        rows, plainly = 2 * len(view0), not self.diagnose and group_of(self.gather) is None and len(view0) > 1
        if at_once.fits(rows, rows, view0, reduction=self.reduction, plainly=plainly):
            return at_once.known(partial(self._at_once, view0, view1, scale), self._streamed, view0, view1, scale)
        return self._streamed(view0, view1, scale)

    def _at_once(self, view0: Tensor, view1: Tensor, scale: float | Tensor, learning: bool) -> at_once.Found:
        n = len(view0)
        rows = at_once.Rows(("view0", "view1"), (view0, view1), normalize=self.normalize)
        unit = rows.unit
        t = at_once.exponents(unit, unit, scale)
        within = at_once.within_range(t, scale, rows)
        own = at_once.own_of_views_(t)
        total, lse = at_once.softmax_(t, within=within)
        loss, pull = at_once.pulled(lse.view(2, n), own, self.reduction)
        if not learning:
            return loss, ()
        gradient = at_once.weighted_(t, pull.view(-1) / total, within=within)
        at_once.pull_views_(gradient, pull)
        grad, factor = product(gradient, unit.T), at_once.factor_of(self.reduction, 2 * n)
        grad_scale = (unit * grad).sum().mul_(factor / 2) if isinstance(scale, Tensor) else None
        return loss, (*rows.back(grad, scale * factor), grad_scale)

    def _streamed(
        self, view0: Tensor, view1: Tensor | None, scale: float | Tensor
    ) -> Tensor | tuple[Tensor, Diagnosis]:
        if view1 is None:
            require_batch("view0", view0)
            n, views = view0.shape[:2]
            if views < 2:
                raise ValueError(f"view0 must hold at least 2 views [N, V, D], got shape {tuple(view0.shape)}")
            rows = rows_of(("view0",), view0.transpose(0, 1).reshape(n * views, -1), normalize=self.normalize)
        else:
            rows = paired_embeddings(("view0", "view1"), view0, view1, normalize=self.normalize)
            n, views = len(view0), 2
        group = group_of(self.gather)
        similarity = Similarity(rows, scale=scale, instances=n, unit=self.normalize, half=view0.dtype, group=group)
        anchors = similarity.number_of_keys
        if anchors == views:
            warn_counted(views, views, "anchors have no negative (N = 1): the loss teaches nothing")
        if views == 2:
            loss = similarity.contrast(offset=n)
        else:
            loss = similarity.lse("others") - similarity.mean("positives")
        loss = reduced_in(group, loss, self.reduction, anchors)
        return (loss, diagnose_rows(similarity)) if self.diagnose else loss

    def extra_repr(self) -> str:
        """The options, for ``print(loss)``."""
        return (
            f"{describe_temperature(self.temperature)}, normalize={self.normalize}, reduction={self.reduction!r}, "
            f"diagnose={self.diagnose}, gather={self.gather!r}"
        )
