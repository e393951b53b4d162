"""The momentum encoder: one that never leaves its start, or that follows at once."""

import math

from coulomb.doctor.evidence import BEGUN, Evidence
from coulomb.doctor.remedy import Option, advice
from coulomb.doctor.rule import Figure, Judgement, Rule, judged, unknown

START = 0.5  # share of the momentum encoder that is still its random start at the end
QUICK = 0.5  # momentum below which keys of one step and the next come from different networks


def remains(momentum: float, updates: int, schedule: str) -> float:
    """The share of the start in an average after ``updates``: the product of its momenta."""
    if schedule != "cosine":
        return momentum**updates
    towards = [(1 - momentum) * (math.cos(math.pi * (i + 1) / updates) + 1) / 2 for i in range(updates)]
    return math.prod(1 - step for step in towards)


def judge(evidence: Evidence) -> Judgement:
    """The share of the start that remains; the momentum itself, where a queue keeps what it made."""
    momentum = evidence.option("momentum")
    if not evidence.traits.momentum or momentum is None or evidence.option("generalized"):
        return unknown(f"{evidence.method} has no momentum encoder")
    if evidence.updates < BEGUN:
        return unknown(f"{evidence.updates} updates are too few to tell")
    default = "cosine" if evidence.method == "byol" else "constant"
    schedule = evidence.option("momentum_schedule") or default
    updates = evidence.planned  # a run that is under way is judged by where it will be
    start = remains(float(momentum), updates, schedule)
    frozen = Figure("share of its random start in the momentum encoder", start, START, "above")
    if frozen.crossed:
        return judged(frozen)
    if evidence.option("queue_size"):
        return judged(Figure("momentum", float(momentum), QUICK, "below"))
    return judged(frozen)


def _remedy(evidence: Evidence) -> str:
    """The momentum at which e⁻⁵ of the start remains after the planned updates, at most .999, in hundredths below .99."""
    best = min(0.999, 1 - 5 / max(evidence.planned, 6))
    target = Option("option momentum", float(f"{best:.3f}" if best > 0.99 else f"{best:.2f}"))
    now = float(evidence.option("momentum"))
    return advice(evidence, ("lower it" if now > best else "raise it", target))


MOMENTUM = Rule(
    name="momentum-wrong",
    title="The momentum encoder does not do its part: it stands still, or jumps with every step.",
    judge=judge,
    consequence="Standing still, it says what a random network says. Jumping, it fills the queue with keys of networks that "
    "cannot be compared (He et al., 2020: m = 0 does not converge).",
    remedy=_remedy,
)
