"""Which part of a network with published weights a training may change: the option ``tune``."""

from dataclasses import dataclass

from coulomb.errors import InputError, did_you_mean

NUMBERED = {"last": "last:K", "lora": "lora:R"}  # kinds with a number, such as last:2
KINDS = ("all", "last", "head", "lora", "norm", "none", "whiten")
FROZEN = ("head", "none", "whiten")  # kinds that keep the backbone frozen and add an adapter to it


@dataclass(frozen=True)
class Tune:
    """What a training changes.

    ==========  ==========================================================================================
    all         every weight
    last:K      the last K stages
    lora:R      low-rank additions of rank R to the weights
    norm        scales and shifts of the norms
    head        an adapter of the frozen features, trained on fresh views at every step
    none        the same, trained on features of a few views per image that are computed once
    whiten      an adapter of the frozen features in closed form (centring and PCA whitening), without training
    ==========  ==========================================================================================

    Attributes:
        kind: the word before the colon.
        number: K or R; None for the other kinds.
    """

    kind: str
    number: int | None = None

    @classmethod
    def parse(cls, text: str) -> "Tune":
        """Returns the value of the option ``tune``.

        Raises:
            InputError: the word is unknown, or a number is missing, superfluous or below 1.
        """
        kind, colon, number = text.partition(":")
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

    @property
    def frozen(self) -> bool:
        """True if the backbone stays frozen and what is learned is an adapter behind it."""
        return self.kind in FROZEN
