"""The laws that a contrastive loss should obey, for any loss: `verify`. Needs only torch."""

from coulomb.laws.certificate import LAWS, certify, verify
from coulomb.laws.finding import FAILS, HOLDS, NOT_APPLICABLE, Certificate, Finding
from coulomb.laws.subject import Subject

__all__ = [
    "FAILS",
    "HOLDS",
    "LAWS",
    "NOT_APPLICABLE",
    "Certificate",
    "Finding",
    "Subject",
    "certify",
    "verify",
]
