"""The learning rate as a function of the step alone, so that resuming cannot reset it."""

import math
from collections.abc import Sequence

SCHEDULES = ("cosine", "step", "constant")


def rate(kind: str, step: int, *, total: int, warmup: int, drops: Sequence[float] = ()) -> float:
    """Factor on the peak learning rate: linear from 1/warmup to 1, then ``kind``.

    ``cosine``: half a cosine down to 0; ``step``: a tenth at each share of the run in ``drops``; ``constant``: 1.

    Args:
        kind: one of ``SCHEDULES``.
        step: updates done so far, 0 … total.
        total: updates in the whole run, the warm-up included.
        warmup: updates of linear warm-up; 0 for none.
        drops: shares of ``total``.
    """
    if step < warmup:
        return (step + 1) / warmup
    if kind == "cosine":
        progress = (step - warmup) / max(total - warmup, 1)
        return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return 0.1 ** sum(step >= share * total for share in drops) if kind == "step" else 1.0
