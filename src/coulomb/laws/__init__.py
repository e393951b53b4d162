"""The laws that a contrastive loss should obey, for any loss: `verify`. Needs only torch."""

from coulomb.laws.certificate import LAWS, verify
from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Certificate, Finding

__all__ = [
    "FAILS",
    "HOLDS",
    "LAWS",
    "NOT_APPLICABLE",
    "Certificate",
    "Finding",
    "verify",
]
