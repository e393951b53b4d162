"""The result of one law for one loss."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from coulomb.ground.version import __version__

HOLDS, FAILS, NOT_APPLICABLE = "holds", "does not hold", "does not apply"


@dataclass(frozen=True)
class Finding:
    """What one law says about a loss.

    Attributes:
        law: its name, such as ``"gradient"``.
        outcome: ``"holds"``, ``"does not hold"`` or ``"does not apply"``.
        measure: what ``figure`` is, such as "largest relative error".
        figure: the measured number; None if there is none.
        bound: the largest figure with which the law holds; None if the law has no bound.
        cause: the likely cause of a failure, or why the law does not apply, in one sentence.
        example: the smallest input for which the law does not hold.

    >>> from coulomb.losses import NTXentLoss
    >>> (finding,) = verify(NTXentLoss, laws=["order"]).findings
    >>> finding.law, finding.outcome
    ('order of samples', 'holds')
    """

    law: str
    outcome: str
    measure: str = ""
    figure: float | None = None
    bound: float | None = None
    cause: str = ""
    example: str = ""


def no_samples(law: str) -> Finding:
    """Returns the finding of a law about samples for a loss whose inputs have no dimension for them."""
    return Finding(law, NOT_APPLICABLE, cause="no dimension of the inputs counts samples")


@dataclass(frozen=True)
class Certificate:
    """The findings for one loss.

    Attributes:
        loss: its name.
        called: how it was called, and how that was chosen.
        findings: one per law, in the order of `coulomb.laws.LAWS`; some laws have several.

    >>> certificate = verify(torch.nn.TripletMarginLoss, laws=["inputs"])
    >>> certificate.holds
    True
    """

    loss: str
    called: str
    findings: tuple[Finding, ...]

    @property
    def failed(self) -> tuple[Finding, ...]:
        """The findings that do not hold."""
        return tuple(one for one in self.findings if one.outcome == FAILS)

    @property
    def holds(self) -> bool:
        """True if no law fails."""
        return not self.failed

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON."""
        findings = [asdict(one) for one in self.findings]
        return {
            "coulomb": __version__,
            "loss": self.loss,
            "called": self.called,
            "holds": self.holds,
            "findings": findings,
        }

    def __str__(self) -> str:
        """The findings as a table of text, with the cause and the example of each failure below."""
        lines = [f"{self.loss}: {self.called}", ""]
        width = max(len(one.law) for one in self.findings)
        lines += [f"{one.law:{width}}  {one.outcome:14}  {figures(one)}".rstrip() for one in self.findings]
        for one in self.failed:
            lines += ["", f"{one.law}: {one.cause}", *(f"    {line}" for line in one.example.splitlines())]
        return "\n".join([*lines, "", summary(self.findings)])


def figures(finding: Finding) -> str:
    """Returns the measured number with its bound, or the reason that there is none."""
    if finding.outcome == NOT_APPLICABLE or finding.figure is None:
        return finding.cause
    if finding.bound == 0:  # what is counted
        return f"{finding.measure}: {finding.figure:g}"
    bound = "" if finding.bound is None else f" (at most {finding.bound:.3g})"
    note = f"; {finding.cause}" if finding.outcome == HOLDS and finding.cause else ""
    return f"{finding.measure} {finding.figure:.3g}{bound}{note}"


def summary(findings: Iterable[Finding]) -> str:
    """Returns how many laws hold, do not hold, and do not apply, as one line."""
    outcomes = [one.outcome for one in findings]
    counts = [outcomes.count(kind) for kind in (HOLDS, FAILS, NOT_APPLICABLE)]
    return "laws: {} hold, {} do not hold, {} do not apply".format(*counts)
