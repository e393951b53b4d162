"""Minutes → epochs: every method gets the same time."""

from typing import Any

from coulomb.runs.plan import plan
from coulomb.runs.preflight import estimate


def epochs_for(options: dict[str, Any], minutes: float) -> int:
    """Passes over the training images that ``minutes`` of training allow on this machine, at least 1.

    Measured on a few steps of the configuration that ``options`` make; on a machine with other work it is a rough figure, and
    the time that a run took stands in its row.
    """
    planned = plan(options)
    return max(1, int(60 * minutes / (estimate(planned)["seconds_per_step"] * planned.steps_per_epoch)))
