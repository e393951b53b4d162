"""Which part of a network with published weights a training may change: the option ``tune``."""

from dataclasses import dataclass

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.models.blocks import ordered_blocks
from coulomb.models.encoder import Encoder
from coulomb.models.lora import add_lora

NUMBERED = {"last": "last:K", "lora": "lora:R"}  # kinds with a number, such as last:2
KINDS = ("all", "last", "head", "lora", "norm", "none", "whiten")
FROZEN = ("head", "none", "whiten")  # kinds that keep the backbone frozen and add an adapter to it
STATISTICS = ("moving", "frozen")  # of batch norms, during training
NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class Tune:
    """What a training changes.

    ==========  ==========================================================================================
    all         every weight
    last:K      the last K blocks and what follows them, see `coulomb.models.blocks.ordered_blocks`
    lora:R      low-rank additions of rank R to the weights, see `coulomb.models.lora.add_lora`
    norm        scales and shifts of the norms
    head        an adapter of the frozen features, trained on fresh views at every step
    none        the same, trained on features of a few views per image that are computed once
    whiten      an adapter of the frozen features in closed form (centering and PCA whitening), without training
    ==========  ==========================================================================================

    Attributes:
        kind: the word before the colon.
        number: K or R; None for the other kinds.
    """

    kind: str
    number: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> "Tune":
        """Returns the value of the option ``tune``; None is ``all``.

        Raises:
            InputError: the word is unknown, or a number is missing, superfluous or below 1.
        """
        kind, colon, number = ("all" if text is None else text).partition(":")
        if kind not in KINDS:
            known = ", ".join(NUMBERED.get(name, name) for name in KINDS)
            raise InputError(f"tune={text!r}: must be one of {known}" + did_you_mean(kind, KINDS))
        if kind not in NUMBERED:
            if colon:
                raise InputError(f"tune={text!r}: {kind} has no number; give tune={kind}")
            return cls(kind)
        if not (number.isascii() and number.isdecimal() and len(number) < 10 and int(number) >= 1):
            raise InputError(f"tune={text!r}: {kind} needs a whole number of at least 1, such as {kind}:2")
        return cls(kind, int(number))

    def __str__(self) -> str:
        """The value of the option."""
        return self.kind if self.number is None else f"{self.kind}:{self.number}"

    @property
    def frozen(self) -> bool:
        """True if the backbone stays frozen and what is learned is an adapter behind it."""
        return self.kind in FROZEN

    @property
    def frozen_kind(self) -> str | None:
        """``head``, ``none`` or ``whiten``; None if the backbone is trained."""
        return self.kind if self.frozen else None

    def apply(self, encoder: Encoder, *, norm_statistics: str = "moving", seed: int = 0) -> str:
        """Freezes the other parts of the backbone, in place, and with ``lora`` adds its layers.

        Parameters that do not require gradients stay frozen. Parts whose parameters are all frozen stay in eval mode in
        training (``encoder.fixed``), and so do batch norms with frozen scales, with lora all of them, and with
        ``norm_statistics="frozen"`` those whose scales train: their running statistics are used and do not move.

        Args:
            encoder: the encoder to train, before a method copies it.
            norm_statistics: ``"moving"``: batch norms that train use the statistics of the batch; or ``"frozen"``.
            seed: seed of the initial values of lora.

        Returns:
            What trains, as a sentence for the log.

        Raises:
            InputError: the backbone has fewer than K blocks, no norms with parameters, or no layer that lora can adapt; or
                peft is not installed.
        """
        backbone, lora = encoder.backbone, ""
        size = sum(parameter.numel() for parameter in backbone.parameters())
        if self.number is not None and self.kind == "lora":
            lora = add_lora(encoder, self.number, seed)
        elif self.kind != "all":
            trained = {"last": self._last, "norm": self._norms}.get(self.kind, lambda encoder: [])(encoder)
            kept = {id(parameter) for part in trained for parameter in part.parameters()}
            for parameter in backbone.parameters():
                parameter.requires_grad_(parameter.requires_grad and id(parameter) in kept)
        if self.kind != "all" or norm_statistics == "frozen":  # otherwise, a user's module may freeze parts by itself
            encoder.fix(_fixed(backbone, frozen=norm_statistics == "frozen", bare=self.kind in ("all", "last")))
        trains = sum(parameter.numel() for parameter in backbone.parameters() if parameter.requires_grad)
        sentence = f"{trains:,} of {size:,} parameters of the encoder train"
        if lora:
            sentence = f"{trains:,} parameters beside the {size:,} of the encoder train, {lora}"
        still = {id(part) for fixed in encoder.fixed for part in fixed.modules()}
        norms = [id(part) not in still for part in backbone.modules() if isinstance(part, _NormBase)]
        return sentence + (f"; {sum(norms)} of {len(norms)} batch norms follow the training images" if norms else "")

    def _last(self, encoder: Encoder) -> list[nn.Module]:
        groups = ordered_blocks(encoder.backbone)
        blocks = len(groups) - 2
        assert self.number is not None
        if self.number > blocks:
            raise InputError(
                f"tune='last:{self.number}': {encoder.name} has {blocks} blocks; give last:1 to last:{blocks}, or all"
            )
        return [part for group in groups[-1 - self.number :] for part in group]

    def _norms(self, encoder: Encoder) -> list[nn.Module]:
        norms = [
            part for part in encoder.backbone.modules() if _is_norm(part) and next(part.parameters(), None) is not None
        ]
        if not norms:
            raise InputError(f"tune='norm': {encoder.name} has no norm with a scale; use last:1 or all")
        return norms


def _is_norm(part: nn.Module) -> bool:
    """Returns True for a norm of torch, and for a layer without submodules whose class is called a norm."""
    named = "norm" in type(part).__name__.lower() and next(part.children(), None) is None
    return isinstance(part, NORMS) or named


def _fixed(backbone: nn.Module, *, frozen: bool, bare: bool) -> list[nn.Module]:
    """Returns the modules that stay in eval mode.

    ``frozen``: all batch norms; ``bare``: not batch norms without parameters, unless all around them is frozen.
    """
    fixed: list[nn.Module] = []
    for part in backbone.modules():
        parameters = list(part.parameters())
        trains = any(parameter.requires_grad for parameter in parameters)
        if isinstance(part, _NormBase):
            if frozen or not (trains or (bare and not parameters)):
                fixed.append(part)
        elif parameters and not trains:
            fixed.append(part)
    return fixed


class HeadFirst:
    """Freezes the backbones of a method for a while, so that the head is trained alone, and then what trained before.

    Backbones of all `Encoder` modules in the method are included, also of momentum encoders.
    """

    def __init__(self, method: nn.Module):
        self.method = method
        self.encoders = [part for part in method.modules() if isinstance(part, Encoder)]
        self.fixed = [part.fixed for part in self.encoders]
        self.trained = [p for part in self.encoders for p in part.backbone.parameters() if p.requires_grad]
        self.head_alone = False

    def set(self, head_alone: bool) -> None:
        """Sets whether only the head is trained; raises `InputError` if the method has none."""
        if head_alone is self.head_alone:
            return
        self.head_alone = head_alone
        for parameter in self.trained:
            parameter.requires_grad_(not head_alone)
        for encoder, fixed in zip(self.encoders, self.fixed, strict=True):
            encoder.fix([encoder.backbone] if head_alone else fixed)
        if not any(parameter.requires_grad for parameter in self.method.parameters()):
            raise InputError(f"head_epochs: {type(self.method).__name__} has no head to train alone; leave it out")
