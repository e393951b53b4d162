"""Minutes → epochs: every method gets the same time."""

import dataclasses
from typing import Any

from coulomb.runs.estimate import estimate
from coulomb.runs.objects import Objects
from coulomb.training.launch import configure


def epochs_for(options: dict[str, Any], minutes: float) -> int:
    """Passes over the training images that ``minutes`` of training allow on this machine, at least 1.

    Measured on a few steps of the configuration that ``options`` make; on a machine with other work it is a rough figure, and
    the time that a run took stands in its row.
    """
    config, _, facts = configure(options, Objects())
    steps = max(1, facts.images // config.batch_size)
    found = estimate(dataclasses.replace(config, epochs=1, warmup_epochs=0.0), facts.images)
    return max(1, int(60 * minutes / (found["seconds_per_step"] * steps)))
