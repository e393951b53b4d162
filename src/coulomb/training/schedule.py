"""The learning rate as a function of the step alone, so that resuming cannot reset it."""

import math


def warmup_cosine(step: int, *, total: int, warmup: int) -> float:
    """Factor on the peak learning rate: linear from 1/warmup to 1, then half a cosine down to 0.

    Args:
        step: updates done so far, 0 … total.
        total: updates in the whole run.
        warmup: updates of linear warm-up; 0 for none.
    """
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(total - warmup, 1)
    return 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
